// What only shows when tokens are computed: the hash LM through real plans. Numbers in names (C3.n
// to C7.n) are those of the behavioural scenarios.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "scheduler/inbox.h"
#include "sim/simulation.h"

namespace braid {
namespace {

SchedulerConfig ScenarioConfig() {
  return {
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 2}, {"state", GroupKind::kState, 128, 1}},
                .page_bytes = 128,
                .pages = 60},
      .context_tokens_max = 2000,
      .step_tokens_max = 300,
      .running_max = 8,
      .vocabulary = 1000};
}

class ScenarioTest : public ::testing::Test {
 protected:
  // Submits a request with tokens first, first + 1, … at a turn of the loop.
  Request& Add(int64_t turn, int32_t tokens, int32_t new_tokens, TokenId first = 0) {
    Request r;
    r.id = RequestId(static_cast<int64_t>(w_.requests.size()));
    r.prompt.resize(static_cast<size_t>(tokens));
    std::iota(r.prompt.begin(), r.prompt.end(), first);
    for (TokenId& t : r.prompt) t %= w_.config.vocabulary;
    r.stop.new_tokens_max = new_tokens;
    r.logprobs = 2;
    w_.requests.push_back({.step = turn, .request = std::move(r)});
    return w_.requests.back().request;
  }
  // Every answer is compared with the oracle's.
  SimulationStats Run() {
    const auto stats = RunWorkload(w_);
    EXPECT_TRUE(stats.ok()) << stats.error().message;
    return stats.ok() ? *stats : SimulationStats{};
  }

  Workload w_{.config = ScenarioConfig(), .requests = {}};
};

TEST_F(ScenarioTest, C3_49_WhatGoesOnFromASnapshotIsWhatAColdRunSays) {
  for (int32_t tokens : {64, 65, 127, 128, 129, 300, 320, 321}) {
    w_.requests.clear();
    Add(0, tokens, 70);
    Add(200, tokens, 70);
    const SimulationStats stats = Run();
    EXPECT_EQ(stats.reused_tokens, (tokens - 1) / 64 * 64) << tokens;
  }
}

TEST_F(ScenarioTest, C4_50_C4_58_ABlockThatHeldBadValuesStartsFromNothing) {
  w_.config.cache.pages = 12;  // the second gets the blocks of the first, which were poisoned
  w_.row_error_one_in = 1;
  w_.error_seed = 1;
  Add(0, 500, 1);
  EXPECT_EQ(Run().failed, 1);
  SimulatedEngine engine(w_);
  ASSERT_TRUE(RunWave(w_, engine).ok());
  w_.row_error_one_in = 0;
  w_.requests.clear();
  Add(0, 500, 60).id = RequestId(10);
  const auto stats = RunWave(w_, engine);
  ASSERT_TRUE(stats.ok()) << stats.error().message;
  EXPECT_EQ(stats->failed, 0);
  EXPECT_EQ(stats->reused_tokens, 0);
}

TEST_F(ScenarioTest, C4_53_TwoSequencesThatWriteOneBlockStopTheProgram) {
  Request a = Add(0, 10, 1), b = Add(0, 10, 1);
  Plan plan;
  plan.step = StepId(0);
  plan.admissions = {{.slot = SlotId(0), .request = &a, .output = {}},
                     {.slot = SlotId(1), .request = &b, .output = {}}};
  for (int32_t slot : {0, 1}) {
    plan.tables.push_back({SlotId(slot), GroupId(0), 0, BlockId(2)});
    plan.tables.push_back({SlotId(slot), GroupId(1), 0, BlockId(slot + 3)});
    const Request& r = slot == 0 ? a : b;
    plan.rows.push_back({.slot = SlotId(slot),
                         .request = r.id,
                         .token_begin = slot * 10,
                         .token_count = 10,
                         .start = 0,
                         .sample = true});
    plan.tokens.insert(plan.tokens.end(), r.prompt.begin(), r.prompt.end());
  }
  HashExecutor executor(w_.config.cache, w_.config.vocabulary);
  EXPECT_DEATH(
      {
        Inbox ended;
        executor.Launch(plan, ended);
        executor.CheckTables();
      },
      "I-3");
}

TEST_F(ScenarioTest, AStateThatARowInFlightReadsIsNotHandedOver) {
  const Request a = Add(0, 140, 1), b = Add(0, 10, 1);
  HashExecutorOptions options;
  options.held = true;
  HashExecutor executor(w_.config.cache, w_.config.vocabulary, options);
  Inbox ended;
  const auto launch = [&](const Request& r, int32_t start, int32_t end,
                          std::vector<TableUpdate> tables) {
    const SlotId slot = tables.front().slot;
    Plan plan;
    plan.step = StepId(0);
    if (start == 0) plan.admissions = {{.slot = slot, .request = &r, .output = {}}};
    plan.tables = std::move(tables);
    plan.rows = {{.slot = slot,
                  .request = r.id,
                  .token_begin = 0,
                  .token_count = end - start,
                  .start = start}};
    plan.tokens.assign(r.prompt.begin() + start, r.prompt.begin() + end);
    executor.Launch(std::move(plan), ended);
  };
  const SlotId first(0), second(1);
  const GroupId full(0), state(1);
  launch(a, 0, 64, {{first, full, 0, BlockId(2)}, {first, state, 0, BlockId(3)}});
  executor.EndStep();
  launch(a, 64, 140,
         {{first, full, 1, BlockId(4)},
          {first, full, 2, BlockId(7)},
          {first, state, 1, BlockId(5)},
          {first, state, 2, BlockId(8)}});
  EXPECT_DEATH(launch(b, 0, 10, {{second, full, 0, BlockId(6)}, {second, state, 0, BlockId(3)}}),
               "I-14: block 3 of group 1");
}

// Runs whose engine is not what they take it for.
TEST_F(ScenarioTest, AFollowerThatDoesNotWaitStopsTheProgram) {
  w_.config.chunk_tokens_max = 64;
  w_.config.prefix_cache = false;
  SimulatedEngine engine(w_);
  w_.config.prefix_cache = true;
  Add(0, 200, 30, 500);  // another slot than the first is the leader's
  Add(0, 600, 5);
  Add(1, 600, 5);
  EXPECT_DEATH((void)RunWave(w_, engine), "I-21: request 2 computes 576 tokens from 0 on");
}

TEST_F(ScenarioTest, AnOutputBehindTheLastOneIsWrong) {
  Add(0, 10, 3);
  Add(50, 10, 3).id = RequestId(0);  // the id is free again
  const auto stats = RunWorkload(w_);
  ASSERT_FALSE(stats.ok());
  EXPECT_EQ(stats.error().message, "request 0: I-19: an output after the last one");
}

TEST_F(ScenarioTest, FiguresTellHowRequestsEnd) {
  Request& stops = Add(0, 10, 50);
  const HashLm lm{w_.config.vocabulary};
  stops.stop.stop_tokens = {AskOracle(lm, stops, w_.config.context_tokens_max).tokens[3]};
  Add(0, 10, 50);
  w_.requests.back().abort_step = 5;
  Add(0, 10, 5);
  const SimulationStats stats = Run();
  EXPECT_EQ(stats.requests, 3);
  EXPECT_EQ(stats.stopped, 1);
  EXPECT_EQ(stats.aborted, 1);
  EXPECT_EQ(stats.failed + stats.refused, 0);
}

TEST_F(ScenarioTest, C4_56_C4_61_CutAnywhereTheStateIsThatOfTheWholeText) {
  for (int32_t chunk : {0, 1, 5, 63, 64, 65, 128, 200}) {
    w_.config.chunk_tokens_max = chunk;
    w_.requests.clear();
    Add(0, 470, 90);
    Add(1, 300, 90, 500);
    Run();
  }
}

TEST_F(ScenarioTest, C5_80_C6_91_EveryHistoryLeavesNothingBehind) {
  for (uint64_t seed = 900000; seed < 900060; ++seed) {
    const auto stats = RunSeed(seed);
    EXPECT_TRUE(stats.ok()) << seed << ": " << stats.error().message;
  }
}

// Two hundred requests of one tenant wait; another's single request is answered as soon as one of
// the running ones has ended, however long the line is.
TEST_F(ScenarioTest, AFloodDoesNotDelayAnotherTenantsAnswer) {
  w_.config.running_max = 4;
  Scheduler scheduler = *Scheduler::Create(w_.config);
  HashExecutor executor(w_.config.cache, w_.config.vocabulary);
  Inbox ended;
  int64_t next_id = 0;
  const auto submit = [&](const char* tenant) {
    Request r;
    r.id = RequestId(next_id++);
    r.tenant = tenant;
    r.prompt.assign(30, static_cast<TokenId>(next_id % 900));
    r.stop.new_tokens_max = 20;
    scheduler.Apply(Submit{r});
    return r.id;
  };
  const auto step = [&](RequestId wanted) {
    executor.Launch(scheduler.NextPlan(), ended);
    scheduler.Apply(ended.AwaitStep());
    bool answered = false;
    for (const Output& o : scheduler.TakeOutputs()) answered |= o.id == wanted;
    return answered;
  };
  for (int i = 0; i < 200; ++i) submit("flood");
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 7; ++i) step(RequestId());
    const RequestId mine = submit("quiet");
    int32_t steps = 1;
    while (!step(mine)) ++steps;
    EXPECT_LE(steps, 20 + 2);  // the rest of the longest answer, and its own prompt
    for (int i = 0; i < 30; ++i) step(RequestId());
  }
}

TEST_F(ScenarioTest, C7_99_EveryFirstTokenIsItsOwnRequestsUnderOverlap) {
  w_.overlap_depth = 1;
  w_.late = true;
  for (int32_t i = 0; i < 40; ++i) Add(i / 3, 20 + 7 * i, 1 + i % 3, i * 20);
  Run();
}

}  // namespace
}  // namespace braid
