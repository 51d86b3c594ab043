// Threads that take turns: one at a time, and each goes on when what it awaits is reached.
#include "comm/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "comm/thread_group.h"

namespace braid {
namespace {

using std::chrono::milliseconds;

TEST(Turns, OneThreadAtATimeHasTheTurn) {
  Turns turns;
  std::atomic<int> inside = 0, most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        turns.Take();
        most = std::max<int>(most, ++inside);
        --inside;
        turns.Give();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
}

TEST(Turns, WhoAwaitsANumberGivesTheTurnUntilItIsReached) {
  Turns turns;
  turns.Take();
  turns.Reach(3);
  turns.Await(3);  // at once
  std::vector<int> order;
  std::thread other([&] {
    turns.Take();
    order.push_back(1);
    turns.Reach(4);
    order.push_back(2);
    turns.Reach(5);
    turns.Give();
  });
  turns.Await(5);
  order.push_back(3);
  turns.Give();
  other.join();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(Turns, AfterAResetNothingIsReached) {
  Turns turns;
  turns.Take();
  turns.Reach(7);
  turns.Reset();
  std::atomic<bool> reached = false;
  std::thread other([&] {
    turns.Take();
    EXPECT_FALSE(reached);
    reached = true;
    turns.Reach(1);
    turns.Give();
  });
  turns.Await(1);
  EXPECT_TRUE(reached);
  turns.Give();
  other.join();
}

// A thread that waits for the turn gets it when another one awaits a number, or a message.
TEST(Turns, WhoWaitsForTheTurnGetsItWhileAnotherAwaits) {
  Turns turns;
  turns.Take();
  std::thread other([&] {
    turns.Take();
    turns.Reach(1);
    turns.Give();
  });
  std::this_thread::sleep_for(milliseconds(30));  // the other one sleeps by now
  turns.Await(1);
  turns.Give();
  other.join();
}

TEST(Turns, AGroupGivesTheTurnDuringItsCalls) {
  ThreadGroup group(2, milliseconds(30'000));
  Turns turns;
  const auto giving = GivingTurns(group.rank(0), turns);
  EXPECT_EQ(giving->rank(), 0);
  EXPECT_EQ(giving->size(), 2);
  std::vector<int32_t> all(2), others(2);
  std::atomic<bool> calls = false, had_turn = false;
  std::thread waiting([&] {
    const int32_t mine = 7;
    turns.Take();
    calls = true;
    EXPECT_TRUE(giving->AllGather(std::as_bytes(std::span(&mine, 1)),
                                  std::as_writable_bytes(std::span(all))));
    EXPECT_TRUE(had_turn);
    turns.Give();
  });
  // The other rank comes when this one has had the turn meanwhile.
  while (!calls) std::this_thread::yield();
  turns.Take();
  had_turn = true;
  const int32_t mine = 8;
  EXPECT_TRUE(group.rank(1).AllGather(std::as_bytes(std::span(&mine, 1)),
                                      std::as_writable_bytes(std::span(others))));
  turns.Give();
  waiting.join();
  EXPECT_EQ(all, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(others, all);
}

}  // namespace
}  // namespace braid
