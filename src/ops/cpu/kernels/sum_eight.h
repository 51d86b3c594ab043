// The sums of eight vectors of eight lanes at once, each with the bits of VecAvx2::Sum.
#pragma once

#include <immintrin.h>

namespace braid::ops::cpu {

// `V`: files with different flags share no instance.
template <class V>
class SumEight {
 public:
  static __m256 Of(const __m256* x) {
    const __m256 a = Quarters(Halves(x[0], x[4]), Halves(x[1], x[5]));
    const __m256 b = Quarters(Halves(x[2], x[6]), Halves(x[3], x[7]));
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
  }

 private:
  // Lane i of a plus lane i + 4, then the same of b.
  static __m256 Halves(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  // In each half lanes 0 and 1 of a plus lanes 2 and 3, then the same of b.
  static __m256 Quarters(__m256 a, __m256 b) {
    const __m256d u = _mm256_castps_pd(a), v = _mm256_castps_pd(b);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_shuffle_pd(u, v, 0)),
                         _mm256_castpd_ps(_mm256_shuffle_pd(u, v, 15)));
  }
};

}  // namespace braid::ops::cpu
