// Threads that take turns: one at a time, and each goes on when what it awaits is reached.
#include "comm/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace braid {
namespace {

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

}  // namespace
}  // namespace braid
