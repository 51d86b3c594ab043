// Ranks that are threads: what ends one of their groups ends all.
#include "runtime/rank_groups.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid {
namespace {

std::vector<Communicator*> GroupsOf(ThreadRanks& ranks, int32_t rank) {
  const ops::Ranks first = ranks.Of(rank), second = ranks.SecondOf(rank);
  return {first.tensor,  first.experts,  first.all,
          second.tensor, second.experts, &ranks.MovesOf(rank)};
}

// Otherwise ranks that wait elsewhere would go on, with steps that fail for ever.
TEST(ThreadRanks, ARankThatOneGroupMissesEndsAllGroups) {
  for (size_t group = 0; group < 6; ++group) {
    ThreadRanks ranks({.dp = 2, .tp = 2, .ep = 2}, std::chrono::milliseconds(20));
    ASSERT_FALSE(GroupsOf(ranks, 2)[group]->Barrier());
    for (int32_t rank = 0; rank < 4; ++rank) {
      for (Communicator* other : GroupsOf(ranks, rank)) {
        const Status status = other->Barrier();
        ASSERT_FALSE(status) << "rank " << rank;
        const bool of_all = group == 2;
        EXPECT_EQ(status.error().message, of_all ? "no word from rank 0, 1, 3 within 20 ms"
                                                 : "no word from rank 3 within 20 ms");
      }
    }
  }
}

}  // namespace
}  // namespace braid
