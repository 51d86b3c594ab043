// Product tiles on the dot instructions of vectors: R rows times P panels, accumulators in
// registers, depth from front to back, so an output's sum is the same for every R and P. `D` is one
// instruction set and weight format: how a line of weights meets four bytes of a row.
#pragma once

#include "ops/cpu/kernels/product.h"

namespace braid::cpu {

// One tile: its first row of x at step 0, its first panel, its first output.
struct LineTile {
  const std::byte* x;     // rows 64 bytes apart
  int64_t x_step;         // from one step to the next
  const float* scales;    // of the rows, for int8
  const int32_t* totals;  // sums of the rows
  const int32_t* sums;    // of groups of 32: sums[g * sums_stride + r]
  int64_t sums_stride;
  const std::byte* w;
  int64_t panel_bytes;
  int64_t k;
  float* y;
  int64_t y_stride;
  int64_t cols;  // outputs that exist, counted from the first panel's
};

// Weights ahead of their use, where few rows leave the loop to memory.
inline constexpr int64_t kLinesAheadBytes = 2048;
template <int R, int P>
inline void PrefetchLine(const std::byte* w, int64_t panel_bytes) {
  if constexpr (R <= 4) {
    for (int p = 0; p < P; ++p) {
      _mm_prefetch(reinterpret_cast<const char*>(w + p * panel_bytes + kLinesAheadBytes),
                   _MM_HINT_T0);
    }
  }
}

// Whole rows in one sum (bf16, int8 with a scale per output).
template <class D, int R, int P>
void WholeTile(const LineTile& t) {
  constexpr int kVecs = P * D::kVecs;
  typename D::Sum sums[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) sums[r][c] = D::Start(t, r);
  }
  const std::byte *x = t.x, *w = t.w;
  for (int64_t k = 0; k < t.k; k += D::kStep, x += t.x_step) {
    for (int line = 0; line < 16; ++line, w += 64) {
      PrefetchLine<R, P>(w, t.panel_bytes);
      typename D::Line b[kVecs];
      for (int c = 0; c < kVecs; ++c) {
        b[c] = D::Load(w + c / D::kVecs * t.panel_bytes + c % D::kVecs * (64 / D::kVecs));
      }
      for (int r = 0; r < R; ++r) {
        const typename D::Left a = D::LoadLeft(x + r * 64 + line * 4);
        for (int c = 0; c < kVecs; ++c) sums[r][c] = D::Dot(sums[r][c], a, b[c]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      const int64_t col = c * (16 / D::kVecs);
      const std::byte* scales = t.w + c / D::kVecs * t.panel_bytes + t.k * (16 * 64 / D::kStep);
      D::Store(t.y + r * t.y_stride + col, D::Finish(t, r, sums[r][c], scales, c % D::kVecs),
               t.cols - col);
    }
  }
}

// int4 in groups of 32: a group's exact sum, then its scale, groups ascending. Per 64 of depth a
// panel has a line of 2 x 16 scales in fp16 and 8 lines of weights.
template <class D, int R, int P>
void GroupTile(const LineTile& t) {
  constexpr int kVecs = P * D::kVecs;
  typename D::Result all[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) all[r][c] = D::Zero();
  }
  const std::byte* x = t.x;
  for (int64_t g = 0; g < t.k / 32; ++g) {
    const std::byte* step = t.w + g / 2 * (9 * 64);
    const std::byte* w = step + 64 + g % 2 * 256;
    typename D::Sum sums[R][kVecs];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kVecs; ++c) sums[r][c] = D::StartGroup();
    }
    PrefetchLine<R, P>(step + g % 2 * 64, t.panel_bytes);
    for (int line = 0; line < 4; ++line, w += 64) {
      PrefetchLine<R, P>(w, t.panel_bytes);
      typename D::Line low[kVecs], high[kVecs];
      for (int c = 0; c < kVecs; ++c) {
        D::Split(w + c / D::kVecs * t.panel_bytes + c % D::kVecs * (64 / D::kVecs), low[c],
                 high[c]);
      }
      for (int r = 0; r < R; ++r) {
        const std::byte* at = x + r * 64 + g % 2 * 32 + line * 8;
        const auto a = D::LoadGroupLeft(at), b = D::LoadGroupLeft(at + 4);
        for (int c = 0; c < kVecs; ++c) {
          sums[r][c] = D::DotGroup(D::DotGroup(sums[r][c], a, low[c]), b, high[c]);
        }
      }
    }
    for (int c = 0; c < kVecs; ++c) {
      const auto scale =
          D::LoadScale(step + c / D::kVecs * t.panel_bytes + g % 2 * 32, c % D::kVecs);
      for (int r = 0; r < R; ++r) {
        // Weights are stored as 0 … 15: eight times the row's sum is too much.
        const int32_t excess = 8 * t.sums[g * t.sums_stride + r];
        all[r][c] = D::AddGroup(all[r][c], sums[r][c], excess, scale);
      }
    }
    if (g % 2 == 1) x += t.x_step;
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      const int64_t col = c * (16 / D::kVecs);
      D::Store(t.y + r * t.y_stride + col, D::Scale(all[r][c], t.scales[r]), t.cols - col);
    }
  }
}

// A task in tiles of up to D::kRows rows by D::kPanels panels; one row meets D::kPanelsOne at once,
// each of them a stream of weights.
template <class D>
class DotProduct {
 public:
  static void Run(const GemmTask& t) {
    const int64_t panels = t.rows == 1 ? D::kPanelsOne : D::kPanels;
    for (int64_t p = t.panel_begin; p < t.panel_end;) {
      const int64_t count = t.panel_end - p >= panels ? panels : 1;
      for (int64_t row = 0; row < t.rows;) {
        // Tiles do not cross the blocks of the left operand.
        const int64_t block_end = (row / kDotRows + 1) * kDotRows;
        const int64_t left = (block_end < t.rows ? block_end : t.rows) - row;
        // Equal tiles: one of few rows would wait for weights where its neighbours multiply.
        const int64_t tiles = (left + D::kRows - 1) / D::kRows;
        const int64_t rows = (left + tiles - 1) / tiles;
        Rows(t, row, rows, p, count);
        row += rows;
      }
      p += count;
    }
  }

 private:
  static void Rows(const GemmTask& t, int64_t row, int64_t rows, int64_t panel, int64_t count) {
    const int64_t first = row / kDotRows * kDotRows;
    const int64_t block_rows = t.rows - first < kDotRows ? t.rows - first : kDotRows;
    const std::byte* block = t.x + first * D::RowBytes(t.k);
    const float* scales = reinterpret_cast<const float*>(block + block_rows * t.k);
    const auto* totals = reinterpret_cast<const int32_t*>(scales + block_rows);
    const LineTile tile{.x = block + (row - first) * 64,
                        .x_step = block_rows * 64,
                        .scales = scales + (row - first),
                        .totals = totals + (row - first),
                        .sums = totals + block_rows + (row - first),
                        .sums_stride = block_rows,
                        .w = t.w + panel * t.panel_bytes,
                        .panel_bytes = t.panel_bytes,
                        .k = t.k,
                        .y = t.y + row * t.y_stride + (panel - t.panel_begin) * 16,
                        .y_stride = t.y_stride,
                        .cols = t.n - panel * 16};
    if (count == 1) return ByRows<1>(tile, rows);
    t.rows == 1 ? Tile<1, D::kPanelsOne>(tile) : ByRows<D::kPanels>(tile, rows);
  }

  template <int P>
  static void ByRows(const LineTile& tile, int64_t rows) {
    switch (rows) {
      case 1:
        return Tile<1, P>(tile);
      case 2:
        return Tile<2, P>(tile);
      case 3:
        return Tile<3, P>(tile);
      case 4:
        return Tile<4, P>(tile);
      case 5:
        return Tile<5, P>(tile);
      default:
        return Tile<6, P>(tile);
    }
  }
  template <int R, int P>
  static void Tile(const LineTile& tile) {
    if constexpr (R <= D::kRows) D::template Tile<R, P>(tile);
  }
};

}  // namespace braid::cpu
