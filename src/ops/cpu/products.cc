// The list, and the forms of left operands. What is packed here is packed without vector code.
#include "ops/cpu/products.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/dispatch.h"
#include "ops/weight_codes.h"

namespace braid::ops::cpu {
namespace {

using braid::cpu::GemmTask;
using braid::cpu::PackTask;

// Blocks of steps of 64 bytes, one of each row in turn; with integers the words that follow them,
// of which a row alone has as many (kernels/product.h).
template <int64_t kStepTerms, bool kWords>
void GatherSteps(const GatherTask& task) {
  std::byte* out = task.block;
  const int64_t bytes = task.depth / kStepTerms * 64;
  for (int64_t at = 0; at < bytes; at += 64) {
    for (int64_t r = 0; r < task.count; ++r, out += 64) std::memcpy(out, task.rows[r] + at, 64);
  }
  const int64_t end = kWords ? bytes + 4 * (2 + task.depth / 32) : bytes;
  for (int64_t at = bytes; at < end; at += 4) {
    for (int64_t r = 0; r < task.count; ++r, out += 4) std::memcpy(out, task.rows[r] + at, 4);
  }
}

constexpr LeftFormat kF32Blocks = {braid::cpu::kRowBlock, 2,
                                   [](int64_t depth) { return 4 * depth; }, false, nullptr};
constexpr LeftFormat kBf16Steps = {braid::cpu::kDotRows, 32,
                                   [](int64_t depth) { return 2 * depth; }, false,
                                   GatherSteps<32, false>};

// For fp8 weights, whose depth is padded further.
constexpr LeftFormat kF32Fp8 = {braid::cpu::kRowBlock, kFp8Columns,
                                [](int64_t depth) { return 4 * depth; }, false, nullptr};
constexpr LeftFormat kBf16Fp8 = {braid::cpu::kDotRows, kFp8Columns,
                                 [](int64_t depth) { return 2 * depth; }, false,
                                 GatherSteps<32, false>};

constexpr LeftFormat kInt8Steps = {braid::cpu::kDotRows, 64, braid::cpu::Int8RowBytes, true,
                                   GatherSteps<64, true>};

// A part of the columns of all rows at a time, for what is written of it stays in the first-level
// cache.
template <bool kRound>
void PackF32(const PackTask& task) {
  constexpr int64_t kColumns = 256;
  float* out = reinterpret_cast<float*>(task.block);
  for (int64_t begin = task.begin; begin < task.end; begin += kColumns) {
    const int64_t end = std::min(task.end, begin + kColumns);
    for (int64_t r = 0; r < task.count; ++r) {
      const float* x = task.rows[r] - task.begin;
      for (int64_t c = begin; c < end; ++c) {
        out[c * task.count + r] = kRound ? RoundToBf16(x[c]) : x[c];
      }
    }
  }
  std::fill(out + task.end * task.count, out + task.depth_end * task.count, 0.0f);
}

template <Isa kIsa>
const char* NeedsIsa(const Device& device) {
  if (device.isa >= kIsa) return nullptr;
  return kIsa == Isa::kAvx512 ? "needs AVX-512" : "needs AVX2";
}
const char* NeedsAvx512Vnni(const Device& device) {
  return device.avx512_vnni ? nullptr : "needs AVX512-VNNI";
}
const char* NeedsAvx512Vbmi(const Device& device) {
  return device.avx512_bf16 && device.avx512_vbmi ? nullptr : "needs AVX512-BF16 and AVX512-VBMI";
}
const char* NeedsAvxVnni(const Device& device) {
  return device.avx_vnni ? nullptr : "needs AVX-VNNI";
}

using Needs = const char* (*)(const Device&);

constexpr const char* kNotRounded = "activations are not to be rounded";
bool Rounds(const Device& device, bool exact) { return device.compute == Compute::kBF16 && !exact; }

template <Needs kNeeds>
const char* WhyNotBf16(const Device& device, WeightFormat format, bool exact) {
  if (format != WeightFormat::kBF16) return "the weights are not bf16";
  return Rounds(device, exact) ? kNeeds(device) : kNotRounded;
}
template <bool kRound, Needs kNeeds>
const char* WhyNotFp8(const Device& device, WeightFormat format, bool exact) {
  if (format != WeightFormat::kF8) return "the weights are not fp8";
  return kRound && !Rounds(device, exact) ? kNotRounded : kNeeds(device);
}
template <WeightFormat kFormat, Needs kNeeds>
const char* WhyNotQuantised(const Device& device, WeightFormat format, bool) {
  if (format == kFormat) return kNeeds(device);
  return kFormat == WeightFormat::kI8 ? "the weights are not int8" : "the weights are not int4";
}
template <bool kRound, Isa kIsa>
const char* WhyNotFp32(const Device& device, WeightFormat format, bool exact) {
  if (IsQuantised(format)) return "the weights are quantised";
  return kRound && !Rounds(device, exact) ? kNotRounded : NeedsIsa<kIsa>(device);
}

void GemmAvx2(const GemmTask& task) { braid::cpu::Avx2Kernels().gemm(task); }
void GemmAvx512(const GemmTask& task) { braid::cpu::Avx512Kernels().gemm(task); }

constexpr auto kI8 = WeightFormat::kI8, kI4 = WeightFormat::kI4;
constexpr Product kProducts[] = {
    {"amx_bf16", WhyNotBf16<NeedsAmx>, &kBf16Steps, braid::cpu::PackBf16Avx512,
     braid::cpu::Bf16Amx},
    {"avx512_bf16", WhyNotBf16<NeedsAvx512Bf16>, &kBf16Steps, braid::cpu::PackBf16Avx512,
     braid::cpu::Bf16Avx512},
    {"amx_int8", WhyNotQuantised<kI8, NeedsAmx>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int8Amx},
    {"avx512_int8", WhyNotQuantised<kI8, NeedsAvx512Vnni>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int8Avx512},
    {"avxvnni_int8", WhyNotQuantised<kI8, NeedsAvxVnni>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int8AvxVnni},
    {"avx2_int8", WhyNotQuantised<kI8, NeedsIsa<Isa::kAvx2>>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int8Avx2},
    {"avx512_int4", WhyNotQuantised<kI4, NeedsAvx512Vnni>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int4Avx512},
    {"avxvnni_int4", WhyNotQuantised<kI4, NeedsAvxVnni>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int4AvxVnni},
    {"avx2_int4", WhyNotQuantised<kI4, NeedsIsa<Isa::kAvx2>>, &kInt8Steps, braid::cpu::PackInt8Avx2,
     braid::cpu::Int4Avx2},
    {"avx512_bf16_fp8", WhyNotFp8<true, NeedsAvx512Vbmi>, &kBf16Fp8, braid::cpu::PackBf16Avx512,
     braid::cpu::Fp8Bf16Avx512},
    {"avx512_rounded_fp8", WhyNotFp8<true, NeedsIsa<Isa::kAvx512>>, &kF32Fp8, PackF32<true>,
     braid::cpu::Fp8Avx512},
    {"avx512_fp8", WhyNotFp8<false, NeedsIsa<Isa::kAvx512>>, &kF32Fp8, PackF32<false>,
     braid::cpu::Fp8Avx512},
    {"avx2_rounded_fp8", WhyNotFp8<true, NeedsIsa<Isa::kAvx2>>, &kF32Fp8, PackF32<true>,
     braid::cpu::Fp8Avx2},
    {"avx2_fp8", WhyNotFp8<false, NeedsIsa<Isa::kAvx2>>, &kF32Fp8, PackF32<false>,
     braid::cpu::Fp8Avx2},
    {"avx512_rounded", WhyNotFp32<true, Isa::kAvx512>, &kF32Blocks, PackF32<true>, GemmAvx512},
    {"avx512", WhyNotFp32<false, Isa::kAvx512>, &kF32Blocks, PackF32<false>, GemmAvx512},
    {"avx2_rounded", WhyNotFp32<true, Isa::kAvx2>, &kF32Blocks, PackF32<true>, GemmAvx2},
    {"avx2", WhyNotFp32<false, Isa::kAvx2>, &kF32Blocks, PackF32<false>, GemmAvx2},
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

void PackedRows::PackAlone(const float* row, std::byte* to) const {
  PackTask task;
  task.rows[0] = row;
  task.count = 1;
  task.begin = 0;
  task.end = k;
  task.depth_end = depth();
  task.block = to;
  product->pack(task);
}

void PackedRows::GatherBlock(int64_t b, const std::byte* alone, const int32_t* ids) const {
  const int64_t row = b * product->left->block_rows;
  GatherTask task;
  task.count = std::min(rows - row, product->left->block_rows);
  for (int64_t r = 0; r < task.count; ++r) task.rows[r] = alone + ids[row + r] * row_bytes();
  task.depth = depth();
  task.block = data + row * row_bytes();
  product->left->gather(task);
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
