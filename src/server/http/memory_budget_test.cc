// Holds within the limit, what is refused above it, and the process's own memory.
#include "server/http/memory_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace braid {
namespace {

TEST(MemoryBudget, HoldsUpToTheLimitAndGetsBytesBack) {
  MemoryBudget budget({.server_bytes = 100});
  {
    const auto one = budget.Take(60, 0);
    ASSERT_TRUE(one);
    EXPECT_FALSE(budget.Take(41, 0));
    EXPECT_FALSE(budget.Take(30, 11)) << "spare bytes must be there too";
    const auto two = budget.Take(40, 0);
    EXPECT_TRUE(two);
    EXPECT_EQ(budget.stats().used_bytes, 100);
  }
  EXPECT_EQ(budget.stats().used_bytes, 0);
  EXPECT_EQ(budget.stats().shed, 2);
  EXPECT_EQ(budget.TakePeak(), 100);
  EXPECT_EQ(budget.TakePeak(), 0);
}

TEST(MemoryBudget, RoomThatIsLookedForIsNotHeld) {
  MemoryBudget budget({.server_bytes = 100});
  EXPECT_TRUE(budget.HasRoom(60, 40));
  EXPECT_EQ(budget.stats().used_bytes, 0);
  EXPECT_EQ(budget.TakePeak(), 0);
  EXPECT_FALSE(budget.HasRoom(60, 41));
  EXPECT_EQ(budget.stats().shed, 1);
}

// Another thread asks for more than there is, again and again.
TEST(MemoryBudget, WhatIsRefusedRefusesNobodyElse) {
  MemoryBudget budget({.server_bytes = 100});
  std::atomic<bool> over = false;
  std::thread greedy([&] {
    while (!over) EXPECT_FALSE(budget.Take(101, 0));
  });
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) refused += budget.Take(100, 0).has_value() ? 0 : 1;
  over = true;
  greedy.join();
  EXPECT_EQ(refused, 0);
}

TEST(MemoryBudget, AHoldThatMovesIsGivenBackOnce) {
  MemoryBudget budget({.server_bytes = 100});
  std::vector<MemoryBudget::Hold> holds;
  for (int i = 0; i < 10; ++i) holds.push_back(*budget.Take(10, 0));
  EXPECT_EQ(budget.stats().used_bytes, 100);
  holds.clear();
  EXPECT_EQ(budget.stats().used_bytes, 0);
}

TEST(MemoryBudget, AHoldGrowsWhileThereIsRoomAndGivesAllBack) {
  MemoryBudget budget({.server_bytes = 100});
  {
    auto hold = budget.Take(10, 0);
    ASSERT_TRUE(hold);
    EXPECT_TRUE(hold->Grow(50, 40));
    EXPECT_FALSE(hold->Grow(20, 21)) << "spare bytes must be there too";
    EXPECT_EQ(hold->bytes(), 60);
    EXPECT_EQ(budget.stats().used_bytes, 60) << "what was refused is not held";
    EXPECT_TRUE(hold->Grow(20, 20));
    EXPECT_EQ(budget.TakePeak(), 80);
  }
  EXPECT_EQ(budget.stats().used_bytes, 0);
  EXPECT_EQ(budget.stats().shed, 1);
}

TEST(MemoryBudget, AHoldThatShrinksGivesNoMoreBackThanItHas) {
  MemoryBudget budget({.server_bytes = 100});
  auto hold = budget.Take(60, 0);
  ASSERT_TRUE(hold);
  hold->Shrink(20);
  EXPECT_EQ(hold->bytes(), 40);
  EXPECT_EQ(budget.stats().used_bytes, 40);
  hold->Shrink(50);
  EXPECT_EQ(hold->bytes(), 0);
  EXPECT_EQ(budget.stats().used_bytes, 0);
  hold.reset();
  EXPECT_EQ(budget.stats().used_bytes, 0);
}

TEST(MemoryBudget, AHoldThatGrowsInSmallStepsIsLargeInTheEnd) {
  constexpr int64_t kMib = 1 << 20;
  MemoryBudget budget({.server_bytes = 1000 * kMib, .process_bytes = 500 * kMib});
  budget.NoteResident(500 * kMib);
  auto hold = budget.Take(kMib - 1, 0);
  ASSERT_TRUE(hold);
  EXPECT_FALSE(hold->Grow(1, 0)) << "resident memory is at its limit";
}

TEST(MemoryBudget, ResidentMemoryCountsWhateverIsHeld) {
  constexpr int64_t kMib = 1 << 20;
  MemoryBudget budget({.server_bytes = 1000 * kMib, .process_bytes = 500 * kMib});
  budget.NoteResident(450 * kMib);
  const auto first = budget.Take(30 * kMib, 0);
  EXPECT_TRUE(first);
  EXPECT_FALSE(budget.Take(30 * kMib, 0)) << "not resident yet, but promised";
  budget.NoteResident(400 * kMib);
  EXPECT_TRUE(budget.Take(30 * kMib, 0));
  budget.SetLimits({.server_bytes = 1000 * kMib, .process_bytes = 300 * kMib});
  EXPECT_FALSE(budget.Take(kMib, 0));
  EXPECT_TRUE(budget.Take(kMib - 1, 0)) << "small requests go on";
}

TEST(MemoryBudget, TheProcessSaysWhatItHas) {
  const int64_t before = ResidentBytes();
  EXPECT_GT(before, 1 << 20);
  std::vector<char> more(64 << 20, 'a');
  EXPECT_GT(ResidentBytes(), before + (32 << 20)) << more[1];
}

}  // namespace
}  // namespace braid
