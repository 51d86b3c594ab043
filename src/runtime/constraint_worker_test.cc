// Masks beside the step: where a grammar begins, what ends an answer, what a preempted request
// finds, and that an error stays its request's own.
#include "runtime/constraint_worker.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr TokenId kEnd = 40, kCloseThinking = 41;

// Token n may follow n - 1; after the grammar's length the end. "bad" does not start.
class Counting final : public TokenConstraint {
 public:
  Counting(TokenId last, bool rewinds) : last_(last), rewinds_(rewinds) {}
  Status Mask(std::span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), 0);
    const auto next = static_cast<uint32_t>(next_ > last_ ? kEnd : next_);
    words[next / 32] |= uint32_t{1} << (next % 32);
    return {};
  }
  Status Accept(TokenId token) override {
    if (token != next_) return Error{ErrorCode::kInvalid, "not the next number"};
    ++next_;
    return {};
  }
  Status Rewind(size_t count) override {
    if (!rewinds_) return Error{ErrorCode::kInvalid, "it cannot"};
    next_ -= static_cast<TokenId>(count);
    return {};
  }
  Result<size_t> Forced(std::span<TokenId> tokens) override {
    size_t n = 0;
    for (TokenId t = next_; n < tokens.size() && t <= last_ + 1; ++t)
      tokens[n++] = t > last_ ? kEnd : t;
    return n;
  }

 private:
  TokenId last_, next_ = 0;
  bool rewinds_;
};

class Source final : public ConstraintSource {
 public:
  Result<std::unique_ptr<TokenConstraint>> Start(std::string_view grammar, bool) override {
    if (grammar == "bad") return Error{ErrorCode::kInvalid, "it is bad"};
    return std::unique_ptr<TokenConstraint>(
        new Counting(static_cast<TokenId>(grammar.size()), grammar[0] == '.'));
  }
  TokenId end_token() const override { return kEnd; }
};

std::vector<TokenId> Allowed(ConstraintWorker& worker, SlotId id, const Slot& slot) {
  worker.Prepare(id, slot, slot.length());
  const Result<const uint32_t*> mask = worker.Await(id, 0);
  EXPECT_TRUE(mask) << mask.error().message;
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < 64; ++token) {
    if ((*mask)[token / 32] >> (token % 32) & 1) tokens.push_back(token);
  }
  return tokens;
}

Slot SlotWith(std::string grammar, std::vector<TokenId> tokens) {
  Slot slot;
  slot.grammar = std::move(grammar);
  slot.stop.stop_tokens = {kEnd, 50};
  slot.prompt_count = 2;
  slot.tokens = {7, 8};
  slot.tokens.insert(slot.tokens.end(), tokens.begin(), tokens.end());
  return slot;
}

TEST(ConstraintWorker, FollowsTheOutputAndEndsWithAnyStopToken) {
  Source source;
  ConstraintWorker worker(&source, 2, 64);
  worker.Reset(SlotId{0});
  Slot slot = SlotWith("..", {});
  EXPECT_EQ(Allowed(worker, SlotId{0}, slot), (std::vector<TokenId>{0}));
  EXPECT_EQ(Allowed(worker, SlotId{0}, slot), (std::vector<TokenId>{0})) << "asked again";
  slot.tokens.push_back(0);
  EXPECT_EQ(Allowed(worker, SlotId{0}, slot), (std::vector<TokenId>{1}));
  slot.tokens.insert(slot.tokens.end(), {1, 2});
  EXPECT_EQ(Allowed(worker, SlotId{0}, slot), (std::vector<TokenId>{kEnd, 50}));
}

TEST(ConstraintWorker, APreemptedRequestGoesOnWhereItWas) {
  Source source;
  ConstraintWorker worker(&source, 2, 64);
  for (int32_t s : {0, 1, 0}) {
    worker.Reset(SlotId{s});
    const Slot slot = SlotWith(".....", {0, 1, 2});
    EXPECT_EQ(Allowed(worker, SlotId{s}, slot), (std::vector<TokenId>{3}));
  }
}

TEST(ConstraintWorker, ThinkingIsFreeButCannotEndTheAnswer) {
  Source source;
  ConstraintWorker worker(&source, 1, 64);
  worker.Reset(SlotId{0});
  Slot slot = SlotWith("..", {5, 5});
  slot.grammar_after = kCloseThinking;
  std::vector<TokenId> allowed = Allowed(worker, SlotId{0}, slot);
  EXPECT_EQ(allowed.size(), 62u);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), kEnd), 0);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), 50), 0);
  slot.tokens.push_back(kCloseThinking);
  EXPECT_EQ(Allowed(worker, SlotId{0}, slot), (std::vector<TokenId>{0}));
}

std::vector<TokenId> AllowedAfter(ConstraintWorker& worker, SlotId id, int32_t drafts) {
  const Result<const uint32_t*> mask = worker.Await(id, drafts);
  EXPECT_TRUE(mask) << mask.error().message;
  std::vector<TokenId> tokens;
  for (TokenId token = 0; *mask != nullptr && token < 64; ++token) {
    if ((*mask)[token / 32] >> (token % 32) & 1) tokens.push_back(token);
  }
  return tokens;
}

// A grammar whose constraint can rewind, and one that must begin anew.
TEST(ConstraintWorker, FollowsDraftsAndTakesBackThoseThatDidNotBecomeOutput) {
  Source source;
  for (const std::string grammar : {"......", "xxxxxx"}) {
    ConstraintWorker worker(&source, 1, 64);
    const SlotId id{0};
    worker.Reset(id);
    Slot slot = SlotWith(grammar, {0});
    slot.tokens.insert(slot.tokens.end(), {1, 2, 9, 10});
    worker.Prepare(id, slot, 3);
    EXPECT_EQ(AllowedAfter(worker, id, 0), (std::vector<TokenId>{1}));
    EXPECT_EQ(AllowedAfter(worker, id, 1), (std::vector<TokenId>{2}));
    EXPECT_EQ(AllowedAfter(worker, id, 2), (std::vector<TokenId>{3}));
    EXPECT_EQ(AllowedAfter(worker, id, 3), (std::vector<TokenId>{})) << "9 may not come";
    EXPECT_EQ(AllowedAfter(worker, id, 4), (std::vector<TokenId>{}));
    slot.tokens.resize(4);  // one draft was right
    EXPECT_EQ(Allowed(worker, id, slot), (std::vector<TokenId>{2})) << grammar;
    slot.tokens.resize(3);  // and then none
    EXPECT_EQ(Allowed(worker, id, slot), (std::vector<TokenId>{1})) << grammar;
  }
}

TEST(ConstraintWorker, ADraftThatEndsTheAnswerIsTheLastToFollow) {
  Source source;
  ConstraintWorker worker(&source, 1, 64);
  const SlotId id{0};
  worker.Reset(id);
  Slot slot = SlotWith("..", {0, 1, 2, kEnd, 0});
  worker.Prepare(id, slot, 5);
  EXPECT_EQ(AllowedAfter(worker, id, 0), (std::vector<TokenId>{kEnd, 50}));
  EXPECT_EQ(AllowedAfter(worker, id, 1), (std::vector<TokenId>{}));
}

TEST(ConstraintWorker, TakesBackTheEndOfAThought) {
  Source source;
  ConstraintWorker worker(&source, 1, 64);
  const SlotId id{0};
  worker.Reset(id);
  Slot slot = SlotWith("....", {5, kCloseThinking, 0, 1});
  slot.grammar_after = kCloseThinking;
  worker.Prepare(id, slot, 3);
  EXPECT_EQ(AllowedAfter(worker, id, 0).size(), 62u);
  EXPECT_EQ(AllowedAfter(worker, id, 1), (std::vector<TokenId>{0}));
  EXPECT_EQ(AllowedAfter(worker, id, 3), (std::vector<TokenId>{2}));
  slot.tokens.resize(3);
  slot.tokens.push_back(6);
  EXPECT_EQ(Allowed(worker, id, slot).size(), 62u) << "the thought goes on";
  slot.tokens.push_back(kCloseThinking);
  EXPECT_EQ(Allowed(worker, id, slot), (std::vector<TokenId>{0}));
}

TEST(ConstraintWorker, ForcedTokensAreThoseOfTheGrammar) {
  Source source;
  ConstraintWorker worker(&source, 1, 64);
  const SlotId id{0};
  worker.Reset(id);
  const auto forced = [&](const Slot& slot, int32_t most) {
    std::vector<TokenId> drafts;
    worker.Forced(id, slot, most, drafts);
    return drafts;
  };
  EXPECT_EQ(forced(SlotWith("...", {0, 1}), 2), (std::vector<TokenId>{2, 3}));
  EXPECT_EQ(forced(SlotWith("...", {0, 1}), 7), (std::vector<TokenId>{2, 3, kEnd}));
  EXPECT_EQ(forced(SlotWith("...", {0, 9}), 7), (std::vector<TokenId>{})) << "an error, later";
  worker.Reset(id);
  Slot thinking = SlotWith("...", {0, 1});
  thinking.grammar_after = kCloseThinking;
  EXPECT_EQ(forced(thinking, 7), (std::vector<TokenId>{})) << "anything may come";
}

// 65 tokens fill two words and a bit of a third. Masks of drafts stand behind each other.
TEST(ConstraintWorker, MasksHaveABitForEveryToken) {
  Source source;
  ConstraintWorker worker(&source, 1, 65);
  const SlotId id{0};
  worker.Reset(id);
  Slot slot = SlotWith("..", {0, 1});
  slot.grammar_after = kCloseThinking;
  slot.stop.stop_tokens = {64};
  slot.tokens.insert(slot.tokens.end(), {kCloseThinking, 0});
  worker.Prepare(id, slot, 4);
  const Result<const uint32_t*> thought = worker.Await(id, 0), first = worker.Await(id, 1),
                                second = worker.Await(id, 2);
  ASSERT_TRUE(thought && first && second);
  EXPECT_EQ((*thought)[0], ~uint32_t{0});
  EXPECT_EQ((*thought)[1], ~uint32_t{0});
  EXPECT_EQ((*thought)[2] & 1, 0u) << "the end may not come";
  EXPECT_EQ((*first)[0], 1u);
  EXPECT_EQ((*first)[1], 0u);
  EXPECT_EQ((*second)[0], 2u);
  EXPECT_EQ((*second)[2], 0u);
}

// What the slot's last request made is nobody's when its next one asks.
TEST(ConstraintWorker, AResetSlotWaitsForMasksOfItsOwn) {
  Source source;
  ConstraintWorker worker(&source, 1, 64);
  const SlotId id{0};
  worker.Reset(id);
  EXPECT_EQ(Allowed(worker, id, SlotWith("....", {0, 1})), (std::vector<TokenId>{2}));
  worker.Reset(id);
  EXPECT_EQ(Allowed(worker, id, SlotWith("....", {0, 1, 2})), (std::vector<TokenId>{3}));
  worker.Reset(id);
  Slot thinking = SlotWith("....", {kCloseThinking});
  thinking.grammar_after = kCloseThinking;
  EXPECT_EQ(Allowed(worker, id, thinking), (std::vector<TokenId>{0}));
  worker.Reset(id);
  EXPECT_EQ(Allowed(worker, id, SlotWith(".", {0, 1})), (std::vector<TokenId>{kEnd, 50}));
}

TEST(ConstraintWorker, AnErrorIsItsRequestsOwn) {
  Source source;
  ConstraintWorker worker(&source, 3, 64);
  const Slot bad = SlotWith("bad", {}), wrong = SlotWith("..", {9}), good = SlotWith("..", {});
  for (int32_t s : {0, 1, 2}) worker.Reset(SlotId{s});
  worker.Prepare(SlotId{0}, bad, bad.length());
  worker.Prepare(SlotId{1}, wrong, wrong.length());
  EXPECT_EQ(Allowed(worker, SlotId{2}, good), (std::vector<TokenId>{0}));
  EXPECT_EQ(worker.Await(SlotId{0}, 0).error().message, "it is bad");
  EXPECT_EQ(worker.Await(SlotId{1}, 0).error().message, "not the next number");
  ConstraintWorker none(nullptr, 1, 64);
  none.Reset(SlotId{0});
  none.Prepare(SlotId{0}, good, good.length());
  EXPECT_FALSE(none.Await(SlotId{0}, 0));
}

}  // namespace
}  // namespace braid
