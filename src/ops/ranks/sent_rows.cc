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

}  // namespace

SentRows::SentRows(const Device& device, WeightFormat format, int64_t cols)
    : kernel_(cpu::FindGemmKernel(device, format, false)),
      cols_(cols),
      element_bytes_(ElementBytes(kernel_)) {}

bool SentRows::rounds() const { return element_bytes_ != kFloat; }
bool SentRows::codes() const { return element_bytes_ == kInt8; }
int64_t SentRows::part_floats() const { return CeilDiv(cols_ * element_bytes_, kFloat); }
int64_t SentRows::floats() const { return part_floats() + (codes() ? 1 : 0); }

int64_t SentRows::scratch_bytes() const {
  if (!rounds()) return 0;
  return cpu::PackedActivations{kernel_, nullptr, 1, cols_ + 1}.row_bytes() + (cols_ + 1) * kFloat;
}

float SentRows::Largest(const float* row, int64_t cols) {
  uint32_t most = 0;
  for (int64_t c = 0; c < cols; ++c) {
    most = std::max(most, std::bit_cast<uint32_t>(row[c]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(most);
}

void SentRows::Pack(const float* row, std::byte* scratch, float* to) const {
  const float largest = codes() ? Largest(row, cols_) : 0.0f;
  PackPart(row, largest, scratch, to);
  if (codes()) to[part_floats()] = largest;
}

void SentRows::Unpack(const float* from, float* row) const {
  UnpackPart(from, codes() ? from[part_floats()] : 0.0f, row);
}

// The kernel sees the largest magnitude as a further column, which gives the row its scale.
void SentRows::PackPart(const float* columns, float largest, std::byte* scratch, float* to) const {
  if (!rounds()) {
    std::copy_n(columns, cols_, to);
    return;
  }
  const int64_t whole = cols_ * element_bytes_ / kFloat;
  std::fill_n(to + whole, part_floats() - whole, 0.0f);
  auto* row = reinterpret_cast<float*>(scratch);
  std::byte* packed = scratch + (cols_ + 1) * kFloat;
  std::copy_n(columns, cols_, row);
  row[cols_] = largest;
  cpu::PackedActivations{kernel_, nullptr, 1, cols_ + 1}.PackAlone(row, packed);
  if (element_bytes_ == kernel_->layout->element_bytes) {
    std::memcpy(to, packed, static_cast<size_t>(cols_ * element_bytes_));
    return;
  }
  auto* halves = reinterpret_cast<uint16_t*>(to);  // rounded, and floats still
  for (int64_t c = 0; c < cols_; ++c) std::memcpy(halves + c, packed + c * kFloat + kBf16, kBf16);
}

void SentRows::UnpackPart(const float* from, float largest, float* columns) const {
  if (!rounds()) {
    std::copy_n(from, cols_, columns);
    return;
  }
  if (!codes()) {
    const auto* halves = reinterpret_cast<const uint16_t*>(from);
    for (int64_t c = 0; c < cols_; ++c) columns[c] = FloatOfBf16(halves[c]);
    return;
  }
  if (!std::isfinite(largest)) {
    std::fill_n(columns, cols_, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  // The largest come back as they were, so that the row's scale does; others have only to be
  // nearest to their code.
  const float scale = largest >= kLeast ? largest / kMost : 0.0f;
  const auto* codes = reinterpret_cast<const int8_t*>(from);
  for (int64_t c = 0; c < cols_; ++c) {
    const float x = static_cast<float>(codes[c]) * scale;
    columns[c] = codes[c] == kMost ? largest : codes[c] == -kMost ? -largest : x;
  }
}

}  // namespace braid::ops
