// The thread pool: every task runs exactly once, loops of any size follow each other, sleeping
// members wake up.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace braid {
namespace {

TEST(ThreadPool, EveryTaskRunsExactlyOnceWithAValidMember) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.Run(tasks, [&](int64_t task, int member) {
        ASSERT_GE(member, 0);
        ASSERT_LT(member, threads);
        runs[static_cast<size_t>(task)].fetch_add(1);
      });
      for (auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortLoopsSeeEachOthersWrites) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64);
  for (int64_t round = 0; round < 5000; ++round) {
    pool.Run(64, [&](int64_t task, int) {
      int64_t& value = values[static_cast<size_t>(task)];
      ASSERT_EQ(value, round);
      value = round + 1;
    });
  }
}

TEST(ThreadPool, MembersThatFellAsleepWakeUp) {
  ThreadPool pool(2);
  std::atomic<int> sum{0};
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.Run(8, [&](int64_t, int) { sum.fetch_add(1); });
  }
  EXPECT_EQ(sum.load(), 40);
}

}  // namespace
}  // namespace braid
