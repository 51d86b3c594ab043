// A row of activations as GEMM reads it: as it is, rounded to bf16, or quantised to int8, by the
// format of the weights that it meets.
#pragma once

#include <vector>

#include "ops/packed.h"
#include "tensor/device.h"

namespace braid::ops::reference {

class ActivationRow {
 public:
  // `exact`: never rounded to bf16. Quantised weights meet quantised rows in any case.
  ActivationRow(const Device& device, WeightFormat format, bool exact, const float* x, int64_t k);
  // The product with one output of w. Of quantised weights it is defined to the bit: int8 is the
  // exact sum times the output's scale, times the row's; int4 adds the exact sums of groups of 32
  // by fused multiply-adds with their scales, ascending, and multiplies with the row's.
  double Times(const PackedMatrix& w, int64_t matrix, int64_t output) const;

 private:
  std::vector<float> values_;
  float scale_ = 1.0f;
};

}  // namespace braid::ops::reference
