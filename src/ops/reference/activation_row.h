// A row of activations as GEMM reads it: as it is, rounded to bf16, or quantised to int8, by the
// format of the weights that it meets.
#pragma once

#include <vector>

#include "ops/packed.h"
#include "tensor/device.h"

namespace braid::ops::reference {

// The weights of one output, read once for all rows of activations that meet them.
class WeightRow {
 public:
  WeightRow(const PackedMatrix& w, int64_t matrix, int64_t output);

 private:
  friend class ActivationRow;

  const WeightFormatRow& format_;
  std::vector<float> values_;                // [k] weights; the codes, where these are integers
  std::vector<PackedMatrix::Coded> shared_;  // scale and base by group, where codes are integers
  const uint16_t* order_ = nullptr;          // PackedMatrix::order of `values_`
};

class ActivationRow {
 public:
  // `exact`: never rounded to bf16. Quantised weights meet quantised rows in any case.
  ActivationRow(const Device& device, WeightFormat format, bool exact, const float* x, int64_t k);
  // The product with one output. With weights whose codes are integers it is defined to the bit:
  // the exact sums of groups that share a scale are added by fused multiply-adds with their scales,
  // ascending, and the total is multiplied by the row's scale.
  double Times(const WeightRow& w) const;

 private:
  std::vector<float> values_;
  float scale_ = 1.0f;
};

}  // namespace braid::ops::reference
