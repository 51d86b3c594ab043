// Packing of checkpoint rows into panels; runs once per weight at load.
#include "ops/packed.h"

#include <cstring>

#include "base/check.h"

namespace braid::ops {
namespace {

float LoadElement(const std::byte* row, int64_t i, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, row + 4 * i, 4);
      return value;
    }
    case DType::kF64: {
      double value;
      std::memcpy(&value, row + 8 * i, 8);
      return static_cast<float>(value);
    }
    default: {
      uint16_t bits;
      std::memcpy(&bits, row + 2 * i, 2);
      return dtype == DType::kF16 ? FloatOfF16(bits) : FloatOfBf16(bits);
    }
  }
}

}  // namespace

WeightFormat FormatFor(DType dtype) {
  return dtype == DType::kBF16 ? WeightFormat::kBF16 : WeightFormat::kF32;
}

float PackedMatrix::At(int64_t matrix, int64_t row, int64_t col) const {
  const std::byte* base = panel(matrix, row / kPanelRows);
  int64_t lane = row % kPanelRows;
  if (format == WeightFormat::kF32) {
    return LoadElement(base, col * kPanelRows + lane, DType::kF32);
  }
  return LoadElement(base, (col / 2 * kPanelRows + lane) * 2 + col % 2, DType::kBF16);
}

void PackPanel(const PackedMatrix& to, int64_t matrix, int64_t p, const std::byte* const rows[16],
               DType dtype) {
  std::byte* base = const_cast<std::byte*>(to.panel(matrix, p));
  if (to.format == WeightFormat::kF32) {
    float* out = reinterpret_cast<float*>(base);
    for (int64_t c = 0; c < to.depth(); ++c) {
      for (int64_t r = 0; r < kPanelRows; ++r) {
        const bool inside = rows[r] && c < to.k;
        out[c * kPanelRows + r] = inside ? LoadElement(rows[r], c, dtype) : 0.0f;
      }
    }
    return;
  }
  CHECK(dtype == DType::kBF16);
  uint32_t* out = reinterpret_cast<uint32_t*>(base);
  int64_t pairs = to.k / 2;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    for (int64_t c = 0; c < to.depth() / 2; ++c) {
      uint32_t pair = 0;
      if (rows[r] && 2 * c < to.k) std::memcpy(&pair, rows[r] + 4 * c, c < pairs ? 4 : 2);
      out[c * kPanelRows + r] = pair;
    }
  }
}

}  // namespace braid::ops
