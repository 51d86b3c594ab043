// The list of kernels, and packing of activations where no kernel has vector code for it.
#include "ops/cpu/gemm/gemm.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/dispatch.h"
#include "ops/weight_codes.h"

namespace braid::ops::cpu {
namespace {

constexpr ActivationLayout kF32Steps = {kFloatRows, kFloatStep, 4, false};
constexpr ActivationLayout kBf16Steps = {kDotRows, 32, 2, false};
constexpr ActivationLayout kInt8Steps = {kDotRows, 64, 1, true};
// For fp8 weights, whose depth is padded further.
constexpr ActivationLayout kF32Fp8 = {kFloatRows, kFp8Columns, 4, false};
constexpr ActivationLayout kBf16Fp8 = {kDotRows, kFp8Columns, 2, false};

template <bool kRound>
void PackF32(const PackTask& task) {
  float* out = reinterpret_cast<float*>(task.block) + task.begin * task.count;
  for (int64_t begin = task.begin; begin < task.depth_end; begin += kFloatStep) {
    const int64_t columns = std::clamp<int64_t>(task.end - begin, 0, kFloatStep);
    for (int64_t r = 0; r < task.count; ++r, out += kFloatStep) {
      const float* x = task.rows[r] + (begin - task.begin);
      for (int64_t c = 0; c < columns; ++c) out[c] = kRound ? RoundToBf16(x[c]) : x[c];
      std::fill(out + columns, out + kFloatStep, 0.0f);
    }
  }
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

constexpr auto kI8 = WeightFormat::kI8, kI4 = WeightFormat::kI4;
constexpr GemmKernel kKernels[] = {
    {"amx_bf16", WhyNotBf16<NeedsAmx>, &kBf16Steps, PackBf16Avx512, Bf16Amx},
    {"avx512_bf16", WhyNotBf16<NeedsAvx512Bf16>, &kBf16Steps, PackBf16Avx512, Bf16Avx512},
    {"amx_int8", WhyNotQuantised<kI8, NeedsAmx>, &kInt8Steps, PackInt8Avx2, Int8Amx},
    {"avx512_int8", WhyNotQuantised<kI8, NeedsAvx512Vnni>, &kInt8Steps, PackInt8Avx2, Int8Avx512},
    {"avxvnni_int8", WhyNotQuantised<kI8, NeedsAvxVnni>, &kInt8Steps, PackInt8Avx2, Int8AvxVnni},
    {"avx2_int8", WhyNotQuantised<kI8, NeedsIsa<Isa::kAvx2>>, &kInt8Steps, PackInt8Avx2, Int8Avx2},
    {"avx512_int4", WhyNotQuantised<kI4, NeedsAvx512Vnni>, &kInt8Steps, PackInt8Avx2, Int4Avx512},
    {"avxvnni_int4", WhyNotQuantised<kI4, NeedsAvxVnni>, &kInt8Steps, PackInt8Avx2, Int4AvxVnni},
    {"avx2_int4", WhyNotQuantised<kI4, NeedsIsa<Isa::kAvx2>>, &kInt8Steps, PackInt8Avx2, Int4Avx2},
    {"avx512_bf16_fp8", WhyNotFp8<true, NeedsAvx512Vbmi>, &kBf16Fp8, PackBf16Avx512, Fp8Bf16Avx512},
    {"avx512_rounded_fp8", WhyNotFp8<true, NeedsIsa<Isa::kAvx512>>, &kF32Fp8, PackF32<true>,
     Fp8Avx512},
    {"avx512_fp8", WhyNotFp8<false, NeedsIsa<Isa::kAvx512>>, &kF32Fp8, PackF32<false>, Fp8Avx512},
    {"avx2_rounded_fp8", WhyNotFp8<true, NeedsIsa<Isa::kAvx2>>, &kF32Fp8, PackF32<true>, Fp8Avx2},
    {"avx2_fp8", WhyNotFp8<false, NeedsIsa<Isa::kAvx2>>, &kF32Fp8, PackF32<false>, Fp8Avx2},
    {"avx512_rounded", WhyNotFp32<true, Isa::kAvx512>, &kF32Steps, PackF32<true>, F32Avx512},
    {"avx512", WhyNotFp32<false, Isa::kAvx512>, &kF32Steps, PackF32<false>, F32Avx512},
    {"avx2_rounded", WhyNotFp32<true, Isa::kAvx2>, &kF32Steps, PackF32<true>, F32Avx2},
    {"avx2", WhyNotFp32<false, Isa::kAvx2>, &kF32Steps, PackF32<false>, F32Avx2},
};

}  // namespace

std::span<const GemmKernel, kGemmKernelCount> GemmKernels() { return kKernels; }

const GemmKernel& GemmKernelFor(const Device& device, WeightFormat format, bool exact) {
  for (const GemmKernel& kernel : kKernels) {
    if (!kernel.why_not(device, format, exact)) return kernel;
  }
  CHECK(false, "no GEMM kernel for this device");
}

void PackedActivations::Pack(int64_t row, int64_t count, int64_t col, const Matrix& x,
                             const int32_t* ids) const {
  const int64_t first = row / kernel->layout->block_rows * kernel->layout->block_rows;
  CHECK(row == first && count == std::min(rows - first, kernel->layout->block_rows));
  PackTask task;
  for (int64_t r = 0; r < count; ++r) task.rows[r] = x.row(ids ? ids[r] : r);
  task.count = count;
  task.begin = col;
  task.end = col + x.cols;
  task.depth_end = task.end == k ? depth() : task.end;
  task.block = data + row * row_bytes();
  kernel->pack(task);
}

void PackedActivations::PackBlock(int64_t b, const Matrix& x, const int32_t* ids) const {
  const int64_t row = b * kernel->layout->block_rows;
  const int64_t count = std::min(rows - row, kernel->layout->block_rows);
  const Matrix from = ids ? x : Matrix{x.row(row), count, x.cols, x.stride};
  Pack(row, count, 0, from, ids ? ids + row : nullptr);
}

void PackedActivations::PackAlone(const float* row, std::byte* to) const {
  PackTask task;
  task.rows[0] = row;
  task.count = 1;
  task.begin = 0;
  task.end = k;
  task.depth_end = depth();
  task.block = to;
  kernel->pack(task);
}

// One step of each row in turn; of integers the words that follow them, of which a row alone has as
// many.
void PackedActivations::GatherBlock(int64_t b, const std::byte* alone, const int32_t* ids) const {
  const ActivationLayout& layout = *kernel->layout;
  const int64_t row = b * layout.block_rows, count = std::min(rows - row, layout.block_rows);
  const std::byte* from[kFloatRows];
  for (int64_t r = 0; r < count; ++r) from[r] = alone + ids[row + r] * row_bytes();
  std::byte* out = data + row * row_bytes();
  const int64_t bytes = depth() * layout.element_bytes;
  for (int64_t at = 0; at < bytes; at += 64) {
    for (int64_t r = 0; r < count; ++r, out += 64) std::memcpy(out, from[r] + at, 64);
  }
  const int64_t end = layout.integers ? bytes + 4 * (2 + depth() / 32) : bytes;
  for (int64_t at = bytes; at < end; at += 4) {
    for (int64_t r = 0; r < count; ++r, out += 4) std::memcpy(out, from[r] + at, 4);
  }
}

GemmTask TaskOf(const PackedActivations& x, const PackedMatrix& w, int64_t matrix, int64_t row,
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
