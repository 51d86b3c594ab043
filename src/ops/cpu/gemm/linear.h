// CPU candidates of ops/linear.h, ops/embed.h and ops/norm.h.
#pragma once

#include "ops/cpu/gemm/gemm.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace braid::ops::cpu {

extern const Impl<LinearArgs> kLinear;
extern const Impl<SwigluArgs> kSwiglu;
extern const Impl<RmsNormArgs> kRmsNorm;
extern const Impl<GatedNormArgs> kGatedNorm;

// How a product's outputs and rows are shared out; none of it changes a bit of the result.
struct LinearPlan {
  int64_t panels = 0;  // per task
  int64_t rows = 0;    // per task
  int64_t groups = 0;  // of panels
  int64_t parts = 0;   // of the rows; tasks are groups * parts
};
// `panels` of `panel_bytes` each, and `rows` rows. Tasks are as wide as leaves all members busy.
LinearPlan PlanLinear(int64_t members, int64_t rows, int64_t panels, int64_t panel_bytes);
// Of a row-wise op.
int64_t RowsPerTask(int64_t members, int64_t rows);

}  // namespace braid::ops::cpu
