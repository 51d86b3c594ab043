// Mirrors of running sequences, and when the end of a thought is forced.
#include "runtime/slots.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

constexpr TokenId kOpen = 100, kClose = 101;

TokenId Forced(ThinkingLimit limit, std::vector<TokenId> output) {
  Slot slot;
  slot.thinking = limit;
  slot.prompt_count = 1;
  slot.tokens = {kClose};  // of an earlier turn: nothing to do with this thought
  slot.tokens.insert(slot.tokens.end(), output.begin(), output.end());
  return slot.ForcedToken(slot.length());
}

TEST(Slot, EndsAThoughtAfterSoManyTokens) {
  const ThinkingLimit two{.tokens_max = 2, .open = -1, .close = kClose};
  EXPECT_EQ(Forced(two, {}), -1);
  EXPECT_EQ(Forced(two, {1}), -1);
  EXPECT_EQ(Forced(two, {1, 2}), kClose);
  EXPECT_EQ(Forced(two, {1, 2, kClose}), -1);
  EXPECT_EQ(Forced(two, {1, 2, kClose, 3, 4}), -1);
  EXPECT_EQ(Forced(two, {1, kClose}), -1) << "it has ended by itself";
  EXPECT_EQ(Forced({.tokens_max = 0, .open = -1, .close = kClose}, {}), kClose);
  EXPECT_EQ(Forced({.tokens_max = 0, .open = -1, .close = kClose}, {kClose}), -1);
}

TEST(Slot, CountsFromTheTokenThatOpensTheThought) {
  const ThinkingLimit one{.tokens_max = 1, .open = kOpen, .close = kClose};
  EXPECT_EQ(Forced(one, {7}), -1);
  EXPECT_EQ(Forced(one, {kOpen}), -1);
  EXPECT_EQ(Forced(one, {7, kOpen, 8}), kClose);
  EXPECT_EQ(Forced(one, {1, 2, 3, 4, 5, 6, 7, kOpen, 9}), kClose) << "the eighth token";
  EXPECT_EQ(Forced(one, {1, 2, 3, 4, 5, 6, 7, 8, kOpen, 9}), -1) << "that is content";
  EXPECT_EQ(Forced({}, {kOpen, 1, 2, 3}), -1) << "no limit";
}

class SlotsTest : public ::testing::Test {
 protected:
  SlotsTest() {
    request_.id = RequestId(5);
    request_.role = RequestRole::kDecode;
    request_.prompt = {1, 2, 3};
    request_.logprobs = 2;
    request_.prompt_logprobs = 1;
    request_.sampling.seed = 77;
    request_.stop.stop_tokens = {4};
    request_.grammar = "g";
    request_.grammar_after = 8;
    request_.thinking.tokens_max = 3;
  }
  Plan Admission(std::vector<TokenId> output) const {
    Plan plan;
    plan.admissions.push_back({SlotId(1), &request_, std::move(output)});
    return plan;
  }
  const std::byte* Address(int64_t offset) const { return arena_.data() + offset; }

  const CacheGeometry geometry_{
      .groups = {{"full", GroupKind::kFull, 32, 2}, {"state", GroupKind::kState, 64, 1}},
      .page_bytes = 64,
      .pages = 10};
  std::vector<std::byte> arena_ = std::vector<std::byte>(640);
  Slots slots_{geometry_, arena_.data(), 2, 256};
  Request request_;
};

TEST_F(SlotsTest, AnAdmissionTakesOverTheRequestAndItsOutput) {
  slots_.Begin(Admission({9, 10}));
  const Slot& slot = slots_[SlotId(1)];
  EXPECT_EQ(slot.request, RequestId(5));
  EXPECT_EQ(slot.role, RequestRole::kDecode);
  EXPECT_EQ(slot.tokens, (std::vector<TokenId>{1, 2, 3, 9, 10}));
  EXPECT_EQ(slot.prompt().size(), 3u);
  EXPECT_EQ(slot.output(slot.length()).size(), 2u);
  EXPECT_EQ(slot.output(slot.length())[0], 9);
  EXPECT_EQ(slot.logprobs, 2);
  EXPECT_EQ(slot.prompt_logprobs, 1);
  EXPECT_EQ(slot.sampling, request_.sampling);
  EXPECT_EQ(slot.stop, request_.stop);
  EXPECT_EQ(slot.grammar, "g");
  EXPECT_EQ(slot.grammar_after, 8);
  EXPECT_EQ(slot.thinking, request_.thinking);
}

TEST_F(SlotsTest, TablesHoldAddressesAndHolesAndEndWithTheSlot) {
  Plan plan = Admission({});
  plan.tables = {{SlotId(1), GroupId(0), 0, BlockId(5)},
                 {SlotId(1), GroupId(0), 1, BlockId(6)},
                 {SlotId(1), GroupId(1), 2, BlockId(3)}};
  slots_.Begin(plan);
  const Row row{.slot = SlotId(1), .request = RequestId(5), .token_count = 2, .start = 1};
  const ops::SequenceSpan span = slots_.SpanOf(row, 7);
  EXPECT_EQ(span.token_begin, 7);
  EXPECT_EQ(span.token_count, 2);
  EXPECT_EQ(span.start, 1);
  EXPECT_EQ(span.tables[0][0], Address(2 * 64 + 32));  // two blocks in a page
  EXPECT_EQ(span.tables[0][1], Address(3 * 64));
  EXPECT_EQ(span.tables[1][2], Address(3 * 64));
  EXPECT_EQ(span.tables[1][1], nullptr);
  Plan hole;
  hole.tables = {{SlotId(1), GroupId(1), 2, BlockId()}};
  slots_.Begin(hole);
  EXPECT_EQ(span.tables[1][2], nullptr);
  EXPECT_NE(span.tables[0][0], nullptr);
  Plan end;
  end.released = {SlotId(1)};
  slots_.End(end);
  EXPECT_FALSE(slots_[SlotId(1)].request.valid());
  EXPECT_TRUE(slots_[SlotId(1)].tokens.empty());
  EXPECT_EQ(span.tables[0][0], nullptr);
}

TEST_F(SlotsTest, AnAdmissionForgetsWhatTheSlotHeldBefore) {
  Plan plan = Admission({9});
  plan.tables = {{SlotId(1), GroupId(0), 3, BlockId(5)}};
  slots_.Begin(plan);
  request_.id = RequestId(6);
  request_.prompt = {7};
  slots_.Begin(Admission({}));
  const Row row{.slot = SlotId(1), .request = RequestId(6), .token_count = 1};
  EXPECT_EQ(slots_.SpanOf(row, 0).tables[0][3], nullptr);
  EXPECT_EQ(slots_[SlotId(1)].tokens, std::vector<TokenId>{7});
}

// 256 tokens, and the block after them, which a chain of drafts may name.
TEST_F(SlotsTest, ATableHasAnEntryBeyondTheContext) {
  Plan plan = Admission({});
  plan.tables = {{SlotId(1), GroupId(1), 4, BlockId(3)}};
  slots_.Begin(plan);
  const Row row{.slot = SlotId(1), .request = RequestId(5), .token_count = 1};
  EXPECT_EQ(slots_.SpanOf(row, 0).tables[1][4], Address(3 * 64));
  Slots odd(geometry_, arena_.data(), 2, 193);  // a part of the fourth block
  odd.Begin(plan);
  EXPECT_EQ(odd.SpanOf(row, 0).tables[1][4], Address(3 * 64));
}

TEST_F(SlotsTest, OtherSlotsStayWhenOneIsReleased) {
  Plan plan = Admission({9});
  plan.admissions.push_back({SlotId(0), &request_, {}});
  plan.tables = {{SlotId(1), GroupId(0), 0, BlockId(5)}, {SlotId(0), GroupId(0), 0, BlockId(7)}};
  slots_.Begin(plan);
  Plan end;
  end.released = {SlotId(0)};
  slots_.End(end);
  EXPECT_TRUE(slots_[SlotId(0)].tokens.empty());
  EXPECT_EQ(slots_[SlotId(1)].tokens.size(), 4u);
  const Row row{.slot = SlotId(1), .request = RequestId(5), .token_count = 1};
  EXPECT_EQ(slots_.SpanOf(row, 0).tables[0][0], Address(2 * 64 + 32));
}

using SlotsDeathTest = SlotsTest;

TEST_F(SlotsDeathTest, SlotsAndBlocksThatDoNotExistOrAreAnothersStopTheProgram) {
  slots_.Begin(Admission({}));
  EXPECT_DEATH(slots_[SlotId(2)], "slot 2");
  EXPECT_DEATH(slots_[SlotId()], "slot -1");
  const Row row{.slot = SlotId(1), .request = RequestId(4)};
  EXPECT_DEATH(slots_.SpanOf(row, 0), "slot 1 belongs to request 5, the row to 4");
  for (const TableUpdate& update : {TableUpdate{SlotId(1), GroupId(2), 0, BlockId(5)},
                                    TableUpdate{SlotId(1), GroupId(0), 5, BlockId(5)}}) {
    Plan plan;
    plan.tables = {update};
    EXPECT_DEATH(slots_.Begin(plan), "block .* of cache group");
  }
  const CacheGeometry most{.groups = std::vector<GroupGeometry>(kCacheGroupsMax)};
  Slots(most, nullptr, 1, 64);
  const CacheGeometry many{.groups = std::vector<GroupGeometry>(kCacheGroupsMax + 1)};
  EXPECT_DEATH(Slots(many, nullptr, 1, 64), "9 cache groups, at most 8");
}

}  // namespace
}  // namespace braid
