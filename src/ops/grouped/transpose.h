// Turning rows of 4-byte elements into lines of 16 (ops/packed.h).
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/weight_format.h"

namespace braid::ops {

// Four elements of four rows; lines are kPanelRows apart.
inline void Transpose4(const std::byte* const* rows, int64_t c, float* to) {
  __m128 a = _mm_loadu_ps(reinterpret_cast<const float*>(rows[0] + 4 * c));
  __m128 b = _mm_loadu_ps(reinterpret_cast<const float*>(rows[1] + 4 * c));
  __m128 d = _mm_loadu_ps(reinterpret_cast<const float*>(rows[2] + 4 * c));
  __m128 e = _mm_loadu_ps(reinterpret_cast<const float*>(rows[3] + 4 * c));
  _MM_TRANSPOSE4_PS(a, b, d, e);
  _mm_store_ps(to, a);
  _mm_store_ps(to + kPanelRows, b);
  _mm_store_ps(to + 2 * kPanelRows, d);
  _mm_store_ps(to + 3 * kPanelRows, e);
}

}  // namespace braid::ops
