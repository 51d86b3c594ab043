// GEMM on tile registers: 16 rows by 64 bytes of depth times 16 outputs per instruction. A row
// of a tile does not touch the others, so an output has the same bits in every shape below. Tiles
// are configured at the start of a call and released at its end.
#include "ops/cpu/kernels/gemm.h"

#include <immintrin.h>

namespace braid::ops::cpu {
namespace {

constexpr int64_t kTileBytes = 1024;  // of weights: 16 outputs by one step
// Steps of one pass over the depth for many rows: a pair of panels stays in the first level's cache
// while the rows of a slice pass by.
constexpr int64_t kPassSteps = 16;
// Of a slice's activations: they stay in the second level's cache while the panels pass by, with
// the pair at work, the next one and the sums. Half of that cache may be another thread's.
constexpr int64_t kActivationBytes = 3 << 18;
constexpr int64_t kSliceRows = 192;
constexpr int64_t kAheadBytes = 4096;  // of the prefetch of weights for few rows

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler takes tile instructions for ones that do not touch memory.
inline void Fence() { asm volatile("" ::: "memory"); }

// Outputs in tiles 0 to 3. Wide: two row blocks (tiles 4, 5) by two panels (6, 7); narrow: one row
// block (4) by four panels (5, 6, 7 in turn).
void Configure(bool wide, int rows0, int rows1) {
  TileConfig config;
  const int rows[8] = {
      rows0, rows0, wide ? rows1 : rows0, wide ? rows1 : rows0, rows0, wide ? rows1 : 16, 16, 16};
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = static_cast<uint8_t>(rows[i]);
  }
  Fence();
  _tile_loadconfig(&config);
}

// A tile of outputs: `rows` rows of `cols` columns from `y`, of panel `panel` and of the row block
// that begins at `row`. Less than 16 columns go through a tile of the caller's.
struct Cell {
  int64_t row, rows, panel, cols;
  float* y;
  float* tile;
  int64_t stride;  // of `tile`
};

// Per step of 32 terms the even and the odd ones are added up apart, from zero, in ascending order
// with fused multiply-adds; their sum is added to the output. Denormals are zero.
struct Bf16Dot {
  static constexpr int64_t kStep = 32;
  static int64_t RowBytes(int64_t depth) { return 2 * depth; }
  static void Wide() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  template <int kPanel>
  static void Narrow() {
    if constexpr (kPanel == 0) _tile_dpbf16ps(0, 4, 5);
    if constexpr (kPanel == 1) _tile_dpbf16ps(1, 4, 6);
    if constexpr (kPanel == 2) _tile_dpbf16ps(2, 4, 7);
    if constexpr (kPanel == 3) _tile_dpbf16ps(3, 4, 5);
  }
  static void Finish(const GemmTask&, const Cell&) {}
};

struct Int8Dot {
  static constexpr int64_t kStep = 64;
  static int64_t RowBytes(int64_t depth) { return Int8RowBytes(depth); }
  static void Wide() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  template <int kPanel>
  static void Narrow() {
    if constexpr (kPanel == 0) _tile_dpbssd(0, 4, 5);
    if constexpr (kPanel == 1) _tile_dpbssd(1, 4, 6);
    if constexpr (kPanel == 2) _tile_dpbssd(2, 4, 7);
    if constexpr (kPanel == 3) _tile_dpbssd(3, 4, 5);
  }
  // The sums become numbers, in place.
  static void Finish(const GemmTask& t, const Cell& cell) {
    const std::byte* block = t.x + cell.row * RowBytes(t.k) + cell.rows * t.k;
    const float* scales = reinterpret_cast<const float*>(block);
    const __m512 scale = _mm512_loadu_ps(t.w + cell.panel * t.panel_bytes + t.k * 16);
    for (int64_t r = 0; r < cell.rows; ++r) {
      float* at = cell.tile + r * cell.stride;
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(at));
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_mul_ps(sum, scale), _mm512_set1_ps(scales[r])));
    }
  }
};

template <class Dot>
class TileGemm {
 public:
  static void Run(const GemmTask& t) {
    if (t.rows == 0) return;  // the CPU refuses tiles without rows
    if (t.rows <= kDotRows) {
      Configure(false, static_cast<int>(t.rows), 0);
      NarrowBlock(t, 0);
    } else {
      ManyRows(t);
    }
    Fence();
    _tile_release();
    if (t.past_caches) _mm_sfence();  // such stores do not wait for a lock's release by themselves
  }

 private:
  static const std::byte* Activations(const GemmTask& t, int64_t row, int64_t step) {
    return t.x + row * Dot::RowBytes(t.k) + step * BlockRows(t, row) * 64;
  }
  static const std::byte* Weights(const GemmTask& t, int64_t panel, int64_t step) {
    return t.w + panel * t.panel_bytes + step * kTileBytes;
  }
  static int64_t BlockRows(const GemmTask& t, int64_t row) {
    return t.rows - row < kDotRows ? t.rows - row : kDotRows;
  }

  static void ManyRows(const GemmTask& t) {
    const int64_t fit = kActivationBytes / Dot::RowBytes(t.k) / 32 * 32;
    const int64_t slice = fit < 32 ? 32 : fit < kSliceRows ? fit : kSliceRows;
    for (int64_t first = 0; first < t.rows; first += slice) {
      const int64_t last = first + slice < t.rows ? first + slice : t.rows;
      const int64_t pairs = first + (last - first) / 32 * 32;
      if (pairs > first) {
        Configure(true, 16, 16);
        WideBlocks(t, first, pairs);
      }
      const int rest = static_cast<int>(last - pairs);
      if (rest > kDotRows) {
        Configure(true, 16, rest - kDotRows);
        WideBlocks(t, pairs, last);
      } else if (rest > 0) {
        Configure(false, rest, 0);
        NarrowBlock(t, pairs);
      }
    }
  }

  static Cell CellOf(const GemmTask& t, int64_t row, int64_t panel, float* tile) {
    Cell cell{.row = row, .rows = BlockRows(t, row), .panel = panel};
    // A panel that is not there takes part for the sake of the others.
    cell.cols = panel < t.panel_end ? t.n - panel * 16 : 0;
    if (cell.cols > 16) cell.cols = 16;
    cell.y = t.y + row * t.y_stride + (panel - t.panel_begin) * 16;
    const bool direct = cell.cols == 16 && !t.past_caches;
    cell.tile = direct ? cell.y : tile;
    cell.stride = direct ? t.y_stride : 16;
    return cell;
  }
  static void Zero() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  // Sums between passes: four whole tiles.
  static void LoadSums(const float* sums) {
    Fence();
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, sums + 256, 64);
    _tile_loadd(2, sums + 512, 64);
    _tile_loadd(3, sums + 768, 64);
  }
  static void StoreSums(float* sums) {
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    _tile_stored(2, sums + 512, 64);
    _tile_stored(3, sums + 768, 64);
    Fence();
  }
  static void StoreOutputs(const GemmTask& t, const Cell* cells) {
    _tile_stored(0, cells[0].tile, cells[0].stride * 4);
    _tile_stored(1, cells[1].tile, cells[1].stride * 4);
    _tile_stored(2, cells[2].tile, cells[2].stride * 4);
    _tile_stored(3, cells[3].tile, cells[3].stride * 4);
    Fence();
    for (int i = 0; i < 4; ++i) {
      const Cell& cell = cells[i];
      if (cell.cols > 0) Dot::Finish(t, cell);
      if (cell.tile == cell.y) continue;
      if (t.past_caches && cell.cols == 16) {
        for (int64_t r = 0; r < cell.rows; ++r) {
          _mm512_stream_ps(cell.y + r * t.y_stride, _mm512_load_ps(cell.tile + r * 16));
        }
        continue;
      }
      for (int64_t r = 0; r < cell.rows; ++r) {
        for (int64_t c = 0; c < cell.cols; ++c) cell.y[r * t.y_stride + c] = cell.tile[r * 16 + c];
      }
    }
  }

  // Brings the pair of panels after this one into the second level's cache, some lines with each
  // step.
  struct Ahead {
    const std::byte *at, *end;
    int64_t bytes;  // with each step

    void Fetch() {
      for (const std::byte* stop = at + bytes; at < stop && at < end; at += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
      }
    }
  };

  // Steps [s, s_end) of the two row blocks at `row` and of two panels, added to tiles 0 to 3.
  static void Steps(const GemmTask& t, int64_t row, const int64_t (&p)[2], int64_t s, int64_t s_end,
                    Ahead& ahead) {
    const std::byte *a0 = Activations(t, row, s), *a1 = Activations(t, row + 16, s);
    const int64_t a1_bytes = BlockRows(t, row + 16) * 64;
    const std::byte *b0 = Weights(t, p[0], s), *b1 = Weights(t, p[1], s);
    for (int64_t i = s; i < s_end; ++i) {
      ahead.Fetch();
      _tile_loadd(4, a0, 64);
      _tile_loadd(6, b0, 64);
      _tile_loadd(7, b1, 64);
      _tile_loadd(5, a1, 64);
      Dot::Wide();
      a0 += kTileBytes;
      a1 += a1_bytes;
      b0 += kTileBytes;
      b1 += kTileBytes;
    }
  }

  // Rows [begin, end) two blocks at a time, at most kSliceRows; all panels.
  static void WideBlocks(const GemmTask& t, int64_t begin, int64_t end) {
    alignas(64) float tiles[4][16 * 16];
    alignas(64) float sums[kSliceRows * 32];
    const int64_t steps = t.k / Dot::kStep, blocks = (end - begin + 31) / 32;
    const int64_t ahead_bytes = (32 + blocks - 1) / blocks * 64;  // a step's share of the next pair
    for (int64_t p = t.panel_begin; p < t.panel_end; p += 2) {
      const int64_t pair[2] = {p, p + 1 < t.panel_end ? p + 1 : p};
      Ahead ahead = {Weights(t, p + 2, 0), Weights(t, p + 4 < t.panel_end ? p + 4 : t.panel_end, 0),
                     ahead_bytes};
      for (int64_t s = 0; s < steps; s += kPassSteps) {
        const int64_t s_end = s + kPassSteps < steps ? s + kPassSteps : steps;
        for (int64_t row = begin; row < end; row += 32) {
          float* sum = sums + (row - begin) * 32;
          s == 0 ? Zero() : LoadSums(sum);
          Steps(t, row, pair, s, s_end, ahead);
          if (s_end < steps) {
            StoreSums(sum);
            continue;
          }
          const Cell cells[4] = {CellOf(t, row, p, tiles[0]), CellOf(t, row, p + 1, tiles[1]),
                                 CellOf(t, row + 16, p, tiles[2]),
                                 CellOf(t, row + 16, p + 1, tiles[3])};
          StoreOutputs(t, cells);
        }
      }
    }
  }

  // One tile of weights ahead of its use.
  static void Prefetch(const std::byte* w) {
    for (int line = 0; line < 16; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAheadBytes + line * 64), _MM_HINT_T0);
    }
  }

  // The row block at `row`, four panels at a time: as many streams of weights.
  static void NarrowBlock(const GemmTask& t, int64_t row) {
    alignas(64) float tiles[4][16 * 16];
    const int64_t a_bytes = BlockRows(t, row) * 64;
    for (int64_t p = t.panel_begin; p < t.panel_end; p += 4) {
      Cell cells[4];
      const std::byte* b[4];
      for (int64_t i = 0; i < 4; ++i) {
        cells[i] = CellOf(t, row, p + i, tiles[i]);
        b[i] = Weights(t, p + i < t.panel_end ? p + i : p, 0);
      }
      Zero();
      const std::byte* a = Activations(t, row, 0);
      for (int64_t i = 0; i < t.k / Dot::kStep; ++i) {
        for (const std::byte* w : b) Prefetch(w);
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b[0], 64);
        Dot::template Narrow<0>();
        _tile_loadd(6, b[1], 64);
        Dot::template Narrow<1>();
        _tile_loadd(7, b[2], 64);
        Dot::template Narrow<2>();
        _tile_loadd(5, b[3], 64);
        Dot::template Narrow<3>();
        a += a_bytes;
        for (const std::byte*& w : b) w += kTileBytes;
      }
      StoreOutputs(t, cells);
    }
  }
};

}  // namespace

GemmKernelList AmxGemm() {
  static constexpr GemmKernel kKernels[] = {
      {WeightFormat::kBF16, CpuNeed::kAmx, &kBf16Rows, true, PackBf16Avx512,
       TileGemm<Bf16Dot>::Run},
      {WeightFormat::kI8, CpuNeed::kAmx, &kInt8Rows, false, PackInt8Avx2, TileGemm<Int8Dot>::Run},
  };
  return {kKernels, sizeof(kKernels) / sizeof(GemmKernel)};
}

}  // namespace braid::ops::cpu
