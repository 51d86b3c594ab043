// The kernel of the product packs a row, as it will do again where the row arrives. Of int8 the
// largest magnitude travels, not the scale: from a scale the same scale cannot always be computed
// again.
#include "ops/ranks/sent_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/math.h"
#include "tensor/dtype.h"

namespace braid::ops {
namespace {

constexpr int64_t kFloat = sizeof(float), kBf16 = sizeof(uint16_t), kInt8 = 1;
constexpr int8_t kMost = 127;
// Rows without a larger number quantise to zeros (PackInt8Avx2).
constexpr float kLeast = 0x1p-100f;

int64_t ElementBytes(const cpu::GemmKernel* kernel) {
  if (kernel != nullptr && kernel->layout->integers) return kInt8;
  return kernel != nullptr && kernel->rounds ? kBf16 : kFloat;
}

// The largest magnitude; not finite if one is not.
float Largest(const float* row, int64_t cols) {
  uint32_t most = 0;
  for (int64_t c = 0; c < cols; ++c) {
    most = std::max(most, std::bit_cast<uint32_t>(row[c]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(most);
}

}  // namespace

SentRows::SentRows(const Device& device, WeightFormat format, int64_t cols)
    : kernel_(cpu::FindGemmKernel(device, format, false)),
      cols_(cols),
      element_bytes_(ElementBytes(kernel_)) {}

int64_t SentRows::floats() const {
  return CeilDiv(cols_ * element_bytes_, kFloat) + (element_bytes_ == kInt8 ? 1 : 0);
}

int64_t SentRows::scratch_bytes() const {
  return element_bytes_ == kFloat ? 0
                                  : cpu::PackedActivations{kernel_, nullptr, 1, cols_}.row_bytes();
}

void SentRows::Pack(const float* row, std::byte* scratch, float* to) const {
  if (element_bytes_ == kFloat) {
    std::copy_n(row, cols_, to);
    return;
  }
  const int64_t whole = cols_ * element_bytes_ / kFloat;
  std::fill_n(to + whole, floats() - whole, 0.0f);
  cpu::PackedActivations{kernel_, nullptr, 1, cols_}.PackAlone(row, scratch);
  if (element_bytes_ == kernel_->layout->element_bytes) {
    std::memcpy(to, scratch, static_cast<size_t>(cols_ * element_bytes_));
  } else {  // rounded, and floats still
    auto* halves = reinterpret_cast<uint16_t*>(to);
    for (int64_t c = 0; c < cols_; ++c)
      std::memcpy(halves + c, scratch + c * kFloat + kBf16, kBf16);
  }
  if (element_bytes_ == kInt8) to[floats() - 1] = Largest(row, cols_);
}

void SentRows::Unpack(const float* from, float* row) const {
  if (element_bytes_ == kFloat) {
    std::copy_n(from, cols_, row);
    return;
  }
  if (element_bytes_ == kBf16) {
    const auto* halves = reinterpret_cast<const uint16_t*>(from);
    for (int64_t c = 0; c < cols_; ++c) row[c] = FloatOfBf16(halves[c]);
    return;
  }
  const float most = from[floats() - 1];
  if (!std::isfinite(most)) {
    std::fill_n(row, cols_, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  // The largest come back as they were, so that the row's scale does; others have only to be
  // nearest to their code.
  const float scale = most >= kLeast ? most / kMost : 0.0f;
  const auto* codes = reinterpret_cast<const int8_t*>(from);
  for (int64_t c = 0; c < cols_; ++c) {
    const float x = static_cast<float>(codes[c]) * scale;
    row[c] = codes[c] == kMost ? most : codes[c] == -kMost ? -most : x;
  }
}

}  // namespace braid::ops
