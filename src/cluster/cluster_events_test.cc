// What happens in a simulated cluster and when, by times that can be computed beforehand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "cluster/cluster.h"
#include "forecast/test_forecast.h"

namespace braid {
namespace {

ModelSpec Long() {
  ModelSpec spec = Dense();
  spec.context_tokens_max = 65536;
  return spec;
}
ClusterReport Served(const ClusterOptions& options, const std::vector<ClusterRequest>& requests,
                  const Hardware& hardware = Machine(), const ModelSpec& spec = Long()) {
  Result<ClusterReport> report = SimulateCluster(spec, hardware, {}, options, requests);
  CHECK(report, "{}", report.error().message);
  return *std::move(report);
}
ClusterRequest At(double seconds, uint64_t key, int32_t prompt, int32_t answer) {
  return {.at_us = std::llround(seconds * 1e6),
          .prompt = {{key, prompt}},
          .answer = {{key + 1000, answer}}};
}
// Steps of about a second.
Hardware Slow() {
  Hardware hardware = Machine();
  hardware.memory_bytes_per_second = 2e5;
  return hardware;
}
// On slow hardware.
ClusterRequest Lasting(double at, uint64_t key, double seconds) {
  const double step = Served({}, {At(0, 7, 64, 20)}, Slow()).inter_token.mean();
  return At(at, key, 64, static_cast<int32_t>(std::lround(seconds / step)));
}

TEST(ClusterEvents, ARequestWaitsForTheRepairOfTheOnlyEngine) {
  const ClusterOptions options{.fail_every_seconds = 20, .repair_seconds = 60, .seed = 1};
  const double fails = -std::log(1 - Rng(1).Uniform()) * 20;
  const double prompt = Served({}, {At(0, 7, 640, 1)}).first_token.mean();
  const ClusterReport report = Served(options, {At(fails + 1, 7, 640, 1)});
  EXPECT_EQ(report.failures, 1);
  EXPECT_EQ(report.restarted, 0);
  EXPECT_NEAR(report.first_token.mean(), 59 + prompt, 1e-3);
  EXPECT_NEAR(report.engine_seconds, report.seconds, 1e-6) << "it is paid while it is repaired";
  EXPECT_NEAR(report.busy * report.engine_seconds, prompt, 1e-6);
}

TEST(ClusterEvents, ARepairThatTakesDecadesIsAnError) {
  const ClusterOptions options{.fail_every_seconds = 20, .repair_seconds = 1e9, .seed = 1};
  const double fails = -std::log(1 - Rng(1).Uniform()) * 20;
  const auto report =
      SimulateCluster(Long(), Machine(), {}, options, {At(fails + 1, 7, 640, 1)});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message.find("1 requests have not ended after "), 0U)
      << report.error().message;
  EXPECT_NE(report.error().message.find("--repair"), std::string::npos);
}

TEST(ClusterEvents, AFailureThatWouldComeInCenturiesDoesNotCome) {
  uint64_t seed = 1;  // whose first failure comes after more nanoseconds than 64 bits count
  while (-std::log(1 - Rng(seed).Uniform()) < 9.3) ++seed;
  const ClusterReport report =
      Served({.fail_every_seconds = 1e9, .seed = seed}, {At(0, 7, 640, 1)});
  EXPECT_EQ(report.failures, 0);
  EXPECT_EQ(report.finished, 1);
}

TEST(ClusterEvents, ARequestThatFailsStartsAgainAndItsTimesCountFromItsArrival) {
  const ClusterOptions options{.fail_every_seconds = 20, .repair_seconds = 60, .seed = 1};
  const double fails = -std::log(1 - Rng(1).Uniform()) * 20;
  const ClusterReport whole = Served({}, {At(0, 7, 64, 1)}, Slow());
  ASSERT_GT(whole.seconds, 0.2);
  const ClusterReport report = Served(options, {At(fails - 0.1, 7, 64, 1)}, Slow());
  EXPECT_EQ(report.failures, 1);
  EXPECT_EQ(report.restarted, 1);
  EXPECT_EQ(report.finished, 1);
  EXPECT_NEAR(report.first_token.mean(), 0.1 + 60 + whole.first_token.mean(), 1e-3);
  EXPECT_NEAR(report.busy * report.engine_seconds, 0.1 + whole.first_token.mean(), 1e-3);
}

TEST(ClusterEvents, TheRouterForgetsTheCacheOfAnEngineThatFails) {
  // One sequence runs at a time. Engine 0 gets a prompt and fails; then it gets a long answer to
  // write. The prompt comes again: nobody has it, so it does not wait behind that answer.
  const ClusterOptions options{.engines = 2,
                               .route = Policy::kPrefix,
                               .running_max = 1,
                               .fail_every_seconds = 1000,
                               .repair_seconds = 1,
                               .seed = 1};
  Rng rng(options.seed);
  const double fails = -std::log(1 - rng.Uniform()) * 1000;
  const double next = -std::log(1 - rng.Uniform()) * 1000;
  ASSERT_GT(fails, 10);
  ASSERT_GT(next, fails + 20) << "engine 0 fails first";
  const auto latest = [&](double again) {
    return Served(options, {At(fails - 10, 7, 640, 1), At(fails - 9, 8, 650, 1),
                         At(again, 9, 64, 4000), At(again + 1e-3, 7, 640, 1)})
        .first_token.Quantile(1);
  };
  EXPECT_GT(latest(fails - 5), 0.2) << "it has it, and that is worth a wait";
  EXPECT_LT(latest(fails + 10), 0.1);
}

TEST(ClusterEvents, EnginesStartForRequestsAndLeaveWhenTheyHaveNone) {
  ClusterOptions options{.engines = 3, .scale_requests = 4, .start_seconds = 5};
  std::vector<ClusterRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) requests.push_back(At(1, 10 + i, 64, 40));
  const ClusterReport burst = Served(options, requests, Slow());
  const double end = burst.seconds;
  ASSERT_GT(end, 25);
  // Eight requests are there after ten seconds, so there are two engines then, and no third one.
  EXPECT_EQ(burst.starts, 1);
  EXPECT_NEAR(burst.engine_seconds, end + (end - 10), 1e-6);
  EXPECT_NEAR(burst.busy * burst.engine_seconds, end - 1, 1e-6);
  EXPECT_EQ(burst.prefill_busy, 0);
  // At the first moment without a request the second engine leaves, ten seconds later it stops.
  const double leaves = std::ceil(end / 10) * 10;
  requests.push_back(At(leaves + 55, 50, 64, 1));
  const ClusterReport later = Served(options, requests, Slow());
  EXPECT_EQ(later.starts, 1);
  EXPECT_NEAR(later.engine_seconds, later.seconds + leaves + 10 - 10, 1e-6);
  // One that is wanted at all times never leaves.
  options.engines_min = 2;
  const ClusterReport two = Served(options, requests, Slow());
  EXPECT_EQ(two.starts, 0);
  EXPECT_NEAR(two.engine_seconds, 2 * two.seconds, 1e-6);
}

TEST(ClusterEvents, AnEngineThatStartsTakesRequestsOnceItRuns) {
  // One sequence runs at a time. The second engine is up at 15 s; of two requests behind the long
  // one, that which comes before waits for it and that which comes then does not.
  const ClusterOptions options{
      .engines = 2, .running_max = 1, .scale_requests = 1, .start_seconds = 5};
  const auto first_tokens = [&](double last) {
    return Served(options, {At(1, 10, 64, 60), At(2, 11, 64, 1), At(last, 12, 64, 1)}, Slow())
        .first_token;
  };
  const double alone = Served({}, {At(0, 7, 64, 1)}, Slow()).first_token.mean();
  EXPECT_NEAR(first_tokens(15.5).Quantile(0), alone, 0.02 * alone);
  EXPECT_NEAR(first_tokens(15.5).Quantile(0.6), alone, 0.02 * alone);
  EXPECT_GT(first_tokens(14.5).Quantile(0.6), 20 * alone);
}

TEST(ClusterEvents, AnEngineThatLeavesTakesRequestsAgainWhenItIsWanted) {
  // At 10 s two requests are there, and the second engine starts. At 20 s there is only the one
  // that runs on it, so it leaves; at 30 s there are three. The last request finds it free.
  const std::vector<ClusterRequest> requests{Lasting(1, 10, 10),  Lasting(1, 11, 5),
                                             Lasting(12, 12, 30), Lasting(25, 13, 30),
                                             Lasting(25, 14, 30), At(45, 15, 64, 1)};
  const ClusterReport report = Served(
      {.engines = 2, .running_max = 1, .scale_requests = 1, .start_seconds = 1}, requests, Slow());
  EXPECT_EQ(report.finished, 6);
  EXPECT_EQ(report.starts, 1);
  const double alone = Served({}, {At(0, 7, 64, 1)}, Slow()).first_token.mean();
  EXPECT_NEAR(report.first_token.Quantile(4 / 6.0), alone, 0.02 * alone) << "four do not wait";
  EXPECT_GT(report.first_token.Quantile(5 / 6.0), 8);
}

TEST(ClusterEvents, TheRouterForgetsTheCacheOfAnEngineThatLeft) {
  // The second engine runs from 11 s to 30 s and gets the prompt; the first one gets it while it
  // is alone. When the second one is back, it has had less work, but has nothing of the prompt.
  const ClusterReport report =
      Served({.engines = 2, .route = Policy::kPrefix, .scale_requests = 1, .start_seconds = 1},
             {Lasting(1, 10, 12), Lasting(1, 11, 12), At(12, 7, 640, 1), At(35, 7, 640, 1),
              Lasting(36, 12, 8), Lasting(36, 13, 8), At(45, 7, 640, 1)},
             Slow());
  EXPECT_EQ(report.starts, 2);
  EXPECT_EQ(report.reused_tokens, 576) << "the last prompt goes to the first engine";
}

TEST(ClusterEvents, ATurnComesAfterTheOneBeforeAndItsTool) {
  std::vector<ClusterRequest> turns{At(3, 7, 640, 5), At(4, 8, 640, 5)};
  turns[1].follows = 0;
  const ClusterReport report = Served({}, turns);
  EXPECT_EQ(report.finished, 2);
  EXPECT_NEAR(report.seconds, 3 + 4 + 2 * report.whole.mean(), 1e-5);
  EXPECT_EQ(report.requests, 2);
}

TEST(ClusterEvents, TheTimelineHasEveryTokenAndWhatWasThereWhenAMomentBegan) {
  // One sequence runs at a time: the second request waits, then nothing comes for a while.
  const std::vector<ClusterRequest> requests{At(0, 7, 64, 20), At(0, 8, 64, 20), At(100, 9, 64, 3)};
  const ClusterReport report = Served({.running_max = 1}, requests, Slow());
  const double one = Served({}, {requests[0]}, Slow()).seconds;
  EXPECT_DOUBLE_EQ(report.moment_seconds, 0.5);
  double input = 0, output = 0;
  for (const ClusterMoment& moment : report.moments) {
    input += moment.input_tokens;
    output += moment.output_tokens;
  }
  EXPECT_EQ(input, 3 * 64);
  EXPECT_EQ(output, 20 + 20 + 3);
  ASSERT_GT(report.moments.size(), 200u);
  ASSERT_LT(2 * one + 2, 100);
  for (size_t i = 1; i < report.moments.size(); ++i) {
    const double at = 0.5 * static_cast<double>(i);
    const ClusterMoment& moment = report.moments[i];
    if (std::abs(at - one) < 0.1 || std::abs(at - 2 * one) < 0.1 || i == 200) continue;
    EXPECT_EQ(moment.running, at < 2 * one || at > 100 ? 1 : 0) << i;
    EXPECT_EQ(moment.waiting, at < one ? 1 : 0) << i;
  }
  // Of a load that comes within a second, a second is divided.
  EXPECT_DOUBLE_EQ(Served({}, {At(0.5, 7, 64, 1)}).moment_seconds, 1 / 200.0);
}

TEST(ClusterEvents, WindowsOfBalancesAreReplayedInTheirOrder) {
  const Mesh mesh{.dp = 2, .tp = 1, .ep = 2};
  std::vector<ClusterRequest> requests;  // of one step each
  for (uint64_t i = 0; i < 5; ++i) requests.push_back(At(10 * static_cast<double>(i), i, 1024, 1));
  const ClusterReport report = Served({.mesh = mesh, .balances = {{1, 1}, {1, 0.5}, {1, 0.25}}},
                                   requests, Machine(), Mixture());
  ASSERT_EQ(report.steps, 5);
  EXPECT_NEAR(report.expert_balance, (1 + 0.5 + 0.25 + 1 + 0.5) / 5, 1e-12);
  std::vector<double> balances;
  for (const ClusterMoment& moment : report.moments) {
    if (moment.steps > 0) balances.push_back(moment.balance);
  }
  EXPECT_EQ(balances, (std::vector<double>{1, 0.5, 0.25, 1, 0.5}));
  EXPECT_EQ(Served({.mesh = mesh}, requests, Machine(), Mixture()).expert_balance, 1);
}

TEST(ClusterEvents, APromptCountsAsBacklogUntilItsFirstToken) {
  // Engine 0 has got more work than engine 1 and is through with its prompt when a prompt of 2000
  // tokens goes to engine 1. The request behind that finds engine 0 sooner.
  Hardware machine = Machine();
  machine.bf16_flops = 1e10;
  const double prompt = Served({}, {At(0, 7, 3500, 1)}, machine).first_token.mean();
  const double small = Served({}, {At(0, 7, 1000, 1)}, machine).first_token.mean();
  const double then = 2 * prompt;
  const ClusterReport report = Served({.engines = 2},
                                      {At(0, 7, 3500, 4000), At(0, 8, 1000, 1),
                                       At(then, 9, 2000, 1), At(then + 1e-6, 10, 64, 1)},
                                      machine);
  ASSERT_GT(report.seconds, 2 * then) << "the first one is still answered";
  EXPECT_LT(report.first_token.Quantile(0), small / 2);
}

TEST(ClusterEvents, TheRouteByLoadCountsPromptsWholeThoughTheyAreKnown) {
  // Each prompt comes twice. The first one is with engine 0 again and counts whole, so the second
  // one goes to engine 1, which has it and still answers it.
  const double then = 2 * Served({}, {At(0, 7, 3500, 1)}).seconds;
  const ClusterReport report =
      Served({.engines = 2}, {At(0, 7, 3400, 1), At(0, 8, 3500, 4000), At(then, 7, 3400, 1),
                              At(then + 1e-6, 8, 3500, 1)});
  EXPECT_EQ(report.reused_tokens, 53 * 64 + 54 * 64);
}

TEST(ClusterEvents, PromptsGoToThePrefillEngineWithTheFewest) {
  const std::vector<ClusterRequest> two{At(0, 7, 4000, 2), At(0, 8, 4000, 2)};
  const ClusterReport alone = Served({.engines = 2, .prefill_engines = 1}, {two[0]});
  const ClusterReport apart = Served({.engines = 3, .prefill_engines = 2}, two);
  EXPECT_NEAR(apart.first_token.Quantile(1), alone.first_token.mean(),
              0.05 * alone.first_token.mean());
  const ClusterReport idle = Served({.engines = 3, .prefill_engines = 2}, {two[0]});
  EXPECT_NEAR(idle.prefill_busy, alone.prefill_busy / 2, 1e-9) << "the mean of both";
  EXPECT_NEAR(idle.busy, alone.busy * 2 / 3, 1e-9);
}

TEST(ClusterEvents, ATransferTakesALatencyAndTheTimeOfTheBytesOfADevice) {
  Hardware machine = Machine();
  machine.exchange_seconds = 0.25;
  const std::vector<ClusterRequest> one{At(0, 7, 640, 2)};
  const double bytes = 640 * 2 * 2 * 16 * 2;  // keys and values of two heads of 16 in bf16
  for (const double network : {1e6, 0.0}) {   // else by the links
    machine.network_bytes_per_second = network;
    const double rate = network > 0 ? network : machine.link_bytes_per_second;
    for (const int32_t tp : {1, 2}) {
      const ClusterReport report =
          Served({.engines = 2, .prefill_engines = 1, .mesh = {.tp = tp}}, one, machine);
      ASSERT_EQ(report.transfer.count(), 1);
      EXPECT_NEAR(report.transfer.mean(), 0.25 + bytes / tp / rate, 1e-9);
      EXPECT_EQ(report.transferred_bytes, bytes);
      EXPECT_EQ(report.transfers_failed, 0);
    }
  }
}

TEST(ClusterEvents, TransfersFromEnginesThatFailedAreNotCounted) {
  // Short answers, of which every engine has several, and longer ones that come one by one: then a
  // prompt may be lost before its pages could have been taken.
  for (const bool one_by_one : {false, true}) {
    int64_t failed = 0;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      std::vector<ClusterRequest> requests;
      for (uint64_t i = 0; i < 60; ++i) {
        requests.push_back(At(static_cast<double>(i), 10 + i, 640, one_by_one ? 20 : 4));
      }
      Hardware machine = Machine();
      machine.memory_bytes_per_second = 2e6;
      machine.exchange_seconds = 0.1;
      const ClusterReport report = Served({.engines = 3,
                                           .prefill_engines = 2,
                                           .running_max = one_by_one ? 1 : 256,
                                           .fail_every_seconds = one_by_one ? 10.0 : 3.0,
                                           .repair_seconds = 1,
                                           .seed = seed},
                                          requests, machine);
      EXPECT_EQ(report.finished, 60);
      EXPECT_GT(report.transfer.Quantile(0), 0.099);
      EXPECT_LE(report.transfer.count(), 60 + report.restarted);
      failed += report.transfers_failed;
    }
    EXPECT_GT(failed, 0);
  }
}

TEST(ClusterEvents, TheRouterKnowsAsManyBlocksAsTheGroupsOfAnEngineHold) {
  const Mesh mesh{.dp = 2};
  Hardware machine = Machine();
  machine.memory_bytes = 1e6;
  for (int64_t held = 0; held < 44 * 64; machine.memory_bytes += 1e5) {
    const auto clock = StepClock::Create(Long(), mesh, machine, {});
    ASSERT_TRUE(clock);
    const auto cache = clock->Cache(641, 256);
    held = cache ? SequenceTokensMax(*cache) : 0;
  }
  // Four prompts of ten blocks for each engine. When they come again, one other comes first: by
  // the load alone each would go to the engine that does not have it.
  std::vector<ClusterRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) requests.push_back(At(static_cast<double>(i), i, 640, 1));
  requests.push_back(At(20, 100, 640, 1));
  for (uint64_t i = 0; i < 8; ++i) requests.push_back(At(30 + static_cast<double>(i), i, 640, 1));
  const ClusterReport report =
      Served({.engines = 2, .mesh = mesh, .route = Policy::kPrefix}, requests, machine);
  EXPECT_EQ(report.reused_tokens, 8 * 576);
}

}  // namespace
}  // namespace braid
