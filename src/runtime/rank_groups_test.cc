// Ranks that are threads: what ends one of their groups ends all.
#include "runtime/rank_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <thread>
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

// Tokens are shared by the ranks of a group, experts by as many neighbours as --ep says. Messages
// of one group do not meet those of another.
TEST(ThreadRanks, HaveTheirNeighboursInEachGroup) {
  for (const Mesh mesh : {Mesh{.dp = 2, .tp = 2, .ep = 4}, Mesh{.dp = 4, .tp = 1, .ep = 2}}) {
    ThreadRanks ranks(mesh, std::chrono::seconds(60));
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        const std::vector<Communicator*> groups = GroupsOf(ranks, rank);
        const int32_t sizes[] = {mesh.tp, mesh.ep, 4, mesh.tp, mesh.ep, mesh.ep};
        for (size_t g = 0; g < groups.size(); ++g) {
          const int32_t size = sizes[g], first = rank / size * size;
          ASSERT_EQ(groups[g]->size(), size) << "group " << g;
          ASSERT_EQ(groups[g]->rank(), rank - first) << "group " << g;
          const std::array<int32_t, 2> said = {rank, static_cast<int32_t>(g)};
          std::vector<std::array<int32_t, 2>> all(static_cast<size_t>(size));
          ASSERT_TRUE(groups[g]->AllGather(std::as_bytes(std::span(said)),
                                           std::as_writable_bytes(std::span(all))));
          for (int32_t i = 0; i < size; ++i) {
            const std::array<int32_t, 2> want = {first + i, said[1]};
            EXPECT_EQ(all[static_cast<size_t>(i)], want) << "group " << g;
          }
          const auto same = std::count(groups.begin(), groups.end(), groups[g]);
          EXPECT_EQ(same, 1) << "group " << g;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace braid
