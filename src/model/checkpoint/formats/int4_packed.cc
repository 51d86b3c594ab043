// compressed-tensors' pack-quantized integers of four or eight bits: words of eight or four codes
// along the row, the lowest bits first; codes and zero points are stored plus 8 or 128. value =
// (code - zero) * scale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/checkpoint/formats/groups.h"

namespace braid {
namespace {

constexpr FormatPart kParts[] = {
    {"_packed"}, {"_scale"}, {"_shape", true}, {"_zero_point", true}, {"_g_idx", true}};
enum : size_t { kCodes, kScale, kShape, kZero, kIndex };
constexpr DType kWords[] = {DType::kI32};

// The shape tells; four bits where it is of neither.
CodeWords Words(const StoredWeight& w) {
  const std::vector<int64_t>& shape = w.parts[kCodes]->shape;
  const bool bytes =
      !shape.empty() && shape.back() != (w.k + 7) >> 3 && shape.back() == (w.k + 3) >> 2;
  return {bytes ? 2 : 3};
}

int64_t ShapeEntry(const TensorEntry& shape, int64_t i) {
  int64_t value = 0;
  std::memcpy(&value, shape.data + i * SizeOf(shape.dtype),
              static_cast<size_t>(SizeOf(shape.dtype)));
  return value;
}

std::string Problem(const StoredWeight& w) {
  const int64_t groups = GroupCount(w);
  std::vector<int64_t> codes = {w.rows, CeilDiv(w.k, Words(w).per_word())},
                       scales = {w.rows, groups};
  if (w.matrices > 1) {
    codes.insert(codes.begin(), w.matrices);
    scales.insert(scales.begin(), w.matrices);
    if (w.parts[kZero]) return "stacked weights with zero points are not read";
  }
  std::string text = PartProblem(*w.parts[kCodes], kWords, codes);
  if (text.empty()) text = PartProblem(*w.parts[kScale], kGroupScaleTypes, scales);
  if (text.empty() && w.parts[kShape]) {
    const TensorEntry& shape = *w.parts[kShape];
    constexpr DType kTypes[] = {DType::kI64, DType::kI32};
    text = PartProblem(shape, kTypes, {{2}});
    if (text.empty() && (ShapeEntry(shape, 0) != w.rows || ShapeEntry(shape, 1) != w.k)) {
      text = fmt::format("\"{}\" says [{}, {}]; config.json asks for [{}, {}]", shape.name,
                         ShapeEntry(shape, 0), ShapeEntry(shape, 1), w.rows, w.k);
    }
  }
  if (text.empty() && w.parts[kZero]) {
    text = PartProblem(*w.parts[kZero], kWords, {{CeilDiv(w.rows, Words(w).per_word()), groups}});
  }
  if (text.empty() && w.parts[kIndex]) text = GroupIndexProblem(w, *w.parts[kIndex]);
  return text;
}

// Zero points are packed along the rows, as many rows a word.
int32_t ZeroOf(const StoredWeight& w, int64_t row, int64_t group) {
  const CodeWords words = Words(w);
  if (w.parts[kZero] == nullptr) return words.middle();
  return words.CodeIn(WordAt(*w.parts[kZero], words.WordOf(row) * GroupCount(w) + group), row);
}

int32_t CodeOf(const StoredWeight& w, int64_t row, int64_t column) {
  const CodeWords words = Words(w);
  const int64_t of_row = w.parts[kCodes]->shape.back();
  return words.CodeIn(WordAt(*w.parts[kCodes], row * of_row + words.WordOf(column)), column);
}

float ScaleOf(const StoredWeight& w, int64_t row, int64_t group) {
  return ElementAt(*w.parts[kScale], row * GroupCount(w) + group);
}

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  for (int64_t r = row; r < row + count; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const int64_t group = GroupOf(w, w.parts[kIndex], c);
      *out++ = static_cast<float>(CodeOf(w, r, c) - ZeroOf(w, r, group)) * ScaleOf(w, r, group);
    }
  }
}

bool ZerosInTheMiddle(const StoredWeight& w) {
  for (int64_t row = 0; w.parts[kZero] && row < w.rows; ++row) {
    for (int64_t group = 0; group < GroupCount(w); ++group) {
      if (ZeroOf(w, row, group) != Words(w).middle()) return false;
    }
  }
  return true;
}

bool Fit(const StoredWeight& w) {
  if (Words(w).per_word() != kPerWord || !ZerosInTheMiddle(w)) return false;
  return GroupsFit(w, ops::kInt4Columns, *w.parts[kScale], w.parts[kIndex]);
}

// Rows as they are stored, up to the codes behind the last column.
void CopyWords(const StoredWeight& w, int64_t row, std::byte* codes) {
  const int64_t words = CeilDiv(w.k, kPerWord);
  const TensorEntry& stored = *w.parts[kCodes];
  std::memcpy(codes, stored.data + 4 * row * words, static_cast<size_t>(4 * words));
  if (const int64_t rest = w.k % kPerWord; rest > 0) {
    const uint32_t mask = (1u << 4 * rest) - 1;
    const uint32_t last = (WordAt(stored, (row + 1) * words - 1) & mask) | (ops::kZeroWord & ~mask);
    std::memcpy(codes + 4 * (words - 1), &last, sizeof last);
  }
}

void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  w.order.empty() ? CopyWords(w, row, codes) : KeepOrderedWords<CodeOf>(w, row, codes);
  KeepScales(w, *w.parts[kScale], row * GroupCount(w), 1, scales);
}

template <int64_t kColumns>
bool FitWithZeros(const StoredWeight& w) {
  return Words(w).per_word() == kPerWord &&
         GroupsFitWithZeros(w, kColumns, *w.parts[kScale], w.parts[kIndex]);
}
template <int64_t kColumns>
constexpr auto kRowWithZeros = KeepWithZeros<CodeOf, ZeroOf, ScaleOf, kColumns>;

template <ops::WeightFormat kFormat>
bool FitBytes(const StoredWeight& w) {
  return Words(w).per_word() == 4 && ZerosInTheMiddle(w) &&
         BytesFit<kFormat>(w, *w.parts[kScale], w.parts[kIndex]);
}
template <ops::WeightFormat kFormat, const KeptCodes* kNext>
constexpr KeptCodes kKeptBytes = {kFormat, FitBytes<kFormat>, KeepBytes<kFormat, CodeOf, ScaleOf>,
                                  kNext};

constexpr const KeptCodes* kGroupsOfBytes = &kKeptBytes<ops::WeightFormat::kQ8_0, nullptr>;
constexpr KeptCodes kKeptZeros32 = {ops::WeightFormat::kI4Z32, FitWithZeros<32>, kRowWithZeros<32>,
                                    &kKeptBytes<ops::WeightFormat::kI8, kGroupsOfBytes>};
constexpr KeptCodes kKeptZeros = {ops::WeightFormat::kI4Z, FitWithZeros<128>, kRowWithZeros<128>,
                                  &kKeptZeros32};
constexpr KeptCodes kKept = {ops::WeightFormat::kI4, Fit, KeptRow, &kKeptZeros};

}  // namespace

void KeepScales(const StoredWeight& w, const TensorEntry& scales, int64_t first, int64_t step,
                std::byte* out) {
  const int64_t group = GroupSize(w);
  const bool halves = scales.dtype == DType::kF16;
  if (halves && step == 1 && group == ops::kInt4Columns) {
    std::memcpy(out, scales.data + 2 * first, static_cast<size_t>(2 * GroupCount(w)));
    return;
  }
  for (int64_t c = 0, g = 0; c < w.k; ++g) {
    const int64_t i = first + g * step;
    uint16_t bits;
    if (halves) {
      std::memcpy(&bits, scales.data + 2 * i, sizeof bits);
    } else {
      bits = F16OfFloat(ElementAt(scales, i));
    }
    for (const int64_t end = std::min(w.k, (g + 1) * group); c < end; c += ops::kInt4Columns) {
      std::memcpy(out, &bits, sizeof bits);
      out += sizeof bits;
    }
  }
}

bool GroupsFit(const StoredWeight& w, int64_t columns, const TensorEntry& scales,
               const TensorEntry* index) {
  if (GroupCount(w) > 1 && GroupSize(w) % columns != 0) return false;
  for (int64_t c = 0; index && c < w.k; ++c) {
    if (GroupOf(w, index, ColumnAt(w, c)) != c / GroupSize(w)) return false;
  }
  const int64_t count = scales.bytes / SizeOf(scales.dtype);
  for (int64_t i = 0; i < count && scales.dtype != DType::kF16; ++i) {
    const float scale = ElementAt(scales, i);
    if (FloatOfF16(F16OfFloat(scale)) != scale) return false;
  }
  return true;
}

bool GroupsFitWithZeros(const StoredWeight& w, int64_t columns, const TensorEntry& scales,
                        const TensorEntry* index) {
  const int64_t count = scales.bytes / SizeOf(scales.dtype);
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(ElementAt(scales, i))) return false;
  }
  return GroupsFit(w, columns, scales, index);
}

std::vector<uint16_t> OrderOfGroups(const StoredWeight& w) {
  const auto part = w.format ? w.format->groups_part : std::nullopt;
  const TensorEntry* index = part ? w.parts[*part] : nullptr;
  if (index == nullptr || w.k > 65536) return {};
  std::vector<size_t> begins(static_cast<size_t>(GroupCount(w)) + 1);  // of the next one of a group
  bool sorted = true;
  for (int64_t c = 0, before = 0; c < w.k; ++c) {
    const int64_t group = GroupOf(w, index, c);
    ++begins[static_cast<size_t>(group) + 1];
    sorted = sorted && before <= group;
    before = group;
  }
  if (sorted) return {};
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<uint16_t> order(static_cast<size_t>(w.k));
  for (int64_t c = 0; c < w.k; ++c) {
    order[begins[static_cast<size_t>(GroupOf(w, index, c))]++] = static_cast<uint16_t>(c);
  }
  return order;
}

std::string GroupIndexProblem(const StoredWeight& w, const TensorEntry& index) {
  if (std::string text = PartProblem(index, kWords, {{w.k}}); !text.empty()) return text;
  for (int64_t c = 0; c < w.k; ++c) {
    if (WordAt(index, c) < static_cast<uint64_t>(GroupCount(w))) continue;
    return fmt::format("\"{}\"[{}] is {}; there are {} groups", index.name, c,
                       static_cast<int32_t>(WordAt(index, c)), GroupCount(w));
  }
  return {};
}

const StorageFormat kInt4Packed = {.name = "packed integers",
                                   .parts = kParts,
                                   .types = kWords,
                                   .problem = Problem,
                                   .decode = Decode,
                                   .kept = &kKept,
                                   .groups_part = kIndex};

}  // namespace braid
