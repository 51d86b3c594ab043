// GEMM with fp8 panels on VDPBF16PS, codes looked up by VPERMI2B. Up to eight rows use
// widened codes straight from registers; more rows go through kernels/gemm_fp8.h. The bits are the
// same.
#include <immintrin.h>

#include "ops/cpu/kernels/gemm_fp8.h"
#include "ops/cpu/kernels/vec_avx512.h"

namespace braid::ops::cpu {
namespace {

// The bf16 number of the 256th part of a code without sign.
constexpr uint16_t Bf16Of(int code) {
  const int exponent = code >> 3, mantissa = code & 7;
  if (exponent > 0) return static_cast<uint16_t>((exponent + 127 - 15) << 7 | mantissa << 4);
  const int shift = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
  if (mantissa == 0) return 0;
  return static_cast<uint16_t>((127 - 17 + shift) << 7 | ((mantissa << (7 - shift)) & 0x7f));
}

struct Bytes {
  alignas(64) uint8_t of[128];
};
constexpr Bytes BytesOfBf16(int shift) {
  Bytes bytes = {};
  for (int code = 0; code < 128; ++code) {
    bytes.of[code] = static_cast<uint8_t>(Bf16Of(code) >> shift);
  }
  return bytes;
}
constexpr Bytes kLow = BytesOfBf16(0), kHigh = BytesOfBf16(8);

// See VecAvx512::WidenE4M3.
struct Lookup {
  static void Widen(const std::byte* line, __m512i& first, __m512i& second) {
    const __m512i codes = _mm512_loadu_si512(line);
    const __m512i low = Entries(kLow, codes), magnitude = Entries(kHigh, codes);
    // magnitude | (codes & sign)
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8);
    first = _mm512_unpacklo_epi8(low, high);
    second = _mm512_unpackhi_epi8(low, high);
  }
  static void WidenE4M3(const std::byte* line, uint16_t* out) {
    __m512i first, second;
    Widen(line, first, second);
    _mm512_storeu_si512(out, first);
    _mm512_storeu_si512(out + 32, second);
  }

 private:
  // The instruction looks at seven bits of a code.
  static __m512i Entries(const Bytes& bytes, __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(bytes.of), codes,
                                    _mm512_load_si512(bytes.of + 64));
  }
};

class Fp8Few {
 public:
  static constexpr int kRows = 8;

  static void Run(const GemmTask& t) { ByRows<kRows>(t); }

 private:
  static constexpr int64_t kBlock = 128, kScaleBytes = 64, kBlockBytes = kScaleBytes + kBlock * 16;
  static constexpr int64_t kAheadBytes = 4096;

  template <int R>
  static void ByRows(const GemmTask& t) {
    if constexpr (R > 1) {
      if (t.rows < R) return ByRows<R - 1>(t);
    }
    constexpr int P = R <= 2 ? 4 : R <= 4 ? 2 : 1;
    int64_t p = t.panel_begin;
    for (; p + P <= t.panel_end; p += P) Tile<R, P>(t, p);
    for (; p < t.panel_end; ++p) Tile<R, 1>(t, p);
  }

  // R rows, P panels.
  template <int R, int P>
  static void Tile(const GemmTask& t, int64_t panel) {
    __m512 totals[R][P];
    for (auto& row : totals) {
      for (__m512& total : row) total = _mm512_setzero_ps();
    }
    const std::byte* block = t.w + panel * t.panel_bytes;
    const std::byte* x = t.x;
    for (int64_t k = 0; k < t.k; k += kBlock, block += kBlockBytes) {
      __m512 sums[R][P];
      for (auto& row : sums) {
        for (__m512& sum : row) sum = _mm512_setzero_ps();
      }
      const std::byte* line = block + kScaleBytes;
      for (int step = 0; step < 4; ++step, x += R * 64) {
        for (int i = 0; i < 8; ++i, line += 64) {
          __m512i w[2][P];
          for (int c = 0; c < P; ++c) {
            __builtin_prefetch(line + c * t.panel_bytes + kAheadBytes, 0, 2);
            Lookup::Widen(line + c * t.panel_bytes, w[0][c], w[1][c]);
          }
          for (int pair = 0; pair < 2; ++pair) {
            for (int r = 0; r < R; ++r) {
              const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(
                  *reinterpret_cast<const int32_t*>(x + r * 64 + i * 8 + pair * 4)));
              for (int c = 0; c < P; ++c) {
                sums[r][c] =
                    _mm512_dpbf16_ps(sums[r][c], a, reinterpret_cast<__m512bh>(w[pair][c]));
              }
            }
          }
        }
      }
      for (int c = 0; c < P; ++c) {
        const auto* scales = reinterpret_cast<const float*>(block + c * t.panel_bytes);
        const __m512 scale = Fp8Scale<VecAvx512>(scales);
        for (int r = 0; r < R; ++r) {
          totals[r][c] = _mm512_fmadd_ps(sums[r][c], scale, totals[r][c]);
        }
      }
    }
    for (int c = 0; c < P; ++c) {
      const int64_t column = (panel + c) * 16, left = t.n - column;
      const auto there = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
      for (int r = 0; r < R; ++r) {
        float* y = t.y + r * t.y_stride + column - t.panel_begin * 16;
        _mm512_mask_storeu_ps(y, there, totals[r][c]);
      }
    }
  }
};

void Fp8Bf16Avx512(const GemmTask& task) {
  if (task.rows <= Fp8Few::kRows) return Fp8Few::Run(task);
  Fp8Gemm<VecAvx512, Lookup, Bf16Avx512, kDotRows, 2>::Run(task);
}

}  // namespace

GemmKernelList Avx512Fp8Gemm() {
  static constexpr GemmKernel kKernels[] = {
      {WeightFormat::kF8, CpuNeed::kAvx512Vbmi, &kBf16RowsOf128, true, PackBf16Avx512,
       Fp8Bf16Avx512},
  };
  return {kKernels, sizeof(kKernels) / sizeof(GemmKernel)};
}

}  // namespace braid::ops::cpu
