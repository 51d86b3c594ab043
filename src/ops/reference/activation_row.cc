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

double ActivationRow::Times(const PackedMatrix& w, int64_t matrix, int64_t output) const {
  const auto k = static_cast<int64_t>(values_.size());
  const WeightFormatRow& format = RowOf(w.format);
  if (!format.integers) {
    double sum = 0;
    for (int64_t c = 0; c < k; ++c) {
      sum += double{values_[static_cast<size_t>(c)]} * w.At(matrix, output, c);
    }
    return sum;
  }
  std::vector<float> codes(values_.size());
  w.ReadCodes(matrix, output, codes.data());
  // Integers below 2^31 are exact in double.
  const int64_t group = format.group == 0 ? k : format.group;
  float total = 0;
  for (int64_t begin = 0; begin < k; begin += group) {
    double sum = 0, integers = 0;
    for (int64_t c = begin; c < std::min(k, begin + group); ++c) {
      const double value = values_[static_cast<size_t>(c)];
      sum += value * codes[static_cast<size_t>(c)];
      integers += value;
    }
    const PackedMatrix::Coded shared = w.CodedAt(matrix, output, begin);
    total = std::fma(static_cast<float>(sum), shared.scale, total);
    if (format.has_base()) total = std::fma(static_cast<float>(-integers), shared.base, total);
  }
  return total * scale_;
}

}  // namespace braid::ops::reference
