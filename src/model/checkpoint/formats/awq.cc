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

void Decode(const StoredWeight& w, int64_t row, int64_t count, float* out) {
  const int64_t words = w.rows / kPerWord, group_size = GroupSize(w);
  for (int64_t c = 0; c < w.k; ++c) {
    const int64_t group = c / group_size;
    for (int64_t r = row; r < row + count; ++r) {
      const int shift = kShift[r % kPerWord];
      const uint32_t code = WordAt(*w.parts[kCodes], c * words + r / kPerWord) >> shift & 15u;
      const uint32_t zero = WordAt(*w.parts[kZeros], group * words + r / kPerWord) >> shift & 15u;
      const float scale = ElementAt(*w.parts[kScales], group * w.rows + r);
      out[(r - row) * w.k + c] =
          static_cast<float>(static_cast<int32_t>(code) - static_cast<int32_t>(zero)) * scale;
    }
  }
}

}  // namespace

const StorageFormat kAwq = {.name = "awq int4",
                            .replaces_weight = true,
                            .parts = kParts,
                            .types = kWords,
                            .problem = Problem,
                            .decode = Decode,
                            .row_major = false};

}  // namespace braid
