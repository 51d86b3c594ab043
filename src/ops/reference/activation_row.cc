// Rounding, quantising and multiplying, term by term.
#include "ops/reference/activation_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/reference/quantise.h"

namespace braid::ops::reference {

ActivationRow::ActivationRow(const Device& device, WeightFormat format, bool exact, const float* x,
                             int64_t k)
    : values_(x, x + k) {
  if (!RowOf(format).integers) {
    if (device.compute != Compute::kBF16 || exact) return;
    for (float& v : values_) v = RoundToBf16(v);
    return;
  }
  Quantised row = Quantise(x, k);
  values_ = std::move(row.values);
  scale_ = row.scale;
}

WeightRow::WeightRow(const PackedMatrix& w, int64_t matrix, int64_t output)
    : format_(RowOf(w.format)), values_(static_cast<size_t>(w.k)) {
  if (!format_.integers) {
    w.ReadRow(matrix, output, values_.data());
    return;
  }
  w.ReadCodes(matrix, output, values_.data());
  order_ = w.order(matrix);
  const int64_t group = format_.group == 0 ? w.k : format_.group;
  for (int64_t c = 0; c < w.k; c += group) shared_.push_back(w.CodedAt(matrix, output, c));
}

double ActivationRow::Times(const WeightRow& w) const {
  const size_t k = values_.size();
  if (!w.format_.integers) {
    double sum = 0;
    for (size_t c = 0; c < k; ++c) sum += double{values_[c]} * w.values_[c];
    return sum;
  }
  // Integers below 2^31 are exact in double.
  const size_t group = w.format_.group == 0 ? k : static_cast<size_t>(w.format_.group);
  float total = 0;
  for (size_t begin = 0; begin < k; begin += group) {
    double sum = 0, integers = 0;
    for (size_t c = begin; c < std::min(k, begin + group); ++c) {
      const float x = values_[w.order_ ? w.order_[c] : c];
      sum += double{x} * w.values_[c];
      integers += x;
    }
    const PackedMatrix::Coded& shared = w.shared_[begin / group];
    total = std::fma(static_cast<float>(sum), shared.scale, total);
    if (w.format_.has_base()) {
      total = std::fma(static_cast<float>(-integers), shared.base, total);
    }
  }
  return total * scale_;
}

}  // namespace braid::ops::reference
