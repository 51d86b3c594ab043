// Tile registers of a CPU that has none, for the files of src/ops/cpu/amx compiled a second time:
// the intrinsics become functions on a thread's own tiles. What the instructions would refuse (no
// configuration, shapes that do not go together) ends the program. Semantics: Intel's manual, as in
// ops/gemm_test.cc. Needs AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tile_emulation {

struct Config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

struct State {
  Config config = {};
  alignas(64) uint8_t tiles[8][16][64] = {};
};

inline State& Mine() {
  static thread_local State state;
  return state;
}

inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tile instruction refused: %s\n", what);
  std::abort();
}

inline int RowsOf(int tile) {
  const State& s = Mine();
  Require(s.config.palette == 1, "no configuration");
  Require(s.config.rows[tile] >= 1 && s.config.rows[tile] <= 16, "rows of the tile");
  Require(s.config.row_bytes[tile] == 64, "this emulation has rows of 64 bytes only");
  return s.config.rows[tile];
}

inline void LoadConfig(const void* from) {
  State& s = Mine();
  std::memcpy(&s.config, from, sizeof(Config));
  Require(s.config.palette <= 1, "palette");
  std::memset(s.tiles, 0, sizeof(s.tiles));
}
inline void StoreConfig(void* to) { std::memcpy(to, &Mine().config, sizeof(Config)); }
inline void Release() { Mine() = State{}; }

inline void Zero(int tile) {
  RowsOf(tile);
  std::memset(Mine().tiles[tile], 0, sizeof(Mine().tiles[tile]));
}
// Rows past the configured ones become zero.
inline void Load(int tile, const void* from, int64_t stride) {
  const int rows = RowsOf(tile);
  Zero(tile);
  for (int r = 0; r < rows; ++r) {
    std::memcpy(Mine().tiles[tile][r], static_cast<const char*>(from) + r * stride, 64);
  }
}
inline void Store(int tile, void* to, int64_t stride) {
  const int rows = RowsOf(tile);
  for (int r = 0; r < rows; ++r) {
    std::memcpy(static_cast<char*>(to) + r * stride, Mine().tiles[tile][r], 64);
  }
}

// Rows of the output, after the shapes have been compared.
inline int ProductRows(int c, int a, int b) {
  Require(c != a && c != b && a != b, "one tile twice");
  Require(RowsOf(c) == RowsOf(a), "rows of output and left operand");
  Require(RowsOf(b) == 16, "rows of the right operand");
  return RowsOf(c);
}

// Of 16 pairs the first and the second terms apart, each from zero with fused multiply-adds, then
// their sum onto the output; denormal numbers are zero, going in and coming out.
inline void DotBf16(int c, int a, int b) {
  constexpr unsigned kFlush = 0x8040;
  State& s = Mine();
  const int rows = ProductRows(c, a, b);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlush);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (int m = 0; m < rows; ++m) {
    __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
    for (int k = 0; k < 16; ++k) {
      int32_t pair;
      std::memcpy(&pair, &s.tiles[a][m][4 * k], 4);
      const __m512i x = _mm512_set1_epi32(pair), w = _mm512_load_si512(s.tiles[b][k]);
      first = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                              _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), first);
      second = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, high)),
                               _mm512_castsi512_ps(_mm512_and_si512(w, high)), second);
    }
    float* out = reinterpret_cast<float*>(s.tiles[c][m]);
    _mm512_store_ps(out, _mm512_add_ps(_mm512_load_ps(out), _mm512_add_ps(first, second)));
  }
  _mm_setcsr(before);
}

// Sums of four products of signed bytes.
inline void DotInt8(int c, int a, int b) {
  State& s = Mine();
  const int rows = ProductRows(c, a, b);
  for (int m = 0; m < rows; ++m) {
    __m512i sum = _mm512_load_si512(s.tiles[c][m]);
    for (int k = 0; k < 16; ++k) {
      const __m512i w = _mm512_load_si512(s.tiles[b][k]);
      for (int i = 0; i < 4; ++i) {
        const auto x = static_cast<int8_t>(s.tiles[a][m][4 * k + i]);
        const auto up = static_cast<unsigned>(24 - 8 * i);
        const __m512i byte = _mm512_srai_epi32(_mm512_slli_epi32(w, up), 24);
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(byte, _mm512_set1_epi32(x)));
      }
    }
    _mm512_store_si512(s.tiles[c][m], sum);
  }
}

}  // namespace tile_emulation

#undef _tile_loadconfig
#undef _tile_storeconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(from) tile_emulation::LoadConfig(from)
#define _tile_storeconfig(to) tile_emulation::StoreConfig(to)
#define _tile_release() tile_emulation::Release()
#define _tile_zero(tile) tile_emulation::Zero(tile)
#define _tile_loadd(tile, from, stride) tile_emulation::Load(tile, from, stride)
#define _tile_stored(tile, to, stride) tile_emulation::Store(tile, to, stride)
#define _tile_dpbf16ps(c, a, b) tile_emulation::DotBf16(c, a, b)
#define _tile_dpbssd(c, a, b) tile_emulation::DotInt8(c, a, b)
