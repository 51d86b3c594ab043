// GPTQ integers of four bits: the matrix is stored with inputs as rows, eight inputs a word from
// the lowest bits, [k / 8][n] words; zero points [groups][n / 8] pack eight outputs a word. In the
// first version of the layout a zero point is stored less one. g_idx, if there, is the group of
// every input. value = (code - zero) * scale.
#include <fmt/format.h>

#include "model/checkpoint/formats/groups.h"

namespace braid {
namespace {

constexpr FormatPart kParts[] = {{".qweight"}, {".qzeros"}, {".scales"}, {".g_idx", true}};
enum : size_t { kCodes, kZeros, kScales, kIndex };
constexpr DType kWords[] = {DType::kI32};

std::string Problem(const StoredWeight& w) {
  if (w.rows % kPerWord != 0 || w.k % kPerWord != 0) {
    return fmt::format("\"{}\" packs eight numbers a word and the weight is [{}, {}]",
                       w.parts[kCodes]->name, w.rows, w.k);
  }
  const int64_t groups = GroupCount(w);
  std::string text = PartProblem(*w.parts[kCodes], kWords, {{w.k / kPerWord, w.rows}});
  if (text.empty()) {
    text = PartProblem(*w.parts[kZeros], kWords, {{groups, w.rows / kPerWord}});
  }
  if (text.empty()) text = PartProblem(*w.parts[kScales], kGroupScaleTypes, {{groups, w.rows}});
  if (text.empty() && w.parts[kIndex]) text = GroupIndexProblem(w, *w.parts[kIndex]);
  return text;
}

int32_t CodeOf(const StoredWeight& w, int64_t row, int64_t column) {
  const uint32_t word = WordAt(*w.parts[kCodes], column / kPerWord * w.rows + row);
  return static_cast<int32_t>(word >> (4 * (column % kPerWord)) & 15u);
}

int32_t ZeroOf(const StoredWeight& w, int64_t row, int64_t group) {
  const uint32_t zeros = WordAt(*w.parts[kZeros], group * (w.rows / kPerWord) + row / kPerWord);
  const int32_t less = w.quantization->zero_off_by_one ? 1 : 0;
  return static_cast<int32_t>(zeros >> (4 * (row % kPerWord)) & 15u) + less;
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

bool Fit(const StoredWeight& w) {
  for (int64_t row = 0; row < w.rows; ++row) {
    for (int64_t group = 0; group < GroupCount(w); ++group) {
      if (ZeroOf(w, row, group) != 8) return false;
    }
  }
  return GroupsFit(w, ops::kInt4Columns, *w.parts[kScales], w.parts[kIndex]);
}

void KeptRow(const StoredWeight& w, int64_t row, std::byte* codes, std::byte* scales) {
  for (int64_t i = 0; i < w.k / kPerWord; ++i) {
    const uint32_t word = WordAt(*w.parts[kCodes], i * w.rows + row);
    std::memcpy(codes + 4 * i, &word, sizeof word);
  }
  KeepScales(w, *w.parts[kScales], row, w.rows, scales);
}

template <int64_t kColumns>
bool FitWithZeros(const StoredWeight& w) {
  return GroupsFitWithZeros(w, kColumns, *w.parts[kScales], w.parts[kIndex]);
}
template <int64_t kColumns>
constexpr auto kRowWithZeros = KeepWithZeros<CodeOf, ZeroOf, ScaleOf, kColumns>;

constexpr KeptCodes kKeptZeros32 = {ops::WeightFormat::kI4Z32, FitWithZeros<32>, kRowWithZeros<32>};
constexpr KeptCodes kKeptZeros = {ops::WeightFormat::kI4Z, FitWithZeros<128>, kRowWithZeros<128>,
                                  &kKeptZeros32};
constexpr KeptCodes kKept = {ops::WeightFormat::kI4, Fit, KeptRow, &kKeptZeros};

}  // namespace

const StorageFormat kGptq = {.name = "gptq int4",
                             .replaces_weight = true,
                             .parts = kParts,
                             .types = kWords,
                             .problem = Problem,
                             .decode = Decode,
                             .kept = &kKept,
                             .row_major = false};

}  // namespace braid
