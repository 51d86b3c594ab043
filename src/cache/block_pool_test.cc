// The pool hands out every block once, in a fixed order, and counts right. Numbers in names (C1.n)
// are those of the behavioural scenarios.
#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace braid {
namespace {

constexpr GroupId kA(0), kB(1);

CacheGeometry TwoGroups(int32_t pages, int32_t packed_a, int32_t packed_b) {
  return {.groups = {{"a", GroupKind::kFull, 64, packed_a}, {"b", GroupKind::kState, 64, packed_b}},
          .page_bytes = 8192,
          .pages = pages};
}

BlockCounts Counts(int32_t a, int32_t b) { return {{a, b}}; }

TEST(BlockPool, C1_1_HandsOutEveryParentButTheSink) {
  BlockPool pool(TwoGroups(8, 1, 1));
  std::set<BlockId> taken;
  for (int i = 0; i < 7; ++i) taken.insert(pool.Take(kA));
  EXPECT_EQ(taken.size(), 7u);
  EXPECT_EQ(taken.begin()->value, 1);
  EXPECT_EQ(taken.rbegin()->value, 7);
  EXPECT_FALSE(pool.CanTake(Counts(1, 0)));
  EXPECT_DEATH(pool.Take(kA), "no block of group 0 is free");
}

TEST(BlockPool, C1_2_SaysNoToMoreThanThereIsAndTakesNothing) {
  BlockPool pool(TwoGroups(4, 1, 1));
  EXPECT_FALSE(pool.CanTake(Counts(4, 0)));
  EXPECT_FALSE(pool.CanTake(Counts(2, 2)));
  EXPECT_TRUE(pool.CanTake(Counts(2, 1)));
  EXPECT_EQ(pool.pages_used(), 0);
}

TEST(BlockPool, C1_3_ABoundParentServesOtherGroupsOnlyWhenItIsEmptyAgain) {
  BlockPool pool(TwoGroups(3, 4, 2));
  pool.Take(kB);
  pool.Take(kB);  // page 1 is full
  const BlockId first = pool.Take(kA);
  EXPECT_EQ(first, BlockId(8));
  EXPECT_FALSE(pool.CanTake(Counts(0, 1)));
  EXPECT_TRUE(pool.CanTake(Counts(3, 0)));
  EXPECT_TRUE(pool.CanMake(Counts(3, 0)));
  EXPECT_FALSE(pool.CanMake(Counts(4, 0)));
  pool.Release(kA, first);
  EXPECT_TRUE(pool.CanTake(Counts(0, 2)));
  EXPECT_EQ(pool.Take(kB), BlockId(4));
}

TEST(BlockPool, C1_4_PrefersTheFullestParentOfTheGroup) {
  BlockPool pool(TwoGroups(4, 4, 1));
  std::vector<BlockId> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.Take(kA));
  for (int i : {0, 1, 2, 5}) pool.Release(kA, blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(pool.Take(kA), blocks[5]);  // page 2 has 3 of 4, page 1 has 1 of 4
  EXPECT_EQ(pool.Take(kA), blocks[0]);
}

TEST(BlockPool, C1_5_C1_9_OrderDependsOnIdsNotOnTheOrderOfReleases) {
  BlockPool pool(TwoGroups(5, 1, 1));
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.Take(kA));
  for (int i : {2, 0, 1}) pool.Release(kA, blocks[static_cast<size_t>(i)]);
  EXPECT_EQ(pool.Take(kB), BlockId(1));
  EXPECT_EQ(pool.Take(kA), BlockId(2));
  EXPECT_EQ(pool.Take(kA), BlockId(3));
}

TEST(BlockPool, C1_6_AReleasedSiblingLeavesTheOthersAndItsPlaceIsUsedAgain) {
  BlockPool pool(TwoGroups(3, 2, 1));
  const BlockId first = pool.Take(kA), second = pool.Take(kA);
  pool.Release(kA, first);
  EXPECT_FALSE(pool.CanTake(Counts(0, 2)));  // its page stays bound
  EXPECT_EQ(pool.Take(kA), first);
  pool.Release(kA, second);
  pool.Release(kA, first);
  EXPECT_TRUE(pool.CanTake(Counts(0, 2)));
}

TEST(BlockPool, C1_8_StopsOnADoubleFreeOnAForeignBlockAndOnTheSink) {
  BlockPool pool(TwoGroups(4, 2, 1));
  const BlockId block = pool.Take(kA);
  pool.Take(kA);
  pool.Release(kA, block);
  EXPECT_DEATH(pool.Release(kA, block), "is not in use");
  EXPECT_DEATH(pool.Release(kB, BlockId(1)), "is not in use");
  EXPECT_DEATH(pool.Release(kA, BlockId(0)), "block 0");
  EXPECT_DEATH(pool.Release(kA, BlockId(99)), "block 99");
}

TEST(BlockPool, C5_69_WhatCanTakePromisesCanBeTakenInAnyHistory) {
  Rng rng(7);
  BlockPool pool(TwoGroups(12, 3, 70));
  std::vector<BlockId> owned[2];
  for (int round = 0; round < 20000; ++round) {
    const size_t g = static_cast<size_t>(rng.Below(2));
    const GroupId group(static_cast<int32_t>(g));
    if (rng.Below(2) == 0) {
      const BlockCounts want =
          Counts(static_cast<int32_t>(rng.Below(6)), static_cast<int32_t>(rng.Below(90)));
      if (!pool.CanTake(want)) continue;
      for (size_t k = 0; k < 2; ++k) {
        for (int32_t i = 0; i < want.by_group[k]; ++i) {
          owned[k].push_back(pool.Take(GroupId(static_cast<int32_t>(k))));
        }
      }
    } else if (!owned[g].empty()) {
      for (int64_t n = 1 + rng.Below(static_cast<int64_t>(owned[g].size())); n > 0; --n) {
        const size_t i = static_cast<size_t>(rng.Below(static_cast<int64_t>(owned[g].size())));
        pool.Release(group, owned[g][i]);
        owned[g].erase(owned[g].begin() + static_cast<ptrdiff_t>(i));
      }
    }
    if (round % 64 != 0) continue;
    ASSERT_TRUE(pool.Audit().ok()) << pool.Audit().error().message;
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(std::set(owned[k].begin(), owned[k].end()).size(), owned[k].size());
      EXPECT_EQ(pool.blocks_used(GroupId(static_cast<int32_t>(k))),
                static_cast<int64_t>(owned[k].size()));
    }
  }
}

TEST(IdSet, LowestFollowsInsertionsAndErasuresAcrossLevels) {
  IdSet set(300000);
  EXPECT_EQ(set.Lowest(), -1);
  for (int32_t id : {299999, 64, 4096, 262144}) set.Insert(id);
  for (int32_t id : {64, 4096, 262144, 299999}) {
    EXPECT_EQ(set.Lowest(), id);
    set.Erase(id);
  }
  EXPECT_TRUE(set.empty());
  EXPECT_DEATH(set.Erase(64), "id 64");
}

}  // namespace
}  // namespace braid
