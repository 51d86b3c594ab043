// The parts of the hash executor in which other engines and other models would have a say: drafts
// and their verification, and moves of pages, which are fake here. One thread, the driver's.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/hash_executor.h"

namespace braid {
namespace {

constexpr int32_t kSpoilt = -2;  // a position that no token has

}  // namespace

// How many of the row's drafts are what sampling says, one after the other.
int32_t HashExecutor::Verify(const Slot& slot, const Row& row, RowResult& result) const {
  const Request& request = *slot.request;
  const int32_t known = row.token_count - row.drafts;
  for (; result.accepted < row.drafts; ++result.accepted) {
    const size_t guess = static_cast<size_t>(known + result.accepted);
    const int32_t position = row.start + known + result.accepted;
    const int32_t made = position - static_cast<int32_t>(request.prompt.size());
    const TokenId token = lm_.Next(request, prefixes_[guess - 1], position, made);
    if (token != tokens_[guess]) break;
    if (request.logprobs < 0) continue;
    result.accepted_logprobs.push_back(
        lm_.Distribution(prefixes_[guess - 1], token, request.logprobs));
  }
  return result.accepted;
}

// What follows the token just sampled: sometimes right, sometimes wrong, sometimes nothing, of
// somebody who was asked.
void HashExecutor::Guess(const Slot& slot, const Row& row, uint64_t prefix,
                         RowResult& result) const {
  const Request& request = *slot.request;
  size_t source = prefix % kDraftSources;
  for (int i = 1; i < kDraftSources && row.propose[source] == 0; ++i) {
    source = (source + 1) % kDraftSources;
  }
  result.drafts_of = static_cast<DraftSource>(source);
  const int32_t most = std::min<int32_t>(options_.drafts_max, row.propose[source]);
  for (int32_t i = 0; i < most; ++i) {
    const auto position = static_cast<int32_t>(slot.history.size()) + i;
    const uint64_t draw =
        RandomBits(options_.drafts_seed, static_cast<uint64_t>(request.id.value) * 100000 +
                                             static_cast<uint64_t>(position));
    if (draw % 16 == 0) return;
    const int32_t made = position - static_cast<int32_t>(request.prompt.size());
    TokenId token = lm_.Next(request, prefix, position, made);
    const bool right = static_cast<int32_t>(draw / 16 % 100) < options_.drafts_right;
    if (!right) token = (token + 1) % lm_.vocabulary;
    result.drafts.push_back(token);
    prefix = AppendToken(prefix, token);
  }
}

// What a move writes, or, with no tokens at its end, what it reads.
Row HashExecutor::RowOf(const PageMove& t) {
  const int32_t start = t.in() ? t.begin : t.end;
  return {.slot = t.slot, .request = t.request, .token_count = t.end - start, .start = start};
}

void HashExecutor::LaunchMove(const PageMove& move) {
  if (move.place == Place::kDisk) {
    PinParts(move, 1);
    moves_.push_back({move, launched_});
    if (!move.in()) return;
    Slot& slot = At(move.slot);
    CHECK(slot.live && slot.request->id == move.request && slot.rows_in_flight == 0 &&
              move.begin < move.end && slot.launched == move.begin,
          "I-8: request {} awaits tokens {} to {} of a tier", move.request.value, move.begin,
          move.end);
    slot.launched = move.end;
    ++slot.rows_in_flight;
    return;
  }
  Slot& slot = At(move.slot);
  CHECK(slot.live && slot.request->id == move.request, "I-12: slot {} is not request {}'s",
        move.slot.value, move.request.value);
  CHECK(slot.rows_in_flight == 0 && move.begin < move.end);
  CHECK(slot.launched == (move.in() ? move.begin : move.end),
        "I-8: request {} has {} tokens in place", move.request.value, slot.launched);
  slot.launched = move.end;
  ++slot.rows_in_flight;
  Pin(slot, RowOf(move), 1);
  moves_.push_back({move, launched_});
}

int32_t HashExecutor::fake_moves() const {
  int32_t count = 0;
  for (const FakeMove& t : moves_) count += t.order < landed_;
  return count;
}

bool HashExecutor::Moving(RequestId request) const {
  for (const FakeMove& t : moves_) {
    if (t.what.request == request) return true;
  }
  return false;
}

PagesMoved HashExecutor::EndFakeMove(int32_t index, bool fails) {
  const auto at = moves_.begin() + index;
  CHECK(index < static_cast<int32_t>(moves_.size()) && at->order < landed_);
  const FakeMove move = *at;
  moves_.erase(at);
  if (move.what.place == Place::kDisk) return EndTierMove(move, fails);
  Slot& slot = At(move.what.slot);
  const Row row = RowOf(move.what);
  const Request& request = *slot.request;
  PagesMoved done{.move = move.what.id, .error = {}, .lost = {}, .logprob = {}};
  Pin(slot, row, -1);
  --slot.rows_in_flight;
  if (fails) {
    if (move.what.in()) Poison(slot, row);
    done.error = "the fake move was told to fail";
    return done;
  }
  if (!move.what.in()) {
    CheckSent(slot, move.what.end);
    return done;
  }
  tokens_.assign(slot.history.begin() + row.start, slot.history.end());
  const uint64_t prefix = AdvanceGroups(move.order, slot, row);
  slot.in_place = move.what.end;
  ForgetStates(slot, slot.in_place);
  done.token = lm_.Next(request, prefix, slot.in_place, 0);
  slot.history.push_back(done.token);
  if (request.logprobs >= 0) done.logprob = lm_.Distribution(prefix, done.token, request.logprobs);
  return done;
}

void HashExecutor::PinParts(const PageMove& move, int32_t change) {
  for (const PagePart& part : move.parts) {
    for (size_t g = 0; g < kinds_; ++g) {
      if (geometry_.groups[g].kind != part.kind) continue;
      const BlockId block = part.blocks.by_group[g];
      CHECK(block.valid(), "a part of a move lacks a block of group {}", g);
      groups_[static_cast<size_t>(move.dp_rank.value) * kinds_ + g].pins[block] += change;
    }
  }
}

std::vector<KnownPart> HashExecutor::Stored() const {
  std::vector<KnownPart> parts;
  for (const auto& [part, blocks] : tier_) parts.push_back(part);
  return parts;
}

PagesMoved HashExecutor::EndTierMove(const FakeMove& move, bool fails) {
  PinParts(move.what, -1);
  PagesMoved done{.move = move.what.id, .error = {}, .lost = {}, .logprob = {}};
  const bool there = move.what.in() ? Restore(move) : (fails || (Store(move.what), true));
  if (fails || !there) done.error = "the fake tier has failed";
  if (!move.what.in()) return done;
  Slot& slot = At(move.what.slot);
  --slot.rows_in_flight;
  if (!done.error.empty()) {
    SpoilParts(move.what);
    return done;
  }
  slot.in_place = move.what.end;
  ForgetStates(slot, slot.in_place);
  return done;
}

// What did not come is rubbish in the blocks, and whoever cannot read it has lost it.
void HashExecutor::SpoilParts(const PageMove& move) {
  for (const PagePart& part : move.parts) {
    tier_.erase({part.key, part.kind});
    for (size_t g = 0; g < kinds_; ++g) {
      if (geometry_.groups[g].kind != part.kind) continue;
      Group& group = groups_[static_cast<size_t>(move.dp_rank.value) * kinds_ + g];
      const BlockId block = part.blocks.by_group[g];
      if (part.kind == GroupKind::kFull) {
        group.full[block].position.fill(kSpoilt);
      } else {
        group.states[block].content = Content::kPoison;
      }
    }
  }
}

// What rests is complete, and only that is stored.
void HashExecutor::Store(const PageMove& move) {
  for (const PagePart& part : move.parts) {
    StoredPart& stored = tier_[{part.key, part.kind}];
    CHECK(stored.full.empty() && stored.states.empty(), "I-27: a part is written twice");
    for (size_t g = 0; g < kinds_; ++g) {
      if (geometry_.groups[g].kind != part.kind) continue;
      const Group& group = groups_[static_cast<size_t>(move.dp_rank.value) * kinds_ + g];
      const BlockId block = part.blocks.by_group[g];
      const int32_t end = (part.index + 1) * kBlockTokens;
      if (part.kind == GroupKind::kFull) {
        const FullBlock& full = group.full[block];
        for (int32_t i = 0; i < kBlockTokens; ++i) {
          CHECK(full.position[static_cast<size_t>(i)] == part.index * kBlockTokens + i,
                "I-27: a block is stored that is not complete");
        }
        stored.full.push_back(full);
      } else {
        const StateBlock& state = group.states[block];
        CHECK(state.content == Content::kState && state.depth == end,
              "I-27: no state of depth {} is there to be stored", end);
        stored.states.push_back(state);
      }
    }
  }
}

// Whether all of it is still there.
bool HashExecutor::Restore(const FakeMove& move) {
  for (const PagePart& part : move.what.parts) {
    const auto at = tier_.find({part.key, part.kind});
    if (at == tier_.end()) return false;
    size_t next = 0;
    const auto rank = static_cast<size_t>(move.what.dp_rank.value);
    for (size_t g = 0; g < kinds_; ++g) {
      if (geometry_.groups[g].kind != part.kind) continue;
      Group& group = groups_[rank * kinds_ + g];
      const BlockId block = part.blocks.by_group[g];
      // It stays what it was; whose it is, is checked when it is read.
      if (part.kind == GroupKind::kFull) {
        group.full[block] = at->second.full[next++];
        group.full[block].space = SpaceOf(group.full[block].owner, rank);
        group.full[block].written_by = move.order;
      } else {
        group.states[block] = at->second.states[next++];
        group.states[block].space = SpaceOf(group.states[block].owner, rank);
        group.states[block].written_by = move.order;
      }
    }
  }
  return true;
}

// What left is what the prompt says.
void HashExecutor::CheckSent(Slot& slot, int32_t end) {
  uint64_t prefix = kEmptyPrefix;
  for (int32_t p = 0; p < end; ++p) {
    prefix = AppendToken(prefix, slot.history[static_cast<size_t>(p)]);
  }
  for (size_t g = 0; g < kinds_; ++g) {
    Group& group = GroupOf(slot, g);
    uint64_t hash = 0;
    if (group.kind == GroupKind::kFull) {
      hash = ReadFull(group, slot, g, end, end);
    } else {
      std::vector<TokenId> rows;
      hash = ReadState(group, slot, g, end, rows);
      for (const TokenId token : rows) hash = AppendToken(hash, token);
    }
    CHECK(hash == prefix, "I-6: request {} sends another prefix in group {}",
          slot.request->id.value, g);
  }
}

}  // namespace braid
