// Computing counts and waiting does not; in each part the slowest rank of all counts.
#include "comm/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/system/thread_time.h"
#include "comm/thread_group.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr milliseconds kDeadline{30'000};
constexpr int64_t kMs = 1'000'000;

void Compute(int64_t ms) {
  const int64_t end_ns = ThreadCpuNs() + ms * kMs;
  while (ThreadCpuNs() < end_ns) {
  }
}

TEST(StepTimes, PartsCountWhatIsComputedAndNotWhatIsWaitedFor) {
  ThreadGroup group(2, kDeadline);
  StepTimes times[2];
  std::pair<int64_t, int64_t> took[2];  // wall and CPU time of all
  const auto run = [&](int32_t rank) {
    StepTimes& own = times[rank];
    const int64_t wall_ns = MonotonicNs(), cpu_ns = ThreadCpuNs();
    const auto timed = own.Timed(group.rank(rank), 7);
    own.Begin(5);
    Compute(rank == 0 ? 1 : 20);  // rank 0 waits
    EXPECT_TRUE(timed->Barrier());
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_TRUE(timed->Barrier());
    own.End({});
    took[rank] = {MonotonicNs() - wall_ns, ThreadCpuNs() - cpu_ns};
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  const std::vector<RankStep> first = times[0].Take(), second = times[1].Take();
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_THAT(first[0].parts, ElementsAre(Field(&StepPart::group, 7), Field(&StepPart::group, 7),
                                          Field(&StepPart::group, StepPart::kEnd)));
  EXPECT_GE(first[0].parts[0].cpu_ns, kMs);
  EXPECT_LT(first[0].parts[0].cpu_ns, 15 * kMs);
  EXPECT_LT(first[0].parts[1].cpu_ns, 15 * kMs);  // it slept
  EXPECT_GE(second[0].parts[0].cpu_ns, 20 * kMs);
  EXPECT_GE(first[0].wall_ns, 40 * kMs);
  for (const int32_t rank : {0, 1}) {
    const RankStep& step = rank == 0 ? first[0] : second[0];
    EXPECT_LE(step.wall_ns, took[rank].first);
    int64_t cpu_ns = 0;
    for (const StepPart& part : step.parts) cpu_ns += part.cpu_ns;
    EXPECT_LE(cpu_ns, took[rank].second);
  }
  EXPECT_EQ(first[0].tokens, 5);
  EXPECT_TRUE(times[0].Take().empty());
}

TEST(StepTimes, MessagesArriveAsThroughTheGroup) {
  ThreadGroup group(2, kDeadline);
  StepTimes times[2];
  std::vector<int32_t> gathered[2] = {std::vector<int32_t>(2), std::vector<int32_t>(2)};
  const auto run = [&](int32_t rank) {
    const auto timed = times[rank].Timed(group.rank(rank), 0);
    const int32_t mine = 40 + rank;
    EXPECT_TRUE(timed->AllGather(std::as_bytes(std::span(&mine, 1)),
                                 std::as_writable_bytes(std::span(gathered[rank]))));
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_THAT(gathered[0], ElementsAre(40, 41));
  EXPECT_THAT(gathered[1], ElementsAre(40, 41));
  EXPECT_TRUE(times[0].Take().empty());  // outside of a step
}

TEST(StepTimes, AStepMovesFromItsBeginningToItsEnd) {
  StepTimes times;
  const BesideStep after[] = {{0, false, 0},  {0, true, 5},   {0, true, 9},
                              {1, false, 10}, {1, false, 10}, {2, false, 12}};
  for (const BesideStep& beside : after) {
    times.Begin(1);
    times.End(beside);
  }
  std::vector<bool> moving;
  std::vector<int64_t> before, beside;
  for (const RankStep& step : times.Take()) {
    moving.push_back(step.moving);
    before.push_back(step.moves_before);
    beside.push_back(step.beside_ns);
  }
  EXPECT_THAT(moving, ElementsAre(false, true, true, true, false, true));
  EXPECT_THAT(before, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(beside, ElementsAre(0, 5, 4, 1, 0, 2));
}

TEST(StepTimes, TheSlowestRankOfEachPartCounts) {
  RankStep ranks[] = {{.tokens = 8,
                       .moves_before = 3,
                       .beside_ns = 1,
                       .wall_ns = 90,
                       .parts = {{1, 10}, {1, 50}, {-1, 5}}},
                      {.tokens = 8,
                       .moves_before = 3,
                       .moving = true,
                       .wall_ns = 80,
                       .parts = {{1, 30}, {1, 20}, {-1, 6}}}};
  for (const bool swapped : {false, true}) {
    if (swapped) std::swap(ranks[0], ranks[1]);
    const Result<GroupStep> step = SlowestOf(ranks);
    ASSERT_TRUE(step);
    EXPECT_EQ(step->tokens, 8);
    EXPECT_EQ(step->moves_before, 3);
    EXPECT_EQ(step->cpu_ns, 30 + 50 + 6);
    EXPECT_EQ(step->parts[0].cpu_ns, 30);
    EXPECT_EQ(step->parts[1].cpu_ns, 50);
    EXPECT_EQ(step->wall_ns, 90);
    EXPECT_EQ(step->beside_ns, 1);
    EXPECT_TRUE(step->moving);
    ranks[0].moving = ranks[1].moving = false;
    EXPECT_FALSE(SlowestOf(ranks)->moving);
    ranks[swapped ? 0 : 1].moving = true;
  }
}

TEST(StepTimes, RanksThatExchangeOtherwiseAreAnError) {
  const RankStep first{.tokens = 8, .parts = {{1, 10}, {-1, 5}}};
  RankStep group = first, parts = first, tokens = first;
  group.parts[0].group = 2;
  parts.parts.pop_back();
  tokens.tokens = 9;
  for (const RankStep& other : {group, parts, tokens}) {
    const RankStep ranks[] = {first, other};
    const Result<GroupStep> step = SlowestOf(ranks);
    ASSERT_FALSE(step);
    EXPECT_THAT(step.error().message, HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace braid
