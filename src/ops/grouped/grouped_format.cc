// Quantising by the row of a format: each group asks for a scale and, where there is a base, a base
// that reach its extremes; the first of two numbers is the largest that a group of the unit asks
// for, over the most that the second holds.
#include "ops/grouped/grouped_format.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
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

namespace {

bool Holds(const GroupedFormat& to, const GroupedFormat& from) {
  if (to.bits < from.bits || to.block != from.block || to.group > from.group) return false;
  const int most = (1 << from.bits) - 1 - from.centre, least = -from.centre;
  if (most > (1 << to.bits) - 1 - to.centre || least < -to.centre) return false;
  for (int i = 0; i < kNumbers; ++i) {
    const SharedNumber &a = from.numbers[i], &b = to.numbers[i];
    // A base may be zero. Integers of files have six bits where they have no sign.
    const bool zero = i >= 2 && a.type == NumberType::kNone;
    if (!zero && (a.bytes() != b.bytes() || b.columns > a.columns)) return false;
  }
  return true;
}

}  // namespace

std::optional<WeightFormat> HolderOf(WeightFormat a, WeightFormat b) {
  if (a == b) return a;
  const GroupedFormat *of_a = nullptr, *of_b = nullptr;
  for (const GroupedFormat& row : kGroupedFormats) {
    if (row.format == a) of_a = &row;
    if (row.format == b) of_b = &row;
  }
  std::optional<WeightFormat> found;  // the last is the narrowest
  for (const GroupedFormat& row : kGroupedFormats) {
    if (of_a && of_b && Holds(row, *of_a) && Holds(row, *of_b)) found = row.format;
  }
  return found;
}

void WidenRow(const CodedRowView& from, const CodedRowView& to, int64_t k) {
  const GroupedFormat &a = GroupedFormatOf(from.format), &b = GroupedFormatOf(to.format);
  CHECK(Holds(b, a), "{} does not hold {}", NameOf(to.format), NameOf(from.format));
  for (int64_t c = 0; c < k; ++c) {
    to.codes[c] = static_cast<std::byte>(static_cast<int>(from.codes[c]) + b.centre - a.centre);
  }
  const int64_t unit = UnitOf(a);
  const std::byte* in = from.scales;
  std::byte* out = to.scales;
  for (int64_t begin = 0; begin < k; begin += unit) {
    for (int i = 0; i < kNumbers; ++i) {
      const SharedNumber &one = a.numbers[i], &other = b.numbers[i];
      if (other.type == NumberType::kNone) continue;
      const int64_t bytes = other.bytes(), count = unit / other.columns;
      for (int64_t e = 0; e < count; ++e, out += bytes) {
        if (one.type == NumberType::kNone) {
          std::fill_n(out, bytes, std::byte{0});
        } else {
          const std::byte* number = in + e * other.columns / one.columns * bytes;
          std::copy_n(number, bytes, out);
          CHECK(one.type == other.type || static_cast<int>(*number) < 128, "{} of {}",
                static_cast<int>(*number), NameOf(from.format));
        }
      }
      if (one.type != NumberType::kNone) in += unit / one.columns * bytes;
    }
  }
}

}  // namespace braid::ops
