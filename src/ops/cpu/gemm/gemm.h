// The choice of a GEMM kernel, and activations packed for it. `linear`, `experts`, `head_linear`
// and `expand_latent` are one algorithm each over any kernel (kernels/gemm.h).
#pragma once

#include <span>
#include <string>

#include "base/math.h"
#include "ops/cpu/kernels/gemm.h"
#include "ops/op.h"
#include "ops/packed.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace braid::ops::cpu {

// All of them; of those for one format the best come first.
std::span<const GemmKernel> GemmKernels();
// "avx512_vnni"; with "_rounded" where fp32 activations are rounded.
std::string NameOf(const GemmKernel& kernel);
// nullptr: can run on weights of its format. `exact`: no rounding of activations
// (LinearArgs::exact).
const char* WhyNot(const GemmKernel& kernel, const Device& device, bool exact);

// The best that can run; null if none can.
const GemmKernel* FindGemmKernel(const Device& device, WeightFormat format, bool exact);
// The same where there is one, as on every device with AVX2.
const GemmKernel& GemmKernelFor(const Device& device, WeightFormat format, bool exact);
// Tells --explain-ops which kernel that is and why not a better one.
void NoteGemmKernel(const OpContext& context, WeightFormat format, bool exact);

// Activations packed for a kernel, in memory that the caller owns.
struct PackedActivations {
  const GemmKernel* kernel = nullptr;
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t k = 0;                    // before padding
  const uint16_t* order = nullptr;  // PackedMatrix::order of the weights

  int64_t depth() const { return RoundUp(k, kernel->layout->depth_multiple); }
  int64_t row_bytes() const {
    const int64_t elements = depth() * kernel->layout->element_bytes;
    return kernel->layout->integers ? Int8RowBytes(depth()) : elements;
  }
  int64_t bytes() const { return rows * row_bytes(); }
  int64_t blocks() const { return CeilDiv(rows, kernel->layout->block_rows); }

  // Packs rows [row, row + count) of one block, columns [col, col + cols) of them, from
  // x.row(ids ? ids[i] : i), i counted from `row`; the padding too when the columns end at k.
  void Pack(int64_t row, int64_t count, int64_t col, const Matrix& x, const int32_t* ids) const;
  // All columns of block b; `ids` of all rows.
  void PackBlock(int64_t b, const Matrix& x, const int32_t* ids) const;

  // One row [k] as a block of one, row_bytes() at `to`; and block b from such rows, those of row i
  // at alone + ids[i] * row_bytes(). A row is thus converted once, however many blocks contain
  // it.
  void PackAlone(const float* row, std::byte* to) const;
  void GatherBlock(int64_t b, const std::byte* alone, const int32_t* ids) const;
};

// The product of rows [row, row + count) with one matrix: all panels, no output yet. `row` begins a
// block.
GemmTask TaskOf(const PackedActivations& x, const PackedMatrix& w, int64_t matrix, int64_t row,
                int64_t count);

}  // namespace braid::ops::cpu
