// Peak loops of the AMX tile products: two left and two right operands, four sums. The caller's
// tile configuration is put back; see kernels/peak.h.
#include "ops/cpu/kernels/peak.h"

#include <immintrin.h>

namespace braid::ops::cpu {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Tiles 0 to 3 are operands of `word`s, 4 to 7 sums.
template <class Products>
float Run(int64_t rounds, uint32_t word, const Products& products) {
  TileConfig before;
  _tile_storeconfig(&before);
  const TileConfig config;
  _tile_loadconfig(&config);
  alignas(64) uint32_t operand[256];
  for (uint32_t& w : operand) w = word;
  _tile_loadd(0, operand, 64);
  _tile_loadd(1, operand, 64);
  _tile_loadd(2, operand, 64);
  _tile_loadd(3, operand, 64);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t n = 0; n < rounds; ++n) products();
  alignas(64) float sums[4][256];
  _tile_stored(4, sums[0], 64);
  _tile_stored(5, sums[1], 64);
  _tile_stored(6, sums[2], 64);
  _tile_stored(7, sums[3], 64);
  _tile_loadconfig(&before);
  return sums[0][0] + sums[1][17] + sums[2][34] + sums[3][51];
}

float Bf16(int64_t rounds, float start) {
  // Pairs of 2^-9 and what `start` changes of it: sums stay far from the limits.
  const uint32_t word = 0x3b003b00u + static_cast<uint32_t>(start);
  return Run(rounds, word, [] {
    _tile_dpbf16ps(4, 0, 2);
    _tile_dpbf16ps(5, 0, 3);
    _tile_dpbf16ps(6, 1, 2);
    _tile_dpbf16ps(7, 1, 3);
  });
}

float Int8(int64_t rounds, float start) {
  const uint32_t word = 0x01000100u + static_cast<uint32_t>(start);
  return Run(rounds, word, [] {
    _tile_dpbssd(4, 0, 2);
    _tile_dpbssd(5, 0, 3);
    _tile_dpbssd(6, 1, 2);
    _tile_dpbssd(7, 1, 3);
  });
}

}  // namespace

PeakLoop PeakTileBf16() { return {4.0 * 2 * 16 * 16 * 32, Bf16}; }
PeakLoop PeakTileInt8() { return {4.0 * 2 * 16 * 16 * 64, Int8}; }

}  // namespace braid::ops::cpu
