// GEMM tiles on vectors: R rows times P panels, accumulators in registers, depth from front to
// back, so an output's sum is the same for every R and P. `D` is one instruction set and weight
// format: how the terms of a line of weights meet four bytes each of a row.
#pragma once

#include <immintrin.h>

#include "ops/cpu/kernels/gemm.h"

namespace braid::ops::cpu {

// One tile: its first row of x at step 0, its first panel, its first output.
struct LineTile {
  const std::byte* x;     // rows 64 bytes apart
  int64_t x_step;         // from one step to the next
  const float* scales;    // of the rows, for int8
  const int32_t* totals;  // sums of the rows
  const int32_t* sums;    // of groups of 32, times -8: sums[g * sums_stride + r]
  int64_t sums_stride;
  const std::byte* w;
  int64_t panel_bytes;
  int64_t k;
  float* y;
  int64_t y_stride;
  int64_t cols;  // outputs that exist, counted from the first panel's
  // Prefetched into the second-level cache: the rows of the next tile, and lines of P panels. If
  // only one tile reads its panels (`single`), it prefetches them some steps ahead, then the panels
  // that follow. If several tiles read the same panels, each prefetches its share of the panels
  // that follow, `next_bytes` for each line it reads.
  const std::byte* next_x;
  const std::byte* next;
  int64_t next_bytes;
  bool single;
};

// One line of each of P panels.
template <int P>
inline void PrefetchLines(const std::byte* at, int64_t stride) {
  for (int p = 0; p < P; ++p) {
    _mm_prefetch(reinterpret_cast<const char*>(at + p * stride), _MM_HINT_T1);
  }
}

// Distance in lines between reading and prefetching: the fewer panels, the longer.
template <int P>
inline constexpr int kAheadLines = P >= 4 ? 16 : 32;

// The address kSteps after a step of a panel; past its end, of the panels that follow.
template <int kSteps>
inline const std::byte* Ahead(const LineTile& t, int64_t step, int64_t steps, int64_t step_lines) {
  const int64_t at = step + kSteps;
  return at < steps ? t.w + at * step_lines * 64 : t.next + (at - steps) * step_lines * 64;
}

// Whole rows in one sum (fp32, bf16, int8 with a scale per output).
template <class D, int R, int P>
void WholeTile(const LineTile& t) {
  constexpr int kVecs = P * D::kVecs, kLines = 16 / D::kTerms;  // of a panel and step
  typename D::Sum sums[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) sums[r][c] = D::Start(t, r);
  }
  const std::byte *x = t.x, *w = t.w, *next = t.next, *next_x = t.next_x;
  for (int64_t k = 0; k < t.k; k += D::kStep, x += t.x_step, next_x += t.x_step) {
    PrefetchLines<R>(next_x, 64);
    if (t.single) next = Ahead<kAheadLines<P> / kLines>(t, k / D::kStep, t.k / D::kStep, kLines);
    for (int line = 0; line < kLines; ++line, w += 64, next += t.next_bytes) {
      PrefetchLines<P>(next, t.panel_bytes);
      for (int term = 0; term < D::kTerms; ++term) {
        typename D::Line b[kVecs];
        for (int c = 0; c < kVecs; ++c) {
          b[c] = D::Load(w + c / D::kVecs * t.panel_bytes + c % D::kVecs * (64 / D::kVecs), term);
        }
        for (int r = 0; r < R; ++r) {
          const typename D::Activation a =
              D::LoadActivation(x + r * 64 + (line * D::kTerms + term) * 4);
          for (int c = 0; c < kVecs; ++c) sums[r][c] = D::Dot(sums[r][c], a, b[c]);
        }
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

// Integers in groups of 32: a group's exact sum, then its scale, groups ascending. Per 64 of depth
// a panel has a line of 2 x 16 scales in fp16 and two groups of D::kGroupLines lines of weights; a
// line is D::kGroupTerms vectors, of four columns each.
template <class D, int R, int P>
void GroupTile(const LineTile& t) {
  constexpr int kVecs = P * D::kVecs, kTerms = D::kGroupTerms;
  constexpr int kGroupLines = D::kGroupLines, kStepLines = 1 + 2 * kGroupLines;
  static_assert(kGroupLines * kTerms * 4 == 32);
  typename D::Result all[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) all[r][c] = D::Zero();
  }
  const std::byte *x = t.x, *step = t.w, *next = t.next, *next_x = t.next_x;
  const int32_t* row_sums = t.sums;
  for (int64_t k = 0; k < t.k;
       k += 64, x += t.x_step, next_x += t.x_step, step += kStepLines * 64) {
    PrefetchLines<R>(next_x, 64);
    if (t.single) next = Ahead<kAheadLines<P> / (2 * kGroupLines)>(t, k / 64, t.k / 64, kStepLines);
    PrefetchLines<P>(next, t.panel_bytes);
    next += t.next_bytes;
    for (int g = 0; g < 2; ++g, row_sums += t.sums_stride) {
      // Weights are multiplied as unsigned numbers: the start takes the excess off.
      typename D::Sum sums[R][kVecs];
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < kVecs; ++c) sums[r][c] = D::StartGroup(row_sums + r);
      }
#pragma GCC unroll 4
      for (int line = 0; line < kGroupLines; ++line, next += t.next_bytes) {
        PrefetchLines<P>(next, t.panel_bytes);
        const std::byte* w = step + (1 + kGroupLines * g + line) * 64;
        typename D::Line terms[kTerms][kVecs];
        for (int c = 0; c < kVecs; ++c) {
          typename D::Line split[kTerms];
          D::Split(w + c / D::kVecs * t.panel_bytes + c % D::kVecs * (64 / D::kVecs), split);
          for (int term = 0; term < kTerms; ++term) terms[term][c] = split[term];
        }
        for (int r = 0; r < R; ++r) {
          const std::byte* at = x + r * 64 + g * 32 + line * kTerms * 4;
          typename D::GroupActivation a[kTerms];
          for (int term = 0; term < kTerms; ++term) a[term] = D::LoadGroupActivation(at + 4 * term);
          for (int c = 0; c < kVecs; ++c) {
            for (int term = 0; term < kTerms; ++term) {
              sums[r][c] = D::DotGroup(sums[r][c], a[term], terms[term][c]);
            }
          }
        }
      }
      for (int c = 0; c < kVecs; ++c) {
        const auto scale = D::LoadScale(step + c / D::kVecs * t.panel_bytes + g * 32, c % D::kVecs);
        for (int r = 0; r < R; ++r) all[r][c] = D::AddGroup(all[r][c], sums[r][c], scale);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      const int64_t col = c * (16 / D::kVecs);
      D::Store(t.y + r * t.y_stride + col, D::Scale(all[r][c], t.scales[r]), t.cols - col);
    }
  }
}

// A task in tiles of up to D::kRows rows by D::kPanels panels; where one tile has all rows, up to
// D::kFewRows, D::kPanelsFew at once, each of them a stream of weights.
template <class D>
class DotGemm {
 public:
  static void Run(const GemmTask& t) {
    int64_t tiles = 0;
    for (int64_t row = 0; row < t.rows; row = BlockEnd(t, row)) tiles += TilesOf(t, row);
    const int64_t panels = t.rows <= D::kFewRows ? D::kPanelsFew : D::kPanels;
    for (int64_t p = t.panel_begin; p < t.panel_end;) {
      const int64_t count = t.panel_end - p >= panels ? panels : 1;
      const std::byte* next = p + count < t.panel_end ? Panel(t, p + count) : t.next;
      int64_t tile = 0;
      for (int64_t row = 0; row < t.rows;) {
        // Equal tiles: one of few rows would wait for weights where its neighbours multiply.
        const int64_t left = BlockEnd(t, row) - row, parts = TilesOf(t, row);
        const int64_t rows = (left + parts - 1) / parts;
        LineTile at = TileAt(t, row, p);
        at.single = tiles == 1;
        // Lines of its own, where nothing is left to fetch.
        at.next = next ? next + tile * t.panel_bytes / tiles : at.w;
        at.next_bytes = tiles < 64 ? 64 / tiles : 1;
        row += rows;
        at.next_x = TileAt(t, row < t.rows ? row : 0, p).x;
        Rows(at, rows, t.rows, count);
        ++tile;
      }
      p += count;
    }
  }

 private:
  static const std::byte* Panel(const GemmTask& t, int64_t panel) {
    return t.w + panel * t.panel_bytes;
  }
  // Tiles do not cross the blocks of the activations.
  static int64_t BlockEnd(const GemmTask& t, int64_t row) {
    const int64_t end = (row / D::kBlockRows + 1) * D::kBlockRows;
    return end < t.rows ? end : t.rows;
  }
  // Of the rows from `row` on in its block.
  static int64_t TilesOf(const GemmTask& t, int64_t row) {
    return (BlockEnd(t, row) - row + D::kRows - 1) / D::kRows;
  }

  static LineTile TileAt(const GemmTask& t, int64_t row, int64_t panel) {
    const int64_t first = row / D::kBlockRows * D::kBlockRows;
    const int64_t block_rows = BlockEnd(t, row) - first;
    const std::byte* block = t.x + first * D::RowBytes(t.k);
    const float* scales = reinterpret_cast<const float*>(block + block_rows * t.k);
    const auto* totals = reinterpret_cast<const int32_t*>(scales + block_rows);
    return {.x = block + (row - first) * 64,
            .x_step = block_rows * 64,
            .scales = scales + (row - first),
            .totals = totals + (row - first),
            .sums = totals + block_rows + (row - first),
            .sums_stride = block_rows,
            .w = Panel(t, panel),
            .panel_bytes = t.panel_bytes,
            .k = t.k,
            .y = t.y + row * t.y_stride + (panel - t.panel_begin) * 16,
            .y_stride = t.y_stride,
            .cols = t.n - panel * 16,
            .next_x = nullptr,
            .next = nullptr,
            .next_bytes = 0,
            .single = false};
  }

  static void Rows(const LineTile& tile, int64_t rows, int64_t all_rows, int64_t panels) {
    if (panels == 1) return ByRows<D::kRows, 1>(tile, rows);
    all_rows <= D::kFewRows ? ByRows<D::kFewRows, D::kPanelsFew>(tile, rows)
                            : ByRows<D::kRows, D::kPanels>(tile, rows);
  }

  // The form for 1 … kMost rows.
  template <int kMost, int P>
  static void ByRows(const LineTile& tile, int64_t rows) {
    if constexpr (kMost > 1) {
      if (rows < kMost) return ByRows<kMost - 1, P>(tile, rows);
    }
    D::template Tile<kMost, P>(tile);
  }
};

}  // namespace braid::ops::cpu
