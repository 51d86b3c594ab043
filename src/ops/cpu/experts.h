// CPU candidates of ops/experts.h.
#pragma once

#include "ops/cpu/gemm/gemm.h"
#include "ops/experts.h"

namespace braid::ops::cpu {

extern const Impl<ExpertsArgs> kExperts;

// How the down product is shared out; none of it changes a bit of the result.
struct DownPlan {
  int64_t cols = 0;        // columns of the output per task
  int64_t tasks = 0;       // of the product
  bool by_expert = false;  // a task is one expert's columns, and the sums are a loop of their own
};
// A step whose `experts` have `rows` rows in all; the output has `out_cols` columns. By expert, a
// task reads the weights of one NUMA node and there are more tasks, but the rows are stored and
// read again; this pays with few rows, where reading weights takes the time. With many rows a task
// has all experts' rows of its columns, which are narrower where there are many members.
DownPlan PlanDown(int64_t members, int64_t nodes, int64_t experts, int64_t rows, int64_t out_cols);

// How gate and up are shared out: a task is one expert's columns of both, with all of its rows.
struct UpPlan {
  int64_t cols = 0;
  int64_t groups = 0;  // of columns; tasks are experts * groups
};
struct UpWork {
  int64_t experts = 0;    // with rows
  int64_t width = 0;      // most columns of one
  int64_t least = 0;      // columns of a task, a power of two
  int64_t rows = 0;       // of all experts
  int64_t rows_most = 0;  // of one
};
// Columns are narrower where members have too few tasks, or one task more than its part of the
// rows.
UpPlan PlanUp(int64_t members, const UpWork& work);
// Rows of an expert that one task packs between the products.
inline constexpr int64_t kPackRows = 64;

}  // namespace braid::ops::cpu
