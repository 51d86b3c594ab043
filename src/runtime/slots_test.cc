// When the end of a thought is forced.
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
  return slot.ForcedToken();
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
  EXPECT_EQ(Forced(one, {1, 2, 3, 4, 5, 6, 7, 8, kOpen, 9}), -1) << "that is content";
  EXPECT_EQ(Forced({}, {kOpen, 1, 2, 3}), -1) << "no limit";
}

}  // namespace
}  // namespace braid
