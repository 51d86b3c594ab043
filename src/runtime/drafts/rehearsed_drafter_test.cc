// Drafts of known answers are right as often as asked for; those of others are the head's.
#include "runtime/drafts/rehearsed_drafter.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

using Tokens = std::vector<TokenId>;

// Proposes nines.
class Nines final : public Drafter {
 public:
  void Reset(SlotId) override { ++resets; }
  void Propose(const DraftStep& step) override {
    for (const DraftWish& wish : step.rows) {
      wish.drafts->assign(static_cast<size_t>(wish.count), TokenId(9));
    }
  }
  int resets = 0;
};

Tokens Proposals(Drafter& drafter, Tokens tokens, int32_t count) {
  Slot slot;
  slot.tokens = std::move(tokens);
  Tokens drafts;
  const DraftWish wish{.id = SlotId(0), .slot = &slot, .count = count, .drafts = &drafts};
  drafter.Propose({ops::OpContext(), Matrix(), {&wish, 1}});
  return drafts;
}

TEST(RehearsedDrafter, ProposesWhatIsKnownToFollow) {
  Nines head;
  const Rehearsal rehearsal{.acceptance = 1, .sequences = {{1, 2, 3, 4, 5}, {1, 3, 5, 7}}};
  RehearsedDrafter drafter(head, rehearsal);
  EXPECT_EQ(Proposals(drafter, {1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(Proposals(drafter, {1, 3}, 2), (Tokens{5, 7}));
  EXPECT_EQ(Proposals(drafter, {1, 2, 3, 4}, 3), (Tokens{5})) << "the answer ends";
  EXPECT_EQ(Proposals(drafter, {1, 2}, 0), Tokens{}) << "none are wanted";
  EXPECT_EQ(Proposals(drafter, {2, 2}, 2), (Tokens{9, 9})) << "nobody knows it";
  EXPECT_EQ(Proposals(drafter, {1, 2, 3, 4, 5}, 1), (Tokens{9})) << "nor how it goes on";
  drafter.Reset(SlotId(0));
  EXPECT_EQ(head.resets, 1);
}

TEST(RehearsedDrafter, ErrsAsOftenAsAskedFor) {
  Nines head;
  Rehearsal rehearsal{.acceptance = 0.8, .sequences = {Tokens(10001)}};
  for (size_t i = 0; i < 10001; ++i) rehearsal.sequences[0][i] = static_cast<TokenId>(i % 7);
  RehearsedDrafter drafter(head, rehearsal);
  const Tokens& all = rehearsal.sequences[0];
  const Tokens drafts = Proposals(drafter, {all[0]}, 10000);
  int right = 0;
  for (size_t i = 0; i < drafts.size(); ++i) right += drafts[i] == all[i + 1];
  EXPECT_NEAR(right, 8000, 150);
  EXPECT_EQ(Proposals(drafter, {all[0]}, 10000), drafts);
}

}  // namespace
}  // namespace braid
