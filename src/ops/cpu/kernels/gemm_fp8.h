// GEMM with fp8 panels: 128 of k at a time, codes of a few panels become bf16 numbers, which
// hold them exactly, in the first-level cache; a kernel for bf16 weights multiplies them, and its
// sums are added to the outputs with a fused multiply-add by the block's scales, ascending. So an
// output's bits do not depend on the rows beside it where those of the kernel for bf16 weights do
// not.
#pragma once

#include "ops/cpu/kernels/gemm.h"

namespace braid::ops::cpu {

// Scales of codes that were widened to their 256th part.
template <class V>
typename V::F Fp8Scale(const float* scales) {
  return V::Mul(V::Load(scales), V::Set1(256.0f));
}

// Widener: how codes become bf16 (WidenE4M3). kInner: a kernel for bf16 weights. kBlockRows: rows
// of a block of its activations, whose elements take kElementBytes.
template <class V, class Widener, void (*kInner)(const GemmTask&), int64_t kBlockRows,
          int64_t kElementBytes>
class Fp8Gemm {
 public:
  static void Run(const GemmTask& t) {
    for (int64_t p = t.panel_begin; p < t.panel_end; p += kPanels) {
      const int64_t left = t.panel_end - p, count = left < kPanels ? left : kPanels;
      for (int64_t k = 0; k < t.k; k += kBlock) Block(t, p, count, k);
    }
  }

 private:
  static constexpr int64_t kBlock = 128, kPanels = 4;
  static constexpr int64_t kScaleBytes = 64, kBlockBytes = kScaleBytes + kBlock * 16;
  static constexpr int64_t kSlabBytes = kBlock * 16 * 2;  // of one panel

  static void Block(const GemmTask& t, int64_t panel, int64_t count, int64_t k) {
    alignas(64) std::byte slab[kPanels * kSlabBytes];
    alignas(64) float sums[kBlockRows * kPanels * 16];
    const std::byte* blocks = t.w + panel * t.panel_bytes + k / kBlock * kBlockBytes;
    for (int64_t i = 0; i < count; ++i) {
      Widen(blocks + i * t.panel_bytes, slab + i * kSlabBytes);
    }
    for (int64_t row = 0; row < t.rows; row += kBlockRows) {
      const int64_t left = t.rows - row, rows = left < kBlockRows ? left : kBlockRows;
      GemmTask inner = {};
      inner.x = t.x + (row * t.k + rows * k) * kElementBytes;
      inner.rows = rows;
      inner.k = kBlock;
      inner.w = slab;
      inner.panel_bytes = kSlabBytes;
      inner.panel_end = count;
      inner.n = count * 16;
      inner.y = sums;
      inner.y_stride = kPanels * 16;
      kInner(inner);
      for (int64_t i = 0; i < count; ++i) {
        Add(t, {.row = row,
                .rows = rows,
                .panel = panel + i,
                .sums = sums + i * 16,
                .scales = reinterpret_cast<const float*>(blocks + i * t.panel_bytes),
                .first = k == 0});
      }
    }
  }

  // Widens the codes of one block to bf16 and prefetches the next block.
  static void Widen(const std::byte* block, std::byte* slab) {
    const std::byte* codes = block + kScaleBytes;
    auto* out = reinterpret_cast<uint16_t*>(slab);
    for (int64_t i = 0; i < kBlock * 16; i += 64) {
      __builtin_prefetch(codes + kAheadBytes + i, 0, 2);
      Widener::WidenE4M3(codes + i, out + i);
    }
  }
  static constexpr int64_t kAheadBytes = 2 * kBlockBytes;

  // Of some rows and one panel: y += scales * sums, or = for the first block.
  struct Found {
    int64_t row, rows, panel;
    const float* sums;    // [rows][kPanels * 16]
    const float* scales;  // [16]
    bool first;
  };
  static void Add(const GemmTask& t, const Found& f) {
    const int64_t columns = t.n - f.panel * 16 < 16 ? t.n - f.panel * 16 : 16;
    for (int64_t c = 0; c < columns; c += V::kLanes) {
      const auto scale = Fp8Scale<V>(f.scales + c);
      const int64_t there = columns - c;
      for (int64_t r = 0; r < f.rows; ++r) {
        float* y = t.y + (f.row + r) * t.y_stride + (f.panel - t.panel_begin) * 16 + c;
        const auto sum = V::Load(f.sums + r * kPanels * 16 + c);
        if (there >= V::kLanes) {
          V::Store(y, V::Fma(sum, scale, f.first ? V::Zero() : V::Load(y)));
        } else {
          V::StoreSome(y, V::Fma(sum, scale, f.first ? V::Zero() : V::LoadSome(y, there)), there);
        }
      }
    }
  }
};

}  // namespace braid::ops::cpu
