// GEMM kernels, one function per instruction set and weight format. They read activations that are
// cut into steps of 64 bytes: rows in blocks of kDotRows, in fp32 of kFloatRows (the last block
// shorter, R rows), a block being [depth / step][R][64 bytes], where a step is kFloatStep elements
// of fp32, 32 of bf16 or 64 of int8. Of int8 rows there follow, per block, [R] scales, [R] sums of
// the row and [depth / 32][R] sums of groups times -8. Stateless but for the tile registers, which
// a call takes and gives back.
#pragma once

#include "ops/cpu/kernels/table.h"

namespace braid::ops::cpu {

inline constexpr int kDotRows = 16;    // a tile register's
inline constexpr int kFloatRows = 24;  // four tiles of six, for which AVX2 has the registers
inline constexpr int kFloatStep = 16;

// Columns [begin, end) of R rows, to be packed into their block; what lies between `end` and
// `depth_end` becomes zero. begin is a multiple of the step.
struct PackTask {
  const float* rows[kFloatRows];  // rows[r][0] is column `begin`
  int64_t count;                  // R
  int64_t begin, end, depth_end;
  std::byte* block;
};

// Bytes of a row of int8 with what belongs to it; depth is a multiple of 64.
constexpr int64_t Int8RowBytes(int64_t depth) { return depth + (8 + depth / 8 + 63) / 64 * 64; }

// Rounds to bf16, nearest even; denormals become zero, as the kernels below take them.
void PackBf16Avx512(const PackTask& task);

// Quantises whole rows: scale = max |x| / 127, q = x * (127 / max |x|) to the nearest integer, ties
// to even. Below a maximum of 2^-100 all is zero; with a NaN or an infinity the scale is NaN.
void PackInt8Avx2(const PackTask& task);

// w is bf16. Per step of 32 terms the even and the odd ones are added up apart, from zero, in
// ascending order with fused multiply-adds; their sum is added to the output. Denormals are zero.
void Bf16Amx(const GemmTask& task);
// w is bf16, pairs of terms ascending: the second of the pair is added, then the first (VDPBF16PS).
void Bf16Avx512(const GemmTask& task);

// w is fp32 or bf16: fused multiply-adds in ascending order. The same bits on both.
void F32Avx512(const GemmTask& task);
void F32Avx2(const GemmTask& task);

// w is fp8 with a scale per output and 128 terms: the sums of a GEMM of bf16 weights with the
// codes, added up in ascending order with fused multiply-adds by the scales. The first rounds
// activations to bf16 (PackBf16Avx512), the others take fp32.
void Fp8Bf16Avx512(const GemmTask& task);
void Fp8Avx512(const GemmTask& task);
void Fp8Avx2(const GemmTask& task);

// w is int8 with a scale per output: the exact sum, times the output's scale, times the row's. The
// same bits on every instruction set.
void Int8Amx(const GemmTask& task);
void Int8Avx512(const GemmTask& task);
void Int8AvxVnni(const GemmTask& task);
void Int8Avx2(const GemmTask& task);

// w is int4 with a scale per output and 32 terms: exact sums of groups, added up in ascending order
// with fused multiply-adds by their scales, times the row's scale. The same bits everywhere.
void Int4Avx512(const GemmTask& task);
void Int4AvxVnni(const GemmTask& task);
void Int4Avx2(const GemmTask& task);

}  // namespace braid::ops::cpu
