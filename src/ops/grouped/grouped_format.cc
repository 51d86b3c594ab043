// Quantising by the row of a format: each group asks for a scale and, where there is a base, a base
// that reach its extremes; the first of two numbers is the largest that a group of the unit asks
// for, over the most that the second holds.
#include "ops/grouped/grouped_format.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
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

float LargestOf(NumberType type, int most) {
  if (type == NumberType::kF8) return 448.0f;
  if (most > 0) return static_cast<float>(most);
  return type == NumberType::kI8 ? 127.0f : 255.0f;
}

// Writes the number nearest to x, which is not negative, of those up to `limit` where the type is
// one of bytes; of powers of two the next above it. What is not finite becomes NaN where the type
// has it.
void EncodeNumber(NumberType type, float limit, float x, std::byte* out) {
  const bool finite = std::isfinite(x);
  if (type == NumberType::kF32) {
    const float value = finite ? x : NAN;
    std::memcpy(out, &value, sizeof value);
  } else if (type == NumberType::kF16 || type == NumberType::kF16By8) {
    const float whole = type == NumberType::kF16 ? x : 8 * x;
    const uint16_t half = F16OfFloat(finite ? std::min(whole, 65504.0f) : NAN);
    std::memcpy(out, &half, sizeof half);
  } else if (type == NumberType::kE8M0) {
    int exponent = 0;
    const float part = finite ? std::frexp(x, &exponent) : 0.0f;  // x = part * 2^exponent
    const int up = exponent - (part == 0.5f ? 1 : 0) + 128;
    *out = static_cast<std::byte>(!finite ? 255 : x > 0 ? std::clamp(up, 0, 254) : 0);
  } else if (type == NumberType::kF8) {
    *out = std::byte{E4M3OfFloat(x > 0 ? std::min(x, limit) : 0.0f)};
  } else {
    const float integer = x > 0 ? std::nearbyint(std::min(x, limit)) : 0.0f;
    *out = static_cast<std::byte>(static_cast<uint8_t>(integer));
  }
}

// Writes numbers i and i + 1 that come close to what the groups want, and gives what they make. A
// first number that is the scale again lies at `scales`.
struct NumberPair {
  int first = 0;  // the index of the first
  int most = 0;   // of integers
};
std::byte* WriteNumbers(const GroupedFormat& format, NumberPair numbers, int64_t unit,
                        float* wanted, const std::byte* scales, std::byte* out) {
  const int i = numbers.first, at = StoredNumber(format.numbers, i);
  const SharedNumber first = format.numbers[at], second = format.numbers[i + 1];
  const float limit = LargestOf(second.type, numbers.most);
  const bool pair = second.type != NumberType::kNone, divides = format.divides && i == 0;
  const int64_t share = first.columns / format.group, groups = unit / format.group;
  const std::byte* firsts = at == i ? out : scales;
  for (int64_t g = 0; at == i && g < groups; g += share, out += first.bytes()) {
    float most = 0;
    for (int64_t j = g; j < g + share; ++j) {
      most = std::isfinite(wanted[j]) ? std::max(most, wanted[j]) : NAN;
      if (std::isnan(most)) break;
    }
    const float over = pair ? limit : 1.0f;
    const float least = most > 0 || std::isnan(most) ? most : 1.0f;  // a divisor is not zero
    EncodeNumber(first.type, LargestOf(first.type, numbers.most),
                 divides ? over / least : most / over, out);
  }
  const int64_t step = pair ? second.columns / format.group : 1;
  for (int64_t g = 0; g < groups; g += step, out += second.bytes()) {
    const float one = NumberOf(firsts + g / share * first.bytes(), first.type);
    float made = one;
    if (pair) {
      EncodeNumber(second.type, limit,
                   divides   ? wanted[g] * one
                   : one > 0 ? wanted[g] / one
                             : 0.0f,
                   out);
      made = ScaleOf(divides, one, NumberOf(out, second.type));
    }
    std::fill_n(wanted + g, step, made);
  }
  return out;
}

struct Range {
  float low = 0, high = 0;
  bool finite = true;
};
Range RangeOf(const float* x, int64_t count) {
  constexpr int64_t kLanes = 4;
  float low[kLanes] = {}, high[kLanes] = {};
  int32_t magnitude[kLanes] = {};  // as bits, which order like integers
  for (int64_t c = 0; c < count; c += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) {
      low[i] = x[c + i] < low[i] ? x[c + i] : low[i];
      high[i] = x[c + i] > high[i] ? x[c + i] : high[i];
      magnitude[i] = std::max(magnitude[i], std::bit_cast<int32_t>(x[c + i]) & 0x7fffffff);
    }
  }
  return {std::min(std::min(low[0], low[1]), std::min(low[2], low[3])),
          std::max(std::max(high[0], high[1]), std::max(high[2], high[3])),
          std::max(std::max(magnitude[0], magnitude[1]), std::max(magnitude[2], magnitude[3])) <
              0x7f800000};
}

// Columns that share a base; a group where there is none.
int64_t BaseColumns(const GroupedFormat& format) {
  if (!format.has_base()) return format.group;
  const SharedNumber &first = format.numbers[2], &second = format.numbers[3];
  return second.type == NumberType::kNone ? first.columns
                                          : std::min(first.columns, second.columns);
}

// x to the nearest integer, for |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits.
int IntegerOf(float x) {
  return static_cast<int>(std::bit_cast<uint32_t>(x + 12582912.0f) & 0x7fffff) - 0x400000;
}

// The code of a table whose value is nearest to x.
int NearestOf(const GroupedFormat& format, float x) {
  int best = 0;
  float least = INFINITY;
  for (int code = 0; code < 1 << format.bits; ++code) {
    const float distance = std::abs(static_cast<float>(format.Value(code)) - x);
    if (distance < least) best = code;
    least = std::min(least, distance);
  }
  return best;
}

}  // namespace

void QuantiseGrouped(const GroupedFormat& format, const float* x, int64_t count, std::byte* codes,
                     std::byte* scales) {
  QuantiseGrouped(format, 0, x, count, {codes, scales});
}

void QuantiseGrouped(const GroupedFormat& format, int integers_most, const float* x, int64_t count,
                     const CodedUnit& out) {
  const int64_t unit = UnitOf(format);
  const auto least = static_cast<float>(format.Least()), most = static_cast<float>(format.Most());
  float padded[kUnitMax] = {}, scale[kGroupsMax], base[kGroupsMax] = {};
  std::copy_n(x, count, padded);
  const int64_t span = BaseColumns(format), together = span / format.group;
  for (int64_t g = 0; g < unit / format.group; g += together) {
    const Range range = RangeOf(padded + g * format.group, span);
    std::fill_n(base + g, together, !range.finite ? NAN : format.has_base() ? -range.low : 0.0f);
    // Integers reach as far up as down; tables have other ends.
    const float down = format.has_values() ? -least : most;
    const float reach = format.has_base() ? (range.high - range.low) / most
                                          : std::max(range.high / most, -range.low / down);
    std::fill_n(scale + g, together, range.finite ? reach : NAN);
  }
  std::byte* bases = WriteNumbers(format, {0, integers_most}, unit, scale, nullptr, out.scales);
  if (format.has_base()) WriteNumbers(format, {2, integers_most}, unit, base, out.scales, bases);
  float of[kUnitMax];
  for (int64_t g = 0; g < unit / format.group; ++g) {
    const float factor = scale[g] > 0 ? 1.0f / scale[g] : 0.0f;
    const float* from = padded + g * format.group;
    float* to = of + g * format.group;
    for (int64_t c = 0; c < format.group; ++c) to[c] = (from[c] + base[g]) * factor;
    if (!(factor > 0)) std::fill_n(to, format.group, 0.0f);
  }
  if (format.has_values()) {
    for (int64_t c = 0; c < count; ++c) {
      out.codes[c] = static_cast<std::byte>(NearestOf(format, of[c]));
    }
    return;
  }
  for (int64_t c = 0; c < count; ++c) {
    const float code = std::max(least, std::min(of[c], most));
    out.codes[c] = static_cast<std::byte>(IntegerOf(code) + format.centre);
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
    for (int plane : {8, 4, 2, 1}) {
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
  for (int plane : {8, 4, 2, 1}) {
    if (!at.Has(plane)) continue;
    const int per_line = 8 / plane;
    const int64_t line = col / 32 * format.bits + at.Line(plane) + word / per_line;
    const auto bits = static_cast<int>(lines[line * 64 + lane * 4 + col % 4]);
    code |= (bits >> (word % per_line * plane) & ((1 << plane) - 1)) << at.Shift(plane);
  }
  return static_cast<float>(format.Value(code));
}

namespace {

bool Holds(const GroupedFormat& to, const GroupedFormat& from) {
  if (to.has_values() || to.divides || from.divides) return false;
  if (to.block != from.block || to.group > from.group || UnitOf(to) != UnitOf(from)) return false;
  if (from.Most() > to.Most() || from.Least() < to.Least()) return false;
  for (int i = 0; i < kNumbers; ++i) {
    const SharedNumber &a = from.numbers[i], &b = to.numbers[i];
    // A base may be zero. Integers of files have six bits where they have no sign.
    const bool zero = i >= 2 && !from.has_base();
    const bool same = a.type == b.type || (a.type == kByteOf32.type && b.type == kSignedOf16.type);
    if (!zero && (!same || b.columns > a.columns)) return false;
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
    to.codes[c] = static_cast<std::byte>(a.Value(static_cast<int>(from.codes[c])) + b.centre);
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
