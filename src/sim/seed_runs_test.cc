// Runs of many seeds: how they end, what they add up, and the processes that they run in.
#include "sim/seed_runs.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>

#include "sim/isolated.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

SimulationReport RunSeeds(const SimulationOptions& options) {
  Result<SimulationReport> report = RunSimulation(options);
  CHECK(report.ok(), "{}", report.error().message);
  return *std::move(report);
}

TEST(IsolatedProcess, EndsAsItsWorkDoesAndKeepsItsLastLine) {
  const auto say = [](const char* text, bool result) {
    return IsolatedProcess(
               [=] {
                 std::fputs(text, stderr);
                 return result;
               },
               10)
        .Wait();
  };
  const IsolatedEnd good = say("first\nlast\n\n", true);
  EXPECT_TRUE(good.clean);
  EXPECT_FALSE(good.out_of_time);
  EXPECT_EQ(good.said, "last");
  const IsolatedEnd bad = say("only", false);
  EXPECT_FALSE(bad.clean);
  EXPECT_FALSE(bad.out_of_time);
  EXPECT_EQ(bad.said, "only");
  EXPECT_EQ(say("", true).said, "");
  const std::string line(6000, 'x');  // more than is kept
  EXPECT_EQ(say(line.c_str(), true).said, std::string(4096, 'x'));
}

TEST(IsolatedProcess, ACrashIsNoCleanEndAndUsingUpTheTimeIsToldApart) {
  EXPECT_FALSE(IsolatedProcess([]() -> bool { std::abort(); }, 10).Wait().clean);
  EXPECT_FALSE(IsolatedProcess([]() -> bool { std::abort(); }, 10).Wait().out_of_time);
  IsolatedProcess endless(
      [] {
        volatile bool forever = true;
        while (forever) {
        }
        return true;
      },
      1);
  const IsolatedEnd end = endless.Wait();
  EXPECT_FALSE(end.clean);
  EXPECT_TRUE(end.out_of_time);
}

TEST(IsolatedProcess, WritesSharedValuesAndIsEndedWithItsOwner) {
  SharedValue<int> value;
  {
    IsolatedProcess process(
        [&] {
          *value = 7;
          while (true) ::pause();
          return true;
        },
        10);
    while (*value != 7) ::usleep(1000);
    EXPECT_FALSE(process.Ended());
  }  // would hang here otherwise
  IsolatedProcess done([&] { return *value == 7; }, 10);
  while (!done.Ended()) ::usleep(1000);
  EXPECT_TRUE(done.Wait().clean);
}

TEST(SeedRuns, SomethingMustEndThem) {
  const auto endless = RunSimulation({.seeds = 0});
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(endless.error().message, HasSubstr("a number of seeds, steps or minutes"));
}

TEST(SeedRuns, ReportsAddUpTheSeedsHoweverManyProcessesRanThem) {
  const SimulationReport one = RunSeeds({.from = 3, .seeds = 7});
  const SimulationReport three = RunSeeds({.from = 3, .seeds = 7, .processes = 3});
  SimulationStats sum;
  for (uint64_t seed = 3; seed < 10; ++seed) {
    const auto stats = RunSeed(seed);
    ASSERT_TRUE(stats.ok()) << stats.error().message;
    sum.Add(*stats);
  }
  for (const SimulationReport& report : {one, three}) {
    EXPECT_FALSE(report.failure);
    EXPECT_EQ(report.seeds, 7);
    EXPECT_EQ(report.total.trace, sum.trace);
    EXPECT_EQ(report.total.steps, sum.steps);
    EXPECT_EQ(report.total.requests, sum.requests);
    EXPECT_EQ(report.total.rows, sum.rows);
    EXPECT_EQ(report.total.tokens, sum.tokens);
    EXPECT_EQ(report.total.wait_max, sum.wait_max);
    EXPECT_EQ(report.total.waits, sum.waits);
    EXPECT_EQ(report.total.reuse_stops, sum.reuse_stops);
  }
}

TEST(SeedRuns, StepsEndARunThatHasNoNumberOfSeeds) {
  const SimulationReport report = RunSeeds({.seeds = 0, .steps = 500, .processes = 2});
  EXPECT_GE(report.total.steps, 500);
  EXPECT_LT(report.total.steps, 20000);
  EXPECT_GE(report.seeds, 2);
}

TEST(SeedRuns, FewerStepsThanProcessesEndToo) {
  const SimulationReport report = RunSeeds({.seeds = 0, .steps = 1, .processes = 3});
  EXPECT_EQ(report.seeds, 1);
}

TEST(SeedRuns, ASoakKeepsItsEngineFromSeedToSeed) {
  const SimulationReport soak = RunSeeds({.seeds = 5, .soak = true});
  EXPECT_FALSE(soak.failure) << soak.failure->message;
  EXPECT_EQ(soak.seeds, 5);
  EXPECT_GT(soak.total.steps, 0);
  EXPECT_GT(soak.resident_early, 0);
  EXPECT_GT(soak.resident_end, 0);
}

TEST(SeedRuns, EqualSeedsGiveEqualTracesAndOthersDoNot) {
  const auto trace = [](uint64_t seed) { return RunSeed(seed)->trace; };
  EXPECT_EQ(trace(11), trace(11));
  EXPECT_NE(trace(11), trace(12));
  WorkloadOptions cold;
  cold.prefix_cache = false;
  EXPECT_EQ(RunSeed(11, cold)->reused_tokens, 0);
}

TEST(SimulationStats, AQuantileIsThePowerOfTwoWithinWhichTheShareIs) {
  SimulationStats stats;
  stats.waits[0] = 50;  // at once
  stats.waits[1] = 30;  // after one step
  stats.waits[4] = 20;  // after less than 16
  stats.wait_max = 9;
  EXPECT_EQ(stats.WaitQuantile(0.5), 0);
  EXPECT_EQ(stats.WaitQuantile(0.51), 1);
  EXPECT_EQ(stats.WaitQuantile(0.8), 1);
  EXPECT_EQ(stats.WaitQuantile(0.99), 15);
}

TEST(SimulationStats, SumsAreTakenOfEveryFigure) {
  SimulationStats one, two;
  int64_t n = 0;
  for (int64_t* figure : {&one.requests,        &one.steps,           &one.rows,
                          &one.tokens,          &one.preemptions,     &one.protected_requests,
                          &one.aborted,         &one.failed,          &one.refused,
                          &one.stopped,         &one.prompt_tokens,   &one.reused_tokens,
                          &one.evictions_full,  &one.evictions_state, &one.drafts,
                          &one.drafts_accepted, &one.moves,           &one.moves_failed,
                          &one.late_tokens,     &one.reuse_stops[1],  &one.waits[3]}) {
    *figure = ++n;
  }
  one.wait_max = 5;
  two.wait_max = 9;
  two.Add(one);
  two.Add(one);
  const std::vector<int64_t> sums = {
      two.requests,        two.steps,           two.rows,
      two.tokens,          two.preemptions,     two.protected_requests,
      two.aborted,         two.failed,          two.refused,
      two.stopped,         two.prompt_tokens,   two.reused_tokens,
      two.evictions_full,  two.evictions_state, two.drafts,
      two.drafts_accepted, two.moves,           two.moves_failed,
      two.late_tokens,     two.reuse_stops[1],  two.waits[3]};
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], 2 * static_cast<int64_t>(i + 1));
  EXPECT_EQ(two.wait_max, 9);
}

}  // namespace
}  // namespace braid
