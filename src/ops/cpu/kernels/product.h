// Products on the dot instructions for narrow operands, one function per instruction set and weight
// format. They read left operands that are cut into steps of 64 bytes: rows in blocks of kDotRows
// (the last block shorter, R rows), a block being [depth / step][R][64 bytes], where a step is 32
// elements of bf16 or 64 of int8. Stateless but for the tile registers, which a call takes and
// gives back.
#pragma once

#include "ops/cpu/kernels/table.h"

namespace braid::cpu {

inline constexpr int kDotRows = 16;

// Columns [begin, end) of R <= kDotRows rows, to be packed into their block; what lies between
// `end` and `depth_end` becomes zero. begin is a multiple of the step.
struct PackTask {
  const float* rows[kDotRows];  // rows[r][0] is column `begin`
  int64_t count;                // R
  int64_t begin, end, depth_end;
  std::byte* block;
};

// Rounds to bf16, nearest even; denormals become zero, as the products below take them.
void PackBf16Avx512(const PackTask& task);

// w is bf16. Per step of 32 terms the even and the odd ones are added up apart, from zero, in
// ascending order with fused multiply-adds; their sum is added to the output. Denormals are zero.
void Bf16Amx(const GemmTask& task);
// w is bf16. Terms are added two by two, ascending, as VDPBF16PS does: the odd one, then the even.
void Bf16Avx512(const GemmTask& task);

}  // namespace braid::cpu
