// The list, and the forms of left operands. What is packed here is packed without vector code.
#include "ops/cpu/products.h"

#include <algorithm>

namespace braid::ops::cpu {
namespace {

using braid::cpu::GemmTask;
using braid::cpu::PackTask;

constexpr LeftFormat kF32Blocks = {braid::cpu::kRowBlock, 2,
                                   [](int64_t depth) { return 4 * depth; }, false};
constexpr LeftFormat kBf16Steps = {braid::cpu::kDotRows, 32,
                                   [](int64_t depth) { return 2 * depth; }, false};

template <bool kRound>
void PackF32(const PackTask& task) {
  float* out = reinterpret_cast<float*>(task.block);
  for (int64_t r = 0; r < task.count; ++r) {
    const float* x = task.rows[r] - task.begin;
    for (int64_t c = task.begin; c < task.end; ++c) {
      out[c * task.count + r] = kRound ? RoundToBf16(x[c]) : x[c];
    }
    for (int64_t c = task.end; c < task.depth_end; ++c) out[c * task.count + r] = 0.0f;
  }
}

const char* WhyNotBf16(const Device& device, WeightFormat format, bool exact) {
  if (format != WeightFormat::kBF16) return "the weights are not bf16";
  return exact || device.compute != Compute::kBF16 ? "activations are not to be rounded" : nullptr;
}
const char* WhyNotBf16Amx(const Device& device, WeightFormat format, bool exact) {
  return device.isa < Isa::kAmx ? "needs AMX" : WhyNotBf16(device, format, exact);
}
const char* WhyNotAvx2(const Device& device, WeightFormat, bool) {
  return device.isa < Isa::kAvx2 ? "needs AVX2 with FMA" : nullptr;
}
const char* WhyNotAvx2Rounded(const Device& device, WeightFormat format, bool exact) {
  if (exact || device.compute != Compute::kBF16) return "activations are not to be rounded";
  return WhyNotAvx2(device, format, exact);
}

void GemmAvx2(const GemmTask& task) { braid::cpu::Avx2Kernels().gemm(task); }

constexpr Product kProducts[] = {
    {"amx_bf16", WhyNotBf16Amx, &kBf16Steps, braid::cpu::PackBf16Avx512, braid::cpu::Bf16Amx},
    {"avx2_rounded", WhyNotAvx2Rounded, &kF32Blocks, PackF32<true>, GemmAvx2},
    {"avx2", WhyNotAvx2, &kF32Blocks, PackF32<false>, GemmAvx2},
};

}  // namespace

std::span<const Product, kProductCount> Products() { return kProducts; }

const Product& ProductFor(const Device& device, WeightFormat format, bool exact) {
  for (const Product& product : kProducts) {
    if (!product.why_not(device, format, exact)) return product;
  }
  CHECK(false, "no product for this device");
}

void PackedRows::Pack(int64_t row, int64_t count, int64_t col, const Matrix& x,
                      const int32_t* ids) const {
  const int64_t first = row / product->left->block_rows * product->left->block_rows;
  CHECK(row == first && count == std::min(rows - first, product->left->block_rows));
  PackTask task;
  for (int64_t r = 0; r < count; ++r) task.rows[r] = x.row(ids ? ids[r] : r);
  task.count = count;
  task.begin = col;
  task.end = col + x.cols;
  task.depth_end = task.end == k ? depth() : task.end;
  task.block = data + row * row_bytes();
  product->pack(task);
}

void PackedRows::PackBlock(int64_t b, const Matrix& x, const int32_t* ids) const {
  const int64_t row = b * product->left->block_rows;
  const int64_t count = std::min(rows - row, product->left->block_rows);
  const Matrix from = ids ? x : Matrix{x.row(row), count, x.cols, x.stride};
  Pack(row, count, 0, from, ids ? ids + row : nullptr);
}

GemmTask TaskOf(const PackedRows& x, const PackedMatrix& w, int64_t matrix, int64_t row,
                int64_t count) {
  CHECK(w.k == x.k, "operands of {} and {} terms", x.k, w.k);
  return {.x = x.data + row * x.row_bytes(),
          .rows = count,
          .k = x.depth(),
          .w = w.panel(matrix, 0),
          .panel_bytes = w.panel_bytes(),
          .bf16 = w.format == WeightFormat::kBF16,
          .panel_begin = 0,
          .panel_end = w.panels(),
          .n = w.n,
          .y = nullptr,
          .y_stride = 0};
}

}  // namespace braid::ops::cpu
