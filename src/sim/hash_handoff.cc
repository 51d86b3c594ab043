// The parts of the hash executor in which other engines and other models would have a say: drafts
// and their verification, and moves of pages, which are fake here. One thread, the driver's.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/hash_executor.h"

namespace braid {

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
