// Rows with drafts, for tests of the ops that have memory: some drafts of a row are wrong, and the
// next row begins at the first wrong one. What is computed then must have the bits of a sequence
// that never saw a wrong token.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "base/block.h"
#include "base/rng.h"
#include "tensor/tensor.h"

namespace braid::ops {

// A step over tokens [begin, end); those from `right` on are wrong.
struct DraftRow {
  int64_t begin = 0, right = 0, end = 0;
};

// Rows that end up with `tokens` right tokens: a first one of `first` tokens without drafts, then
// one known token and up to drafts_max drafts each. Drafts stay inside the block of the token after
// the known one and never complete it (docs/decisions/006-guesses-and-handoff.md).
inline std::vector<DraftRow> DraftRows(Rng& rng, int64_t tokens, int64_t first,
                                       int32_t drafts_max) {
  std::vector<DraftRow> rows = {{0, first, first}};
  while (rows.back().right < tokens) {
    const int64_t begin = rows.back().right;
    const int64_t last = ((begin + 1) / kBlockTokens + 1) * kBlockTokens - 1;
    const int64_t end = std::min({begin + 1 + drafts_max, std::max(last, begin + 1), tokens});
    const int64_t drafts = end - begin - 1;
    // Often none is right or all are.
    const int64_t accepted = rng.Below(3) == 0 ? 0 : std::min(drafts, rng.Below(drafts + 3));
    rows.push_back({begin, begin + 1 + accepted, end});
  }
  return rows;
}

// The wrong tokens of a row: other values in rows [row.right, row.end) of `m`, some of them no
// numbers.
inline void Mislead(Rng& rng, const DraftRow& row, const Matrix& m) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t t = row.right; t < row.end; ++t) {
    const int64_t kind = rng.Below(6);
    for (int64_t c = 0; c < m.cols; ++c) {
      m.row(t)[c] = kind == 0 ? kNan : kind == 1 ? kInfinity : static_cast<float>(rng.Normal());
    }
  }
}

// Puts the right ones back.
inline void Restore(const DraftRow& row, const Matrix& from, const Matrix& to) {
  for (int64_t t = row.right; t < row.end; ++t) std::copy_n(from.row(t), from.cols, to.row(t));
}

}  // namespace braid::ops
