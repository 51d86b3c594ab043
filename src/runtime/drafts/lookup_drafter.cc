// See the header.
#include "runtime/drafts/lookup_drafter.h"

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace braid {
namespace {

constexpr int32_t kCellsMax = 1 << 16;

}  // namespace

int32_t LookupDrafter::CellsOf(int32_t context_tokens_max) {
  const int32_t most = std::clamp(context_tokens_max, 1, kCellsMax);
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(most)));
}

int64_t LookupDrafter::Bytes(int32_t slots, int32_t context_tokens_max) {
  return int64_t{slots} * CellsOf(context_tokens_max) * static_cast<int64_t>(kRuns.size()) *
         static_cast<int64_t>(sizeof(int32_t));
}

LookupDrafter::LookupDrafter(int32_t slots, int32_t context_tokens_max)
    : cells_(CellsOf(context_tokens_max)), slots_(static_cast<size_t>(slots)) {
  for (Index& index : slots_) index.cells.resize(static_cast<size_t>(cells_) * kRuns.size());
}

void LookupDrafter::Reset(SlotId id) {
  Index& index = slots_[id];
  if (index.tokens > 0) std::fill(index.cells.begin(), index.cells.end(), 0);
  index.tokens = 0;
}

// The cell of the run that ends before position `end`.
int32_t& LookupDrafter::CellOf(Index& index, size_t run, std::span<const TokenId> tokens,
                               int32_t end) const {
  uint64_t hash = 0;
  for (int32_t p = end - kRuns[run]; p < end; ++p) {
    hash = MixBits(hash + static_cast<uint64_t>(tokens[static_cast<size_t>(p)]) + 1);
  }
  const auto cell = static_cast<size_t>(hash & static_cast<uint64_t>(cells_ - 1));
  return index.cells[run * static_cast<size_t>(cells_) + cell];
}

// Every run goes in that some token follows.
void LookupDrafter::CatchUp(Index& index, std::span<const TokenId> tokens) const {
  const auto length = static_cast<int32_t>(tokens.size());
  for (; index.tokens < length; ++index.tokens) {
    for (size_t run = 0; run < kRuns.size(); ++run) {
      if (index.tokens >= kRuns[run]) CellOf(index, run, tokens, index.tokens) = index.tokens;
    }
  }
}

// Where the longest run that ends the sequence ended before; 0: nowhere.
int32_t LookupDrafter::Find(Index& index, std::span<const TokenId> tokens) const {
  const auto length = static_cast<int32_t>(tokens.size());
  for (size_t run = 0; run < kRuns.size(); ++run) {
    if (length < kRuns[run]) continue;
    const int32_t end = CellOf(index, run, tokens, length);
    if (end == 0) continue;
    const auto ending_at = [&](int32_t at) { return tokens.begin() + at - kRuns[run]; };
    if (std::equal(ending_at(end), ending_at(end) + kRuns[run], ending_at(length))) return end;
  }
  return 0;
}

void LookupDrafter::Propose(const DraftStep& step) {
  for (const DraftWish& wish : step.rows) {
    if (wish.count == 0) continue;
    Index& index = slots_[wish.id];
    const std::span<const TokenId> tokens(wish.slot->tokens);
    CatchUp(index, tokens);
    const auto from = static_cast<size_t>(Find(index, tokens));
    if (from == 0) continue;
    // A text that repeats itself goes on with what was just proposed.
    for (size_t i = 0; i < static_cast<size_t>(wish.count); ++i) {
      const size_t at = from + i;
      wish.drafts->push_back(at < tokens.size() ? tokens[at] : (*wish.drafts)[at - tokens.size()]);
    }
  }
}

}  // namespace braid
