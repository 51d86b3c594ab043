// The thread pool: every task runs exactly once, loops of any size follow each other, sleeping
// members wake up.
#include "base/system/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/system/topology.h"
#include "base/trace.h"

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

TEST(ThreadPool, WhatOneMemberHoldsUpTheOthersDoNot) {
  ThreadPool pool(2);
  std::atomic<bool> release{false};
  std::atomic<int> entered{0};
  std::thread holder([&] {
    while (entered.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    release.store(true);
  });
  // Whoever takes task 0 waits; the other one runs all the rest meanwhile.
  std::atomic<int> rest{0};
  pool.Run(100, [&](int64_t task, int) {
    if (task != 0) {
      rest.fetch_add(1);
      return;
    }
    entered.store(1);
    while (!release.load()) std::this_thread::yield();
  });
  holder.join();
  EXPECT_EQ(rest.load(), 99);
}

TEST(ThreadPool, FarMoreThreadsThanCoresStillFinishEveryLoop) {
  ThreadPool pool(64);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 200; ++round) {
    pool.Run(130, [&](int64_t task, int) { sum.fetch_add(task); });
  }
  EXPECT_EQ(sum.load(), int64_t{200} * 130 * 129 / 2);
}

// Members may still be on their way into the loop, or be about to join the one that ends them.
TEST(ThreadPool, APoolMayEndRightAfterALoop) {
  std::atomic<int64_t> ran{0};
  for (int pools = 0; pools < 500; ++pools) {
    ThreadPool pool(8);
    pool.Run(8, [&](int64_t, int) { ran.fetch_add(1); });
  }
  EXPECT_EQ(ran.load(), 500 * 8);
}

TEST(ThreadPool, BoundMembersRunOnTheirCpus) {
  const std::vector<int> mask = AffinityMask();
  if (mask.size() < 2) GTEST_SKIP() << "needs two CPUs";
  ThreadPool pool(2, {.cpus = {{mask[0]}, {mask[1]}}, .nodes = {}});
  std::atomic<int> arrived{0};
  int cpus[2] = {-1, -1};
  std::thread caller([&] {
    pool.BindCaller();
    // Both must arrive, so each member takes one task.
    pool.Run(2, [&](int64_t, int member) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
      cpus[member] = ::sched_getcpu();
    });
  });
  caller.join();
  EXPECT_EQ(cpus[0], mask[0]);
  EXPECT_EQ(cpus[1], mask[1]);
}

TEST(ThreadPool, MembersTakeTheTasksOfTheirNodeFirstAndThenHelp) {
  ThreadPool pool(4, {.cpus = {}, .nodes = {3, 3, 7, 7}});
  EXPECT_EQ(pool.nodes(), (std::vector<int>{3, 7}));
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{20, 40}, {2, 40}, {37, 40}}) {
    std::atomic<int> entered{0};
    std::vector<std::atomic<int>> runs(40);
    std::array<std::atomic<int64_t>, 4> first;
    for (auto& task : first) task = -1;
    pool.Run(
        40,
        [&](int64_t task, int member) {
          runs[static_cast<size_t>(task)].fetch_add(1);
          std::atomic<int64_t>& mine = first[static_cast<size_t>(member)];
          if (mine >= 0) return;
          mine = task;
          // Nobody takes a second task before everybody has one.
          entered.fetch_add(1);
          while (entered.load() < 4) std::this_thread::yield();
        },
        ends);
    for (auto& count : runs) EXPECT_EQ(count.load(), 1);
    for (size_t member = 0; member < 4; ++member) {
      EXPECT_EQ(first[member] < ends[0], member < 2) << "member " << member;
    }
  }
  // All of it may be one node's: the others help.
  std::atomic<int> done{0};
  pool.Run(9, [&](int64_t, int) { done.fetch_add(1); }, std::vector<int64_t>{0, 9});
  EXPECT_EQ(done.load(), 9);
}

TEST(ThreadPool, ATraceHasEveryLoopOfEveryMemberUnderItsLabel) {
  ThreadPool pool(2);
  Trace trace(2, 100);
  pool.set_trace(&trace);
  std::atomic<int> arrived{0};
  {
    const TraceSpan span(pool.trace(), "product", 7);
    pool.Run(2, [&](int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
  }
  pool.set_trace(nullptr);
  pool.Run(2, [](int64_t, int) {});
  const auto json = ParseJson(trace.ToJson(), "trace");
  ASSERT_TRUE(json) << json.error().message;
  int spans[2] = {0, 0};
  for (const json::value& event : json->at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    EXPECT_EQ(event.at("name").as_string(), "product");
    EXPECT_GE(event.at("dur").to_number<double>(), 0);
    ++spans[event.at("tid").as_int64()];
  }
  EXPECT_EQ(spans[0], 2);  // the op, and its loop inside
  EXPECT_EQ(spans[1], 1);
}

TEST(ThreadPool, AFullTraceRecordsNoMore) {
  Trace trace(1, 3);
  for (int i = 0; i < 5; ++i) trace.Record(0, "x", 0, i);
  EXPECT_EQ(trace.ToJson().find("\"count\":3"), std::string::npos);
  EXPECT_NE(trace.ToJson().find("\"count\":2"), std::string::npos);
}

}  // namespace
}  // namespace braid
