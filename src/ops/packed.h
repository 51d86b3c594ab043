// Weight matrices in the layout that the kernels stream. `count` equal matrices [n, k] lie back to
// back; each is cut into panels of 16 outputs (n padded to 16 with zeros, k to the format's step):
//   kBF16: panel[k / 2][16][2], k padded to 32: one 64-byte line per pair along k; 16 lines are a
//          tile of AMX, a line an operand of AVX512-BF16, and AVX2 splits it with a shift and a
//          mask;
//   kF32:  panel[k][16], k padded to 2.
// Panels are 64-byte aligned and read strictly forward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"
#include "tensor/dtype.h"

namespace braid::ops {

inline constexpr int64_t kPanelRows = 16;

enum class WeightFormat : uint8_t { kBF16, kF32 };

struct PackedMatrix {
  WeightFormat format = WeightFormat::kBF16;
  int64_t count = 1;
  int64_t n = 0;
  int64_t k = 0;
  std::byte* data = nullptr;

  int64_t panels() const { return CeilDiv(n, kPanelRows); }
  int64_t depth() const { return RoundUp(k, format == WeightFormat::kF32 ? 2 : 32); }
  int64_t panel_bytes() const {
    return kPanelRows * depth() * (format == WeightFormat::kF32 ? 4 : 2);
  }
  int64_t matrix_bytes() const { return panels() * panel_bytes(); }
  int64_t bytes() const { return count * matrix_bytes(); }
  const std::byte* panel(int64_t matrix, int64_t p) const {
    return data + matrix * matrix_bytes() + p * panel_bytes();
  }
  // One weight, for references and tests.
  float At(int64_t matrix, int64_t row, int64_t col) const;
};

// The format that keeps every bit of a checkpoint's element type.
WeightFormat FormatFor(DType dtype);

// Fills panel p of one matrix from up to 16 source rows of k elements; a null row packs zeros.
void PackPanel(const PackedMatrix& to, int64_t matrix, int64_t p, const std::byte* const rows[16],
               DType dtype);

}  // namespace braid::ops
