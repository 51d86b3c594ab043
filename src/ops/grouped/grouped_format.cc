// Quantising by the row of a format: each group asks for a scale and, where there is a base, a base
// that reach its extremes; the first of two numbers is the largest that a group of the unit asks
// for, over the most that the second holds.
#include "ops/grouped/grouped_format.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/grouped/transpose.h"

namespace braid::ops {
namespace {

constexpr int64_t kGroupsMax = 16;  // of a unit
constexpr int64_t kUnitMax = 256;

int64_t UnitOf(const GroupedFormat& format) {
  int64_t unit = 0;
  for (const SharedNumber& number : format.numbers) unit = std::max(unit, number.columns);
  return unit;
}

float LargestOf(NumberType type) { return type == NumberType::kI8 ? 127.0f : 255.0f; }

// Writes numbers i and i + 1 that come close to what the groups want, and gives their products.
std::byte* WriteNumbers(const GroupedFormat& format, int i, int64_t unit, float* wanted,
                        std::byte* out) {
  const SharedNumber first = format.numbers[i], second = format.numbers[i + 1];
  const int64_t share = first.columns / format.group;  // groups
  for (int64_t g = 0; g < unit / format.group; g += share, out += 2) {
    float most = 0;
    for (int64_t j = g; j < g + share; ++j) {
      most = std::isfinite(wanted[j]) ? std::max(most, wanted[j]) : NAN;
      if (std::isnan(most)) break;
    }
    const bool pair = second.type != NumberType::kNone;
    const float limit = pair ? LargestOf(second.type) : 1.0f;
    const uint16_t half = F16OfFloat(std::isnan(most) ? NAN : std::min(most / limit, 65504.0f));
    std::memcpy(out, &half, sizeof half);
    const float one = FloatOfF16(half);
    for (int64_t j = g; j < g + share; ++j) wanted[j] = pair && one > 0 ? wanted[j] / one : one;
  }
  if (second.type == NumberType::kNone) return out;
  const std::byte* halves = out - unit / first.columns * 2;
  for (int64_t g = 0; g < unit / format.group; ++g) {
    const float most = LargestOf(second.type);
    // A first number that is zero or not finite was given back as it is.
    const float times = wanted[g] > 0 ? std::nearbyint(std::min(wanted[g], most)) : 0.0f;
    *out++ = static_cast<std::byte>(static_cast<uint8_t>(times));
    uint16_t half;
    std::memcpy(&half, halves + g / share * 2, sizeof half);
    wanted[g] = FloatOfF16(half) * times;
  }
  return out;
}

}  // namespace

void QuantiseGrouped(const GroupedFormat& format, const float* x, int64_t count, std::byte* codes,
                     std::byte* scales) {
  const int64_t unit = UnitOf(format);
  const int least = -format.centre, most = (1 << format.bits) - 1 - format.centre;
  float padded[kUnitMax] = {}, scale[kGroupsMax], base[kGroupsMax] = {};
  std::copy_n(x, count, padded);
  for (int64_t g = 0; g < unit / format.group; ++g) {
    const float* of = padded + g * format.group;
    float low = 0, high = 0;
    bool finite = true;
    for (int64_t c = 0; c < format.group; ++c) {
      low = std::min(low, of[c]);
      high = std::max(high, of[c]);
      finite = finite && std::isfinite(of[c]);
    }
    base[g] = !finite ? NAN : format.has_base() ? -low : 0.0f;
    const float reach = format.has_base() ? (high - low) / static_cast<float>(most)
                                          : std::max(high, -low) / static_cast<float>(most);
    scale[g] = finite ? reach : NAN;
  }
  std::byte* bases = WriteNumbers(format, 0, unit, scale, scales);
  if (format.has_base()) WriteNumbers(format, 2, unit, base, bases);
  for (int64_t c = 0; c < count; ++c) {
    const int64_t g = c / format.group;
    const float factor = scale[g] > 0 ? 1.0f / scale[g] : 0.0f;
    const float of = factor > 0 ? (x[c] + base[g]) * factor : 0.0f;
    const float code = std::nearbyint(
        std::clamp(of, static_cast<float>(least), static_cast<float>(most)));
    codes[c] = static_cast<std::byte>(static_cast<int>(code) + format.centre);
  }
}

void PackGrouped(const GroupedFormat& format, const std::byte* const codes[kPanelRows],
                 int64_t words, std::byte* lines) {
  constexpr int64_t kWords = 8;  // of 32 columns
  const GroupedLines at = {format.bits};
  alignas(64) uint32_t word[kWords][kPanelRows];
  for (int64_t w = 0; w < words; w += kWords, lines += 64 * format.bits) {
    for (int64_t r = 0; r < kPanelRows; r += 4) {
      for (int64_t i = 0; i < kWords; i += 4) {
        Transpose4(codes + r, w + i, reinterpret_cast<float*>(word[i]) + r);
      }
    }
    for (int plane : {4, 2, 1}) {
      if (!at.Has(plane)) continue;
      const int per_line = 8 / plane, shift = at.Shift(plane);
      const uint32_t mask = ((1u << plane) - 1) * 0x01010101u;
      for (int line = 0; line < plane; ++line) {
        alignas(64) uint32_t packed[kPanelRows] = {};
        for (int i = 0; i < per_line; ++i) {
          const uint32_t* from = word[line * per_line + i];
          for (int64_t r = 0; r < kPanelRows; ++r) {
            packed[r] |= (from[r] >> shift & mask) << (i * plane);
          }
        }
        auto* to = reinterpret_cast<__m128i*>(lines + (at.Line(plane) + line) * 64);
        for (int64_t i = 0; i < 4; ++i) {
          _mm_stream_si128(to + i, reinterpret_cast<const __m128i*>(packed)[i]);
        }
      }
    }
  }
}

float GroupedCodeAt(const GroupedFormat& format, const std::byte* lines, int64_t lane,
                    int64_t col) {
  const GroupedLines at = {format.bits};
  const auto word = static_cast<int>(col % 32 / 4);
  int code = 0;
  for (int plane : {4, 2, 1}) {
    if (!at.Has(plane)) continue;
    const int per_line = 8 / plane;
    const int64_t line = col / 32 * format.bits + at.Line(plane) + word / per_line;
    const auto bits = static_cast<int>(lines[line * 64 + lane * 4 + col % 4]);
    code |= (bits >> (word % per_line * plane) & ((1 << plane) - 1)) << at.Shift(plane);
  }
  return static_cast<float>(code - format.centre);
}

}  // namespace braid::ops
