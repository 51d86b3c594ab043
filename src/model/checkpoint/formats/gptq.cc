// GPTQ integers of four or eight bits: the matrix is stored with inputs as rows, eight or four
// inputs a word from the lowest bits, [k / 8][n] words; zero points [groups][n / 8] pack as many
// outputs a word. In the first version of the layout a zero point is stored less one. g_idx, if
// there, is the group of every input. value = (code - zero) * scale.
#include <fmt/format.h>

#include "model/checkpoint/formats/groups.h"

namespace braid {
namespace {

constexpr FormatPart kParts[] = {{".qweight"}, {".qzeros"}, {".scales"}, {".g_idx", true}};
enum : size_t { kCodes, kZeros, kScales, kIndex };
constexpr DType kWords[] = {DType::kI32};

// The shape tells; four bits where it is of neither.
CodeWords Words(const StoredWeight& w) {
  const std::vector<int64_t>& shape = w.parts[kCodes]->shape;
  return {!shape.empty() && shape.front() == w.k >> 2 ? 2 : 3};
}

std::string Problem(const StoredWeight& w) {
  const int64_t per_word = Words(w).per_word();
  if (w.rows % per_word != 0 || w.k % per_word != 0) {
    return fmt::format("\"{}\" packs {} numbers a word and the weight is [{}, {}]",
                       w.parts[kCodes]->name, per_word, w.rows, w.k);
  }
  const int64_t groups = GroupCount(w);
  std::string text = PartProblem(*w.parts[kCodes], kWords, {{w.k / per_word, w.rows}});
  if (text.empty()) {
    text = PartProblem(*w.parts[kZeros], kWords, {{groups, w.rows / per_word}});
  }
  if (text.empty()) text = PartProblem(*w.parts[kScales], kGroupScaleTypes, {{groups, w.rows}});
  if (text.empty() && w.parts[kIndex]) text = GroupIndexProblem(w, *w.parts[kIndex]);
  return text;
}

int32_t CodeOf(const StoredWeight& w, int64_t row, int64_t column) {
  const CodeWords words = Words(w);
  return words.CodeIn(WordAt(*w.parts[kCodes], words.WordOf(column) * w.rows + row), column);
}

int32_t ZeroOf(const StoredWeight& w, int64_t row, int64_t group) {
  const CodeWords words = Words(w);
  const uint32_t zeros = WordAt(*w.parts[kZeros], group * words.WordOf(w.rows) + words.WordOf(row));
  return words.CodeIn(zeros, row) + (w.quantization->zero_off_by_one ? 1 : 0);
}

float ScaleOf(const StoredWeight& w, int64_t row, int64_t group) {
  return ElementAt(*w.parts[kScales], group * w.rows + row);
}

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  for (int64_t c = 0; c < w.k; ++c) {
    const int64_t group = GroupOf(w, w.parts[kIndex], c);
    for (int64_t r = row; r < row + count; ++r) {
      out[(r - row) * w.k + c] =
          static_cast<float>(CodeOf(w, r, c) - ZeroOf(w, r, group)) * ScaleOf(w, r, group);
    }
  }
}

bool ZerosInTheMiddle(const StoredWeight& w) {
  for (int64_t row = 0; row < w.rows; ++row) {
    for (int64_t group = 0; group < GroupCount(w); ++group) {
      if (ZeroOf(w, row, group) != Words(w).middle()) return false;
    }
  }
  return true;
}

bool Fit(const StoredWeight& w) {
  if (Words(w).per_word() != kPerWord || !ZerosInTheMiddle(w)) return false;
  return GroupsFit(w, ops::kInt4Columns, *w.parts[kScales], w.parts[kIndex]);
}

void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  if (!w.order.empty()) KeepOrderedWords<CodeOf>(w, row, codes);
  for (int64_t i = 0; w.order.empty() && i < w.k / kPerWord; ++i) {
    const uint32_t word = WordAt(*w.parts[kCodes], i * w.rows + row);
    std::memcpy(codes + 4 * i, &word, sizeof word);
  }
  KeepScales(w, *w.parts[kScales], row, w.rows, scales);
}

template <int64_t kColumns>
bool FitWithZeros(const StoredWeight& w) {
  return Words(w).per_word() == kPerWord &&
         GroupsFitWithZeros(w, kColumns, *w.parts[kScales], w.parts[kIndex]);
}
template <int64_t kColumns>
constexpr auto kRowWithZeros = KeepWithZeros<CodeOf, ZeroOf, ScaleOf, kColumns>;

template <ops::WeightFormat kFormat>
bool FitBytes(const StoredWeight& w) {
  return Words(w).per_word() == 4 && ZerosInTheMiddle(w) &&
         BytesFit<kFormat>(w, *w.parts[kScales], w.parts[kIndex]);
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

const StorageFormat kGptq = {.name = "gptq integers",
                             .replaces_weight = true,
                             .parts = kParts,
                             .types = kWords,
                             .problem = Problem,
                             .decode = Decode,
                             .kept = &kKept,
                             .row_major = false,
                             .groups_part = kIndex};

}  // namespace braid
