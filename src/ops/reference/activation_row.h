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
  // The product with one output of w. With weights whose codes are integers it is defined to the
  // bit: the exact sums of groups that share a scale are added by fused multiply-adds with their
  // scales, ascending, and the total is multiplied by the row's scale.
  double Times(const PackedMatrix& w, int64_t matrix, int64_t output) const;

 private:
  std::vector<float> values_;
  float scale_ = 1.0f;
};

}  // namespace braid::ops::reference
