// Weight matrices in the layout that the kernels stream. `count` equal matrices [n, k] lie back to
// back; each is cut into panels of 16 outputs (n padded to 16 with zeros, k to the format's step):
//   fp32: panel[k][16], k padded to 16;
//   bf16: panel[k / 2][16][2], k padded to 32: one 64-byte line per pair along k; 16 lines are a
//         tile of AMX, a line an operand of AVX512-BF16, and AVX2 splits it with a shift and a
//         mask;
//   fp8:  per 128 of k (padded to it) 16 fp32 scales, one per output, then 32 lines of e4m3 codes:
//         line i has pairs 2 i and 2 i + 1 along k, [16][2] each, in turns of 8 bytes;
//   int8: panel[k / 4][16][4], k padded to 64, then 16 fp32 scales, one per output;
//   int4: per 64 of k (padded to it) 2 x 16 fp16 scales, one per output and 32 of k, then 8 lines
//         [16][4] of bytes: line i has k = 8 i + j in the low and 8 i + 4 + j in the high half of
//         byte j, stored as q + 8.
//   grouped formats (q4_k, …): per block what its columns share, 16 outputs each, filled up to a
//         line, then lines of codes in planes (kernels/weight_format.h).
// A panel is thus a row of blocks (WeightFormatRow::depth_multiple), each with its scales before
// its lines; where one scale holds for a whole row, the panel is one block with its scales behind.
// Panels are 64-byte aligned and read strictly forward.
//
// Columns of a matrix of integers may have another order than its inputs, so that those that share
// a scale lie beside each other (GPTQ's act-order). The order lies behind the matrix's panels: of
// each column the input that it multiplies, 16 bits, filled up to a line. Activations are brought
// into it while they are quantised, which changes neither their codes nor their scale.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"
#include "ops/weight_format.h"
#include "tensor/dtype.h"

namespace braid::ops {

struct PackedMatrix {
  WeightFormat format = WeightFormat::kBF16;
  int64_t count = 1;
  int64_t n = 0;
  int64_t k = 0;
  std::byte* data = nullptr;
  bool paged = false;    // in a mapped file, parts of which may be on disk only
  bool ordered = false;  // an order of columns lies behind the panels of each matrix

  int64_t panels() const { return CeilDiv(n, kPanelRows); }
  int64_t depth() const { return RoundUp(k, RowOf(format).depth_multiple); }
  int64_t panel_bytes() const;
  // Of one weight, its share of the scales included.
  double bytes_per_weight() const {
    return static_cast<double>(panel_bytes()) / static_cast<double>(kPanelRows * k);
  }
  int64_t order_bytes() const { return ordered ? RoundUp(2 * k, 64) : 0; }
  int64_t matrix_bytes() const { return panels() * panel_bytes() + order_bytes(); }
  int64_t bytes() const { return count * matrix_bytes(); }
  const std::byte* panel(int64_t matrix, int64_t p) const {
    return data + matrix * matrix_bytes() + p * panel_bytes();
  }
  // The input of each column; null: column c multiplies input c, or there is no data yet.
  const uint16_t* order(int64_t matrix) const {
    if (!ordered || data == nullptr) return nullptr;
    return reinterpret_cast<const uint16_t*>(panel(matrix, panels()));
  }
  // The matrices cut into `parts` pieces of equal size, as they lie on NUMA nodes: stacked ones by
  // number, a single one by rows. The piece in which a panel begins.
  int64_t PartOf(int64_t matrix, int64_t p, int64_t parts) const {
    return (matrix * panels() + p) * parts / (count * panels());
  }
  // One weight is code * scale - base; scale is 1 and base 0 where the format has none.
  struct Coded {
    float code, scale, base;

    float value() const { return code * scale - base; }
  };
  Coded CodedAt(int64_t matrix, int64_t row, int64_t col) const;
  // The weight of one input, for references and tests.
  float At(int64_t matrix, int64_t row, int64_t input) const;
  void ReadRow(int64_t matrix, int64_t row, float* out) const;    // to out[k], by input
  void ReadCodes(int64_t matrix, int64_t row, float* out) const;  // to out[k]: codes, by column
};

// Fills panel p of one matrix from up to 16 source rows of k elements, coded by QuantiseRow; a null
// row packs zeros.
void PackPanel(const PackedMatrix& to, int64_t matrix, int64_t p, const std::byte* const rows[16],
               DType dtype);
// The same from codes of the matrix's format.
void PackCodes(const PackedMatrix& to, int64_t matrix, int64_t p, const CodedPanel& panel);

}  // namespace braid::ops
