// Every kernel for one vector type, as a table. Included by the one file per instruction set that
// is compiled with its flags, and by no other file.
#pragma once

#include "ops/cpu/kernels/attend.h"
#include "ops/cpu/kernels/delta.h"
#include "ops/cpu/kernels/rows.h"
#include "ops/cpu/kernels/table.h"

namespace braid::ops::cpu {

template <class V>
constexpr KernelTable KernelsOf() {
  using R = Rows<V>;
  return {
      .lanes = V::kLanes,
      .rms_norm = R::RmsNorm,
      .gated_norm = R::GatedNorm,
      .conv = R::Conv,
      .swiglu = R::Swiglu,
      .sigmoid_mul = R::SigmoidMul,
      .sigmoid = R::SigmoidOf,
      .log_decay = R::LogDecay,
      .add_scaled = R::AddScaled,
      .dot = R::Dot,
      .unit = R::Unit,
      .rotate = R::Rotate,
      .to_bf16 = R::ToBf16,
      .to_int8 = R::ToInt8,
      .round_rows = KeptRows<V>::Round,
      .store_rows = KeptRows<V>::Store,
      .load_rows = KeptRows<V>::Load,
      .attend = Attend<V>::Run,
      .merge = Attend<V>::Merge,
      .delta = Delta<V>::Run,
      .max = R::Max,
      .sum_exp = R::SumExp,
  };
}

}  // namespace braid::ops::cpu
