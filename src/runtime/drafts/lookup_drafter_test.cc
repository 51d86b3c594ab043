// What is found, where it was last, and that an index built at once is one built token by token.
#include "runtime/drafts/lookup_drafter.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace braid {
namespace {

using Tokens = std::vector<TokenId>;

Slot DraftingSlot(Tokens tokens) {
  Slot slot;
  slot.tokens = std::move(tokens);
  return slot;
}

Tokens Propose(LookupDrafter& drafter, Slot slot, int32_t count, SlotId id = SlotId(0)) {
  Tokens drafts;
  const DraftWish wish{.id = id, .slot = &slot, .count = count, .drafts = &drafts};
  drafter.Propose({ops::OpContext(), Matrix(), {&wish, 1}});
  return drafts;
}

Tokens Fresh(Tokens tokens, int32_t count) {
  LookupDrafter drafter(1, 4096);
  return Propose(drafter, DraftingSlot(std::move(tokens)), count);
}

TEST(LookupDrafter, ProposesWhatFollowedTheSameTokensBefore) {
  EXPECT_EQ(Fresh({1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 6}, 3), (Tokens{7, 8, 9}));
  EXPECT_EQ(Fresh({1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 6}, 1), (Tokens{7}));
  EXPECT_EQ(Fresh({1, 2, 3, 9, 9, 1, 2}, 2), (Tokens{3, 9})) << "two tokens are enough";
  EXPECT_EQ(Fresh({1, 2, 3, 9, 9, 2}, 2), Tokens{}) << "one is not";
  EXPECT_EQ(Fresh({1}, 2), Tokens{});
  EXPECT_EQ(Fresh({}, 2), Tokens{});
}

TEST(LookupDrafter, PrefersTheLongerRunThenTheLaterOne) {
  EXPECT_EQ(Fresh({1, 2, 3, 4, 50, 9, 3, 4, 60, 9, 1, 2, 3, 4}, 1), (Tokens{50}));
  EXPECT_EQ(Fresh({3, 4, 50, 9, 3, 4, 60, 9, 8, 3, 4}, 1), (Tokens{60}));
}

TEST(LookupDrafter, GoesOnWithWhatItProposes) {
  EXPECT_EQ(Fresh({5, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(Fresh({7, 7, 7}, 4), (Tokens{7, 7, 7, 7}));
}

TEST(LookupDrafter, IsAFunctionOfTheTokens) {
  Rng rng(3);
  LookupDrafter growing(2, 4096);
  Slot slot;
  int found = 0;
  for (int i = 0; i < 3000; ++i) {
    slot.tokens.push_back(static_cast<TokenId>(rng.Below(12)));
    const Tokens drafts = Propose(growing, slot, 7, SlotId(1));
    found += drafts.empty() ? 0 : 1;
    if (i % 100 == 0) {
      EXPECT_EQ(drafts, Fresh(slot.tokens, 7)) << i;
    }
  }
  EXPECT_GT(found, 2000);
}

TEST(LookupDrafter, ForgetsAnotherSequence) {
  LookupDrafter drafter(1, 64);
  Propose(drafter, DraftingSlot({1, 2, 3, 4, 5}), 3);
  drafter.Reset(SlotId(0));
  EXPECT_EQ(Propose(drafter, DraftingSlot({9, 1, 2}), 3), Tokens{});
}

// Runs share cells here: a cell names a place where another run may stand.
TEST(LookupDrafter, ComparesWhatItFinds) {
  Rng rng(4);
  for (int i = 0; i < 200; ++i) {
    LookupDrafter drafter(1, 4);  // 4 cells
    Slot slot;
    for (int t = 0; t < 40; ++t) slot.tokens.push_back(static_cast<TokenId>(rng.Below(100)));
    const Tokens drafts = Propose(drafter, slot, 1);
    if (drafts.empty()) continue;
    const Tokens& all = slot.tokens;
    bool stands = false;
    for (size_t p = 2; p + 1 < all.size(); ++p) {
      stands |= all[p - 2] == all[38] && all[p - 1] == all[39] && all[p] == drafts[0];
    }
    EXPECT_TRUE(stands);
  }
}

TEST(LookupDrafter, SaysItsMemory) {
  EXPECT_EQ(LookupDrafter::Bytes(1, 4096), 8 * 4096);
  EXPECT_EQ(LookupDrafter::Bytes(64, 1'000'000), 64 * int64_t{512} * 1024);
}

}  // namespace
}  // namespace braid
