// GEMM kernels: one row of data for each weight format and instruction set, in the file that is
// compiled for that instruction set. ops/cpu/gemm/gemm.h chooses among them.
//
// Kernels read activations that are cut into steps of 64 bytes: rows in blocks of
// ActivationLayout::block_rows (the last block shorter, R rows), a block being
// [depth / step][R][64 bytes], where a step is kFloatStep elements of fp32, 32 of bf16 or 64 of
// int8. Of int8 rows there follow, per block, [R] scales, [R] sums of the row and, times -8, the
// sums of groups of 32, [depth / 32][R], and of 16, [depth / 16][R].
#pragma once

#include "ops/cpu/kernels/table.h"
#include "ops/cpu/kernels/weight_format.h"

namespace braid::ops::cpu {

inline constexpr int kDotRows = 16;    // a tile register's
inline constexpr int kFloatRows = 24;  // four tiles of six, for which AVX2 has the registers
inline constexpr int kFloatStep = 16;

// How activations lie for a kernel. Depth is padded to a multiple with zeros.
struct ActivationLayout {
  int64_t block_rows;
  int64_t depth_multiple;
  int64_t element_bytes;
  bool integers;  // a row is packed at once, and its scale and sums follow
};
inline constexpr ActivationLayout kF32Rows = {kFloatRows, kFloatStep, 4, false};
inline constexpr ActivationLayout kBf16Rows = {kDotRows, 32, 2, false};
inline constexpr ActivationLayout kInt8Rows = {kDotRows, 64, 1, true};
// For formats whose depth is padded further.
inline constexpr ActivationLayout kInt8RowsOf128 = {kDotRows, 128, 1, true};
inline constexpr ActivationLayout kInt8RowsOf256 = {kDotRows, 256, 1, true};
inline constexpr ActivationLayout kF32RowsOf128 = {kFloatRows, 128, 4, false};
inline constexpr ActivationLayout kBf16RowsOf128 = {kDotRows, 128, 2, false};

// Columns [begin, end) of R rows, to be packed into their block; the columns from `end` to
// `depth_end` become zero. begin is a multiple of the step.
struct PackTask {
  const float* rows[kFloatRows];  // rows[r][0] is column `begin`
  int64_t count;                  // R
  int64_t begin, end, depth_end;
  std::byte* block;
  // Of whole rows that become integers: column c is rows[r][order[c]]. Null: rows[r][c].
  const uint16_t* order = nullptr;
};

// y[rows, 16 * panels] = x w^T for panels [panel_begin, panel_end).
struct GemmTask {
  const std::byte* x;  // in the kernel's layout
  int64_t rows;
  int64_t k;           // padded as the activations are
  const std::byte* w;  // panel 0
  int64_t panel_bytes;
  int64_t panel_begin, panel_end;
  int64_t n;  // outputs in all; columns at and past n are not stored
  float* y;   // column 0 of panel `panel_begin`
  int64_t y_stride;
  bool past_caches = false;  // y begins on a line, as its rows do, and is not read again soon
  const std::byte* next = nullptr;  // panels that are read after these; fetched ahead
};

// CPU features that a kernel needs (ops/cpu/gemm/gemm.cc has their names).
enum class CpuNeed : uint8_t {
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAvx512Bf16,
  kAvx512Vnni,
  kAvx512Vbmi,  // and BF16
  kAmx
};

// What a kernel computes is a function of format and layout, of `rounds` and, for float
// activations, of the instruction set; the reference op and the comments at the kernels say it.
// Kernels hold no state but the tile registers, which a call takes and gives back.
struct GemmKernel {
  WeightFormat format;
  CpuNeed needs;
  const ActivationLayout* layout;
  bool rounds;  // activations to bf16: only where the device computes in bf16
  void (*pack)(const PackTask&);
  void (*run)(const GemmTask&);
};

// The kernels of one file.
struct GemmKernelList {
  const GemmKernel* kernels;
  int64_t count;
};
GemmKernelList AmxGemm();
GemmKernelList Avx512DotGemm();
GemmKernelList Avx512Fp8Gemm();
GemmKernelList Avx512GroupedGemm();
GemmKernelList Avx512FloatGemm();
GemmKernelList AvxVnniGemm();
GemmKernelList AvxVnniGroupedGemm();
GemmKernelList Avx2Gemm();
GemmKernelList Avx2GroupedGemm();
GemmKernelList Avx2FloatGemm();

// Copies rows, or rounds them to bf16.
void PackF32(const PackTask& task);
void PackF32Rounded(const PackTask& task);
// Rounds to bf16, nearest even; denormals become zero, as the dot instructions take them.
void PackBf16Avx512(const PackTask& task);
// Quantises whole rows: scale = max |x| / 127, q = x * (127 / max |x|) to the nearest integer, ties
// to even. Below a maximum of 2^-100 all is zero; with a NaN or an infinity the scale is NaN.
void PackInt8Avx2(const PackTask& task);

// The kernel for bf16 weights on VDPBF16PS, which that for fp8 uses.
void Bf16Avx512(const GemmTask& task);

// Bytes of a row of int8 with what belongs to it; depth is a multiple of 64.
constexpr int64_t Int8RowBytes(int64_t depth) {
  return depth + (8 + depth / 8 + depth / 4 + 63) / 64 * 64;
}

}  // namespace braid::ops::cpu
