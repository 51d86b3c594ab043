// GEMM kernels as data, best first: what each needs of the device and of the weights, the layout in
// which it reads activations, and its loops. `linear`, `experts` and `head_linear` are one
// algorithm each over any of them.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/math.h"
#include "ops/cpu/kernels/gemm.h"
#include "ops/op.h"
#include "ops/packed.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace braid::ops::cpu {

// How activations lie for a kernel (kernels/gemm.h): rows in blocks of `block_rows` (the last may
// be shorter), each block contiguous, depth padded with zeros.
struct ActivationLayout {
  int64_t block_rows;
  int64_t depth_multiple;
  int64_t element_bytes;
  bool integers;  // a row is packed at once, and its scale and sums follow
};

struct GemmKernel {
  std::string_view name;
  // nullptr: can run. `exact`: no rounding of activations (LinearArgs::exact).
  const char* (*why_not)(const Device&, WeightFormat, bool exact);
  const ActivationLayout* layout;
  void (*pack)(const PackTask&);
  void (*run)(const GemmTask&);
};

inline constexpr size_t kGemmKernelCount = 18;
std::span<const GemmKernel, kGemmKernelCount> GemmKernels();
// The first that can run; a device without any is the caller's error.
const GemmKernel& GemmKernelFor(const Device& device, WeightFormat format, bool exact);

// Activations packed for a kernel, in memory that the caller owns.
struct PackedActivations {
  const GemmKernel* kernel = nullptr;
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t k = 0;  // before padding

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
  // at alone + ids[i] * row_bytes(). What is done to a row's numbers is done once, however many
  // blocks have it.
  void PackAlone(const float* row, std::byte* to) const;
  void GatherBlock(int64_t b, const std::byte* alone, const int32_t* ids) const;
};

// The product of rows [row, row + count) with one matrix: all panels, no output yet. `row` begins a
// block.
GemmTask TaskOf(const PackedActivations& x, const PackedMatrix& w, int64_t matrix, int64_t row,
                int64_t count);

// One candidate of an op per kernel: equal but for the reason to refuse, since the op finds the
// same kernel again by itself. `WhyNot<I>` asks kernel I.
template <class Args, template <size_t> class WhyNot, size_t... I>
std::array<Impl<Args>, kGemmKernelCount> CandidatesOf(const Impl<Args>& op,
                                                      std::index_sequence<I...>) {
  return {{{GemmKernels()[I].name, WhyNot<I>::Ask, op.scratch_bytes, op.run}...}};
}

}  // namespace braid::ops::cpu
