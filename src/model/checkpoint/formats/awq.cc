// AWQ integers of four bits: the matrix is stored with inputs as rows, [k][n / 8] words; the eight
// outputs of a word stand in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits. Zero points
// [groups][n / 8] likewise. value = (code - zero) * scale.
#include <fmt/format.h>

#include "model/checkpoint/formats/groups.h"

namespace braid {
namespace {

constexpr FormatPart kParts[] = {{".qweight"}, {".qzeros"}, {".scales"}};
enum : size_t { kCodes, kZeros, kScales };
constexpr DType kWords[] = {DType::kI32};
constexpr int kShift[kPerWord] = {0, 16, 4, 20, 8, 24, 12, 28};  // of output i of a word

std::string Problem(const StoredWeight& w) {
  if (w.rows % kPerWord != 0) {
    return fmt::format("\"{}\" packs eight outputs a word and there are {}", w.parts[kCodes]->name,
                       w.rows);
  }
  const int64_t words = w.rows / kPerWord, groups = GroupCount(w);
  std::string text = PartProblem(*w.parts[kCodes], kWords, {{w.k, words}});
  if (text.empty()) text = PartProblem(*w.parts[kZeros], kWords, {{groups, words}});
  if (text.empty()) text = PartProblem(*w.parts[kScales], kGroupScaleTypes, {{groups, w.rows}});
  return text;
}

int32_t HalfAt(const TensorEntry& part, int64_t word, int64_t row) {
  return static_cast<int32_t>(WordAt(part, word) >> kShift[row % kPerWord] & 15u);
}
int32_t CodeOf(const StoredWeight& w, int64_t row, int64_t column) {
  return HalfAt(*w.parts[kCodes], column * (w.rows / kPerWord) + row / kPerWord, row);
}
int32_t ZeroOf(const StoredWeight& w, int64_t row, int64_t group) {
  return HalfAt(*w.parts[kZeros], group * (w.rows / kPerWord) + row / kPerWord, row);
}
float ScaleOf(const StoredWeight& w, int64_t row, int64_t group) {
  return ElementAt(*w.parts[kScales], group * w.rows + row);
}

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const int64_t group_size = GroupSize(w);
  for (int64_t c = 0; c < w.k; ++c) {
    const int64_t group = c / group_size;
    for (int64_t r = row; r < row + count; ++r) {
      out[(r - row) * w.k + c] =
          static_cast<float>(CodeOf(w, r, c) - ZeroOf(w, r, group)) * ScaleOf(w, r, group);
    }
  }
}

template <int64_t kColumns>
bool FitWithZeros(const StoredWeight& w) {
  return GroupsFitWithZeros(w, kColumns, *w.parts[kScales], nullptr);
}
template <int64_t kColumns>
constexpr auto kRowWithZeros = KeepWithZeros<CodeOf, ZeroOf, ScaleOf, kColumns>;

constexpr KeptCodes kKeptZeros32 = {ops::WeightFormat::kI4Z32, FitWithZeros<32>, kRowWithZeros<32>};
constexpr KeptCodes kKept = {ops::WeightFormat::kI4Z, FitWithZeros<128>, kRowWithZeros<128>,
                             &kKeptZeros32};

}  // namespace

const StorageFormat kAwq = {.name = "awq int4",
                            .replaces_weight = true,
                            .parts = kParts,
                            .types = kWords,
                            .problem = Problem,
                            .decode = Decode,
                            .kept = &kKept,
                            .row_major = false};

}  // namespace braid
