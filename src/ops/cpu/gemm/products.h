// The ways to multiply packed rows with packed panels, best first, as data: what each needs of the
// device and of the weights, the form in which it wants its left operand, and its loops. `linear`,
// `experts` and `head_linear` are one algorithm each over any of them.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/math.h"
#include "ops/cpu/kernels/product.h"
#include "ops/op.h"
#include "ops/packed.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace braid::ops::cpu {

// The form of a left operand (kernels/product.h): rows in blocks of `block_rows` (the last may be
// shorter), each block contiguous, depth padded with zeros.
struct LeftFormat {
  int64_t block_rows;
  int64_t depth_multiple;
  int64_t element_bytes;
  bool integers;  // a row is packed at once, and its scale and sums follow
};

struct Product {
  std::string_view name;
  // nullptr: can run. `exact`: no rounding of activations (LinearArgs::exact).
  const char* (*why_not)(const Device&, WeightFormat, bool exact);
  const LeftFormat* left;
  void (*pack)(const PackTask&);
  void (*run)(const GemmTask&);
};

inline constexpr size_t kProductCount = 18;
std::span<const Product, kProductCount> Products();
// The first that can run; a device without any is the caller's error.
const Product& ProductFor(const Device& device, WeightFormat format, bool exact);

// A left operand in memory that is somebody else's.
struct PackedRows {
  const Product* product = nullptr;
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t k = 0;  // before padding

  int64_t depth() const { return RoundUp(k, product->left->depth_multiple); }
  int64_t row_bytes() const {
    const int64_t elements = depth() * product->left->element_bytes;
    return product->left->integers ? Int8RowBytes(depth()) : elements;
  }
  int64_t bytes() const { return rows * row_bytes(); }
  int64_t blocks() const { return CeilDiv(rows, product->left->block_rows); }

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
GemmTask TaskOf(const PackedRows& x, const PackedMatrix& w, int64_t matrix, int64_t row,
                int64_t count);

// One candidate of an op per product: equal but for the reason to refuse, since the op finds the
// same product again by itself. `WhyNot<I>` asks product I.
template <class Args, template <size_t> class WhyNot, size_t... I>
std::array<Impl<Args>, kProductCount> CandidatesOf(const Impl<Args>& op,
                                                   std::index_sequence<I...>) {
  return {{{Products()[I].name, WhyNot<I>::Ask, op.scratch_bytes, op.run}...}};
}

}  // namespace braid::ops::cpu
