// Matrix product tiles: R rows times P panels of 16 outputs, accumulators in registers, k one after
// the other. An output's chain of additions is the same for every R, P and cut of k: acc = fma(x,
// w, acc).
#pragma once

#include "ops/cpu/kernels/table.h"

namespace braid::cpu {

template <class V>
struct Gemm {
  using F = typename V::F;
  static constexpr int kPanelVecs = 16 / V::kLanes;
  // k steps of one pass: R rows of x and a slab of a panel stay in the first-level cache.
  static constexpr int64_t kDepth = 256;
  // From here on widening a slab of weights costs less than doing it again for every row block. On
  // 16 lanes a row block meets four panels at once, but one panel of a slab.
  static constexpr int64_t kManyRows = (V::kLanes == 16 ? 40 : 4) * kRowBlock;
  // Rows whose slab of x stays in the second-level cache.
  static constexpr int64_t kRowsAtOnce = 40 * kRowBlock;

  static const float* Left(const GemmTask& t) { return reinterpret_cast<const float*>(t.x); }

  template <bool kBf16>
  static constexpr int64_t StepBytes() {
    return kBf16 ? 32 : 64;  // bytes of a panel per k
  }

  // One pass over k_count values of k. `fresh`: accumulators start at zero instead of y.
  template <int R, int P, bool kBf16>
  static void Tile(const float* x, const std::byte* w, int64_t panel_bytes, int64_t k_count,
                   float* y, int64_t y_stride, bool fresh) {
    F acc[R][P * kPanelVecs];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < P * kPanelVecs; ++c) {
        acc[r][c] = fresh ? V::Zero() : V::Load(y + r * y_stride + c * V::kLanes);
      }
    }
    if constexpr (kBf16) {
      for (int64_t k = 0; k < k_count; k += 2) {
        const float* x0 = x + k * R;
        for (int half = 0; half < 2; ++half) {
          F b[P * kPanelVecs];
          for (int c = 0; c < P * kPanelVecs; ++c) {
            const std::byte* at =
                w + (c / kPanelVecs) * panel_bytes + k * 32 + (c % kPanelVecs) * (4 * V::kLanes);
            b[c] = half == 0 ? V::PairFirst(at) : V::PairSecond(at);
          }
          for (int r = 0; r < R; ++r) {
            const F a = V::Set1(x0[half * R + r]);
            for (int c = 0; c < P * kPanelVecs; ++c) acc[r][c] = V::Fma(a, b[c], acc[r][c]);
          }
        }
      }
    } else {
      for (int64_t k = 0; k < k_count; ++k) {
        F b[P * kPanelVecs];
        for (int c = 0; c < P * kPanelVecs; ++c) {
          b[c] =
              V::Load(reinterpret_cast<const float*>(w + (c / kPanelVecs) * panel_bytes + k * 64) +
                      (c % kPanelVecs) * V::kLanes);
        }
        for (int r = 0; r < R; ++r) {
          const F a = V::Set1(x[k * R + r]);
          for (int c = 0; c < P * kPanelVecs; ++c) acc[r][c] = V::Fma(a, b[c], acc[r][c]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < P * kPanelVecs; ++c) {
        V::Store(y + r * y_stride + c * V::kLanes, acc[r][c]);
      }
    }
  }

  // The last panel when n is not a multiple of 16: through a local tile.
  template <int R, bool kBf16>
  static void Partial(const float* x, const std::byte* w, int64_t k_count, float* y,
                      int64_t y_stride, int64_t cols, bool fresh) {
    float tile[R * 16];
    for (int r = 0; r < R; ++r) {
      for (int64_t c = 0; c < 16; ++c) {
        tile[r * 16 + c] = fresh || c >= cols ? 0.0f : y[r * y_stride + c];
      }
    }
    Tile<R, 1, kBf16>(x, w, 0, k_count, tile, 16, fresh);
    for (int r = 0; r < R; ++r) {
      for (int64_t c = 0; c < cols; ++c) y[r * y_stride + c] = tile[r * 16 + c];
    }
  }

  // All panels of the task for one block of R rows and one range of k.
  template <int R, bool kBf16>
  static void Block(const GemmTask& t, int64_t row, int64_t k_begin, int64_t k_count) {
    // As many panels at once as the registers allow (32 of 16 lanes or 16 of 8): enough independent
    // chains for few rows, and fewer loads than products for several.
    constexpr int P = R == 1 || V::kLanes == 16 ? 4 : R == 2 ? 2 : 1;
    const float* x = Left(t) + row * t.k + k_begin * R;
    float* y = t.y + row * t.y_stride;
    const bool fresh = k_begin == 0;
    int64_t p = t.panel_begin;
    auto weights = [&](int64_t panel) {
      return t.w + panel * t.panel_bytes + k_begin * StepBytes<kBf16>();
    };
    for (; p + P <= t.panel_end && (p + P) * 16 <= t.n; p += P) {
      Tile<R, P, kBf16>(x, weights(p), t.panel_bytes, k_count, y + (p - t.panel_begin) * 16,
                        t.y_stride, fresh);
    }
    for (; p < t.panel_end; ++p) {
      float* at = y + (p - t.panel_begin) * 16;
      if ((p + 1) * 16 <= t.n) {
        Tile<R, 1, kBf16>(x, weights(p), t.panel_bytes, k_count, at, t.y_stride, fresh);
      } else {
        Partial<R, kBf16>(x, weights(p), k_count, at, t.y_stride, t.n - p * 16, fresh);
      }
    }
  }

  template <bool kBf16>
  static void Rows(const GemmTask& t, int64_t row, int64_t k_begin, int64_t k_count) {
    switch (t.rows - row) {
      case 1:
        return Block<1, kBf16>(t, row, k_begin, k_count);
      case 2:
        return Block<2, kBf16>(t, row, k_begin, k_count);
      case 3:
        return Block<3, kBf16>(t, row, k_begin, k_count);
      case 4:
        return Block<4, kBf16>(t, row, k_begin, k_count);
      case 5:
        return Block<5, kBf16>(t, row, k_begin, k_count);
      default:
        return Block<6, kBf16>(t, row, k_begin, k_count);
    }
  }

  // A slab of one bf16 panel as fp32: [k_count][16].
  static void Expand(const std::byte* w, int64_t k_count, float* slab) {
    for (int64_t k = 0; k < k_count; k += 2) {
      for (int c = 0; c < kPanelVecs; ++c) {
        const std::byte* at = w + k * 32 + c * (4 * V::kLanes);
        V::Store(slab + k * 16 + c * V::kLanes, V::PairFirst(at));
        V::Store(slab + (k + 1) * 16 + c * V::kLanes, V::PairSecond(at));
      }
    }
  }

  // Many rows: each slab is widened once and then meets all rows of the range.
  template <int R>
  static void SlabRows(const GemmTask& t, int64_t row, int64_t p, int64_t k, int64_t k_count,
                       const float* slab) {
    const float* x = Left(t) + row * t.k + k * R;
    float* y = t.y + row * t.y_stride + (p - t.panel_begin) * 16;
    const std::byte* w = reinterpret_cast<const std::byte*>(slab);
    if ((p + 1) * 16 <= t.n) {
      Tile<R, 1, false>(x, w, 0, k_count, y, t.y_stride, k == 0);
    } else {
      Partial<R, false>(x, w, k_count, y, t.y_stride, t.n - p * 16, k == 0);
    }
  }

  static void SlabBlock(const GemmTask& t, int64_t row, int64_t p, int64_t k, int64_t k_count,
                        const float* slab) {
    switch (t.rows - row) {
      case 1:
        return SlabRows<1>(t, row, p, k, k_count, slab);
      case 2:
        return SlabRows<2>(t, row, p, k, k_count, slab);
      case 3:
        return SlabRows<3>(t, row, p, k, k_count, slab);
      case 4:
        return SlabRows<4>(t, row, p, k, k_count, slab);
      case 5:
        return SlabRows<5>(t, row, p, k, k_count, slab);
      default:
        return SlabRows<6>(t, row, p, k, k_count, slab);
    }
  }

  static void RunManyRows(const GemmTask& t) {
    alignas(64) float slab[kDepth * 16];
    for (int64_t first = 0; first < t.rows; first += kRowsAtOnce) {
      const int64_t last = first + kRowsAtOnce < t.rows ? first + kRowsAtOnce : t.rows;
      for (int64_t k = 0; k < t.k; k += kDepth) {
        const int64_t count = t.k - k < kDepth ? t.k - k : kDepth;
        for (int64_t p = t.panel_begin; p < t.panel_end; ++p) {
          Expand(t.w + p * t.panel_bytes + k * 32, count, slab);
          for (int64_t row = first; row < last; row += kRowBlock) {
            SlabBlock(t, row, p, k, count, slab);
          }
        }
      }
    }
  }

  static void Run(const GemmTask& t) {
    if (t.bf16 && t.rows >= kManyRows) return RunManyRows(t);
    // Few rows: weights stream once from memory, so a panel is read to its end.
    const int64_t depth = t.rows <= kRowBlock ? t.k : kDepth;
    for (int64_t k = 0; k < t.k; k += depth) {
      const int64_t count = t.k - k < depth ? t.k - k : depth;
      for (int64_t row = 0; row < t.rows; row += kRowBlock) {
        t.bf16 ? Rows<true>(t, row, k, count) : Rows<false>(t, row, k, count);
      }
    }
  }
};

}  // namespace braid::cpu
