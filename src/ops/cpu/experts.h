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

}  // namespace braid::ops::cpu
