// Simulated clusters: times by the clock of steps, the same twice, nothing lost by failures, and
// loads and traces that are what they say.
#include "cluster/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace braid {
namespace {

ModelSpec Small() {
  return {.hidden = 64,
          .vocabulary = 1000,
          .context_tokens_max = 65536,
          .layers = {{.prefix = "@layers.0.",
                      .mixer = FullAttention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                      .ffn = MoeFfn{.experts = 8, .top_k = 2, .width = 64}}},
          .prefixes = {""}};
}
Hardware Machine() {
  return {.name = "machine",
          .memory_bytes = 3e8,
          .memory_bytes_per_second = 1e8,
          .bf16_flops = 1e10,
          .link_bytes_per_second = 1e8,
          .link_devices = 8};
}
ClusterReport Simulated(const ClusterOptions& options,
                        const std::vector<ClusterRequest>& requests) {
  Result<ClusterReport> report = SimulateCluster(Small(), Machine(), {}, options, requests);
  CHECK(report, "{}", report.error().message);
  return *std::move(report);
}
std::vector<ClusterRequest> Drawn(ClusterLoad load, double rate, uint64_t seed = 1) {
  return MakeRequests({.load = load,
                       .requests_per_second = rate,
                       .seconds = 60,
                       .input_tokens = 256,
                       .output_tokens = 32,
                       .range_ratio = 0.5,
                       .seed = seed});
}

TEST(StepClock, MixedStepsAreBetweenTheLongerPartAndTheSum) {
  const auto clock = StepClock::Create(Small(), {}, Machine(), {});
  ASSERT_TRUE(clock);
  const StepRows prompts{.tokens = 512, .sequences = 2, .context_tokens = 64, .logits_rows = 1};
  const StepRows decodes{.tokens = 9, .sequences = 9, .context_tokens = 1000, .logits_rows = 9};
  const double a = clock->StepOf(prompts, {}).compute_seconds;
  const double b = clock->StepOf({}, decodes).compute_seconds;
  const double both = clock->StepOf(prompts, decodes).compute_seconds;
  EXPECT_GT(both, std::max(a, b));
  EXPECT_LT(both, a + b);  // weights are read once
}

TEST(Cluster, OneRequestTakesTheTimeOfItsSteps) {
  const std::vector<ClusterRequest> one{{.at_us = 5, .prompt = {{7, 640}}, .answer = {{8, 3}}}};
  const ClusterReport report = Simulated({}, one);
  const auto clock = StepClock::Create(Small(), {}, Machine(), {});
  const double prompt =
      clock->StepOf({.tokens = 640, .sequences = 1, .logits_rows = 1}, {}).seconds_with_overlap();
  const double decode =
      clock->StepOf({}, {.tokens = 1, .sequences = 1, .context_tokens = 640, .logits_rows = 1})
          .seconds_with_overlap();
  EXPECT_EQ(report.finished, 1);
  EXPECT_EQ(report.steps, 3);
  EXPECT_EQ(report.output_tokens, 3);
  EXPECT_NEAR(report.first_token.mean(), prompt, prompt * 1e-3);
  EXPECT_NEAR(report.inter_token.mean(), decode, decode * 0.02);
  EXPECT_NEAR(report.whole.mean(), prompt + 2 * decode, prompt * 0.02);
}

TEST(Cluster, ABoundOfDecodeLatencyCutsPromptsIntoShortSteps) {
  std::vector<ClusterRequest> requests{{.at_us = 0, .prompt = {{7, 64}}, .answer = {{8, 2000}}}};
  for (uint64_t i = 0; i < 6; ++i) {  // the first ones teach what a prompt's token costs
    requests.push_back({.at_us = 20'000 + static_cast<int64_t>(i) * 60'000,
                        .prompt = {{20 + i, 4096}},
                        .answer = {{9, 1}}});
  }
  ClusterOptions options;
  const ClusterReport whole = Simulated(options, requests);
  const double bound = whole.inter_token.Quantile(1) / 4;
  options.decode_latency_us = static_cast<int64_t>(bound * 1e6);
  const ClusterReport bounded = Simulated(options, requests);
  EXPECT_EQ(bounded.finished, 7);
  EXPECT_LT(bounded.inter_token.Quantile(0.99), bound * 1.2);
  EXPECT_LT(bounded.inter_token.Quantile(1), whole.inter_token.Quantile(1) / 2);
}

TEST(Cluster, EnginesOfAMachineSlowEachOtherWhileTheyCompute) {
  Hardware shared = Machine();
  shared.memory_bytes_per_second /= 4;
  shared.bf16_flops /= 4;
  const auto request = [](int64_t at_us, uint64_t key) {
    return ClusterRequest{.at_us = at_us, .prompt = {{key, 640}}, .answer = {{8, 40}}};
  };
  ClusterOptions options{.engines = 2, .route = Policy::kRoundRobin};
  const double alone = Simulated(options, {request(0, 1)}).whole.mean();
  options.machine_engines = 2;
  options.shared = shared;
  EXPECT_NEAR(Simulated(options, {request(0, 1)}).whole.mean(), alone, alone * 1e-9);
  // One after the other they do not meet; at once all steps but the first one are four times as
  // long. Engines of different machines never meet.
  EXPECT_NEAR(Simulated(options, {request(0, 1), request(100'000'000, 2)}).whole.mean(), alone,
              alone * 1e-9);
  const double both = Simulated(options, {request(0, 1), request(0, 2)}).whole.mean();
  EXPECT_GT(both, 2.5 * alone);
  EXPECT_LT(both, 4 * alone);
  options.engines = 4;  // round robin: the third engine is on the second machine
  const ClusterReport three = Simulated(options, {request(0, 1), request(0, 2), request(0, 3)});
  EXPECT_NEAR(three.whole.Quantile(0.01), alone, alone * 0.02);
  EXPECT_NEAR(three.whole.mean(), (alone + 2 * both) / 3, alone * 0.01);
  // Of three engines on a machine, one busy neighbour of two adds half of what both would.
  options = {.engines = 3, .route = Policy::kRoundRobin, .machine_engines = 3, .shared = shared};
  const double half = Simulated(options, {request(0, 1), request(0, 2)}).whole.mean();
  EXPECT_NEAR(half - alone, (both - alone) / 2, alone * 0.1);
}

TEST(Cluster, StepsTakeTheBalancesThatAreReplayedOneAfterTheOther) {
  const Mesh mesh{.dp = 2, .tp = 1, .ep = 2};
  std::vector<ClusterRequest> requests;  // of one step each
  for (uint64_t i = 0; i < 9; ++i) {
    requests.push_back({.at_us = static_cast<int64_t>(i) * 10'000'000,
                        .prompt = {{20 + i, 1024}},
                        .answer = {{8, 1}}});
  }
  const ClusterReport report = Simulated({.mesh = mesh, .balances = {{4, 1}, {2, 0.5}}}, requests);
  ASSERT_EQ(report.steps, 9);  // 4, 2, and 3 of the first balance again
  EXPECT_NEAR(report.expert_balance, (7 + 2 * 0.5) / 9, 1e-9);
  auto clock = StepClock::Create(Small(), mesh, Machine(), {});
  const StepRows prompt{.tokens = 1024, .sequences = 1, .logits_rows = 1};
  const double even = clock->StepOf(prompt, {}).seconds_with_overlap();
  clock->SetExpertBalance(0.5);
  const double uneven = clock->StepOf(prompt, {}).seconds_with_overlap();
  EXPECT_GT(uneven, even * 1.05);
  EXPECT_NEAR(report.first_token.mean(), (7 * even + 2 * uneven) / 9, even * 1e-3);
  int64_t steps = 0;
  for (const ClusterMoment& moment : report.moments) steps += moment.steps;
  EXPECT_EQ(steps, 9);
}

TEST(Cluster, TheSameSeedGivesTheSameReport) {
  const ClusterOptions options{
      .engines = 3, .mesh = {.dp = 2, .tp = 1, .ep = 2}, .fail_every_seconds = 20, .seed = 4};
  const auto requests = Drawn(ClusterLoad::kShareGpt, 4);
  const ClusterReport a = Simulated(options, requests), b = Simulated(options, requests);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.first_token.Quantile(0.99), b.first_token.Quantile(0.99));
  EXPECT_NE(a.seconds, Simulated(options, Drawn(ClusterLoad::kShareGpt, 4, 2)).seconds);
}

TEST(Cluster, FailuresLoseNoRequest) {
  const ClusterOptions options{
      .engines = 2, .fail_every_seconds = 15, .repair_seconds = 10, .seed = 2};
  const auto requests = Drawn(ClusterLoad::kAgentic, 0.5);
  const ClusterReport report = Simulated(options, requests);
  EXPECT_EQ(report.finished, static_cast<int64_t>(requests.size()));
  EXPECT_GT(report.failures, 5);
  EXPECT_GT(report.restarted, 0);
  int64_t tokens = 0;
  for (const ClusterRequest& request : requests) tokens += request.answer_tokens();
  EXPECT_EQ(report.output_tokens, tokens);
}

TEST(Cluster, AFailedEngineIsBusyUntilItFails) {
  Hardware slow = Machine();
  slow.memory_bytes_per_second = 1e4;  // steps of some ten seconds
  const std::vector<ClusterRequest> one{{.prompt = {{7, 640}}, .answer = {{8, 3}}}};
  const ClusterOptions options{
      .engines = 1, .fail_every_seconds = 20, .repair_seconds = 5, .seed = 3};
  const auto report = SimulateCluster(Small(), slow, {}, options, one);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_GT(report->failures, 0);
  // It computes all the time but for repairs.
  const double repairs = static_cast<double>(report->failures) * options.repair_seconds;
  EXPECT_NEAR(report->busy, 1 - repairs / report->seconds, 1e-6);
}

TEST(Cluster, ARequestThatNoEngineOutlivesIsAnError) {
  Hardware slow = Machine();
  slow.memory_bytes_per_second = 1e4;
  const std::vector<ClusterRequest> one{{.prompt = {{7, 640}}, .answer = {{8, 3}}}};
  const auto report =
      SimulateCluster(Small(), slow, {}, {.fail_every_seconds = 0.01, .repair_seconds = 0}, one);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("a request of 640 + 3 tokens has started 1001 times"),
            std::string::npos)
      << report.error().message;
}

TEST(Cluster, ATurnComesAfterOneThatWasRefused) {
  // No cache holds the first prompt.
  const std::vector<ClusterRequest> turns{
      {.prompt = {{7, 70'000}}, .answer = {{8, 3}}},
      {.at_us = 5, .follows = 0, .prompt = {{7, 640}}, .answer = {{9, 3}}}};
  const ClusterReport report = Simulated({}, turns);
  EXPECT_EQ(report.refused, 1);
  EXPECT_EQ(report.finished, 1);
}

TEST(Cluster, AutoscalingFollowsTheLoadAndLosesNoRequest) {
  // Few requests, then many, then few again.
  std::vector<ClusterRequest> requests;
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t at_s = i < 20 ? 5 * i : i < 180 ? 100 + (i - 20) / 4 : 140 + 5 * (i - 180);
    requests.push_back({.at_us = at_s * 1'000'000,
                        .prompt = {{static_cast<uint64_t>(i) + 1, 256}},
                        .answer = {{static_cast<uint64_t>(i) + 1000, 20}}});
  }
  Hardware slow = Machine();
  slow.memory_bytes_per_second = 1e6;
  slow.bf16_flops = 1e9;
  const auto simulated = [&](const ClusterOptions& options) {
    Result<ClusterReport> report = SimulateCluster(Small(), slow, {}, options, requests);
    CHECK(report, "{}", report.error().message);
    return *std::move(report);
  };
  const ClusterOptions all{.engines = 6};
  ClusterOptions scaled = all;
  scaled.scale_requests = 4;
  scaled.start_seconds = 5;
  const ClusterReport fixed = simulated(all), report = simulated(scaled);
  EXPECT_EQ(report.finished, 200);
  EXPECT_EQ(report.output_tokens, 200 * 20);
  EXPECT_GE(report.starts, 1);
  EXPECT_NEAR(fixed.engine_seconds, 6 * fixed.seconds, 1e-6);
  EXPECT_EQ(fixed.starts, 0);
  // It costs less time of engines, and requests wait longer until engines have started.
  EXPECT_LT(report.engine_seconds, 0.8 * fixed.engine_seconds);
  EXPECT_GT(report.busy, fixed.busy);
  EXPECT_GE(report.whole.Quantile(0.99), fixed.whole.Quantile(0.99));
  const ClusterReport again = simulated(scaled);
  EXPECT_EQ(again.seconds, report.seconds);
  EXPECT_EQ(again.engine_seconds, report.engine_seconds);
  // An engine that fails while it runs, leaves or starts loses nothing either.
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    scaled.fail_every_seconds = 15;
    scaled.repair_seconds = 3;
    scaled.seed = seed;
    EXPECT_EQ(simulated(scaled).finished, 200);
  }
}

TEST(Cluster, APromptComputedElsewhereTakesTheTimeOfItsPagesToo) {
  const std::vector<ClusterRequest> one{{.at_us = 5, .prompt = {{7, 640}}, .answer = {{8, 3}}}};
  const ClusterReport alone = Simulated({}, one);
  const ClusterReport report = Simulated({.engines = 2, .prefill_engines = 1}, one);
  ASSERT_EQ(report.transfer.count(), 1);
  const double bytes = 640 * 2 * 2 * 16 * 2;  // keys and values of 2 heads in bf16
  EXPECT_EQ(report.transferred_bytes, bytes);
  EXPECT_NEAR(report.transfer.mean(), bytes / Machine().link_bytes_per_second, 1e-9);
  EXPECT_NEAR(report.first_token.mean(), alone.first_token.mean() + report.transfer.mean(),
              alone.first_token.mean() * 1e-3);
  EXPECT_NEAR(report.inter_token.mean(), alone.inter_token.mean(), 1e-6);
  EXPECT_EQ(report.output_tokens, 3);
  EXPECT_GT(report.prefill_busy, report.busy);
}

TEST(Cluster, APromptThatNoEngineWouldReceiveIsComputedWhereItIsAnswered) {
  // No token after the first, less than a block, no token at all, scores; and one that is received.
  const std::vector<ClusterRequest> requests{
      {.prompt = {{7, 640}}, .answer = {{1, 1}}},
      {.prompt = {{8, 10}}, .answer = {{2, 5}}},
      {.prompt = {{9, 640}}, .answer = {}, .answer_max = 5},
      {.prompt = {{10, 640}}, .answer = {{3, 5}}, .scores_prompt = true},
      {.prompt = {{11, 640}}, .answer = {{4, 1}}, .answer_max = 5}};
  const ClusterReport report = Simulated({.engines = 2, .prefill_engines = 1}, requests);
  EXPECT_EQ(report.finished, 5);
  EXPECT_EQ(report.transfer.count(), 1);
  EXPECT_EQ(report.output_tokens, 1 + 5 + 5 + 1);
  EXPECT_EQ(report.first_token.count(), 4);
}

TEST(Cluster, ScoresOfAPromptTakeTimeAndNoPrefix) {
  const auto run = [](bool scores) {
    return Simulated(
        {},
        {{.prompt = {{7, 640}}, .answer = {{1, 2}}},
         {.at_us = 60'000'000, .prompt = {{7, 640}}, .answer = {{2, 2}}, .scores_prompt = scores}});
  };
  EXPECT_EQ(run(false).reused_tokens, 576);
  EXPECT_EQ(run(true).reused_tokens, 0);
  EXPECT_GT(run(true).first_token.Quantile(1), 1.1 * run(true).first_token.Quantile(0.01));
}

TEST(Cluster, TheHigherPriorityAndTheTenantServedLeastComeFirst) {
  // One sequence runs at a time. A short request comes while twelve long ones of ann's wait: the
  // sooner it is served, the shorter is the mean.
  const auto mean = [](int32_t priority, const std::string& tenant) {
    std::vector<ClusterRequest> requests;
    for (uint64_t i = 0; i < 12; ++i) {
      requests.push_back({.prompt = {{i + 1, 640}}, .answer = {{100 + i, 20}}, .tenant = "ann"});
    }
    requests.push_back({.at_us = 1,
                        .prompt = {{50, 10}},
                        .answer = {{150, 1}},
                        .priority = priority,
                        .tenant = tenant});
    return Simulated({.running_max = 1}, requests).whole.mean();
  };
  const double last = mean(0, "ann");
  EXPECT_LT(mean(0, "ben"), 0.95 * last);
  EXPECT_LT(mean(1, "ann"), 0.95 * last);
  EXPECT_NEAR(mean(-1, "ann"), last, 0.01 * last);
}

TEST(Cluster, PromptsElsewhereDoNotHoldUpAnswers) {
  const auto requests = MakeRequests({.requests_per_second = 4,
                                      .seconds = 60,
                                      .input_tokens = 8192,
                                      .output_tokens = 2000,
                                      .range_ratio = 0.5});
  Hardware machine = Machine();
  machine.memory_bytes_per_second = 1e10;
  const auto simulated = [&](const ClusterOptions& options) {
    auto report = SimulateCluster(Small(), machine, {}, options, requests);
    CHECK(report, "{}", report.error().message);
    return *std::move(report);
  };
  const ClusterReport both = simulated({.engines = 2});
  const ClusterReport apart = simulated({.engines = 2, .prefill_engines = 1});
  EXPECT_EQ(apart.finished, both.finished);
  EXPECT_EQ(apart.output_tokens, both.output_tokens);
  EXPECT_EQ(apart.transfer.count(), apart.finished);
  EXPECT_LT(10 * apart.inter_token.Quantile(0.99), both.inter_token.Quantile(0.99));
}

TEST(Cluster, FailuresOnEitherSideOfATransferLoseNoRequest) {
  int64_t failed = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const ClusterOptions options{.engines = 4,
                                 .prefill_engines = 2,
                                 .route = seed % 2 > 0 ? Policy::kPrefix : Policy::kRoundRobin,
                                 .fail_every_seconds = 12,
                                 .repair_seconds = 3,
                                 .seed = seed};
    const auto requests = Drawn(ClusterLoad::kAgentic, 0.5, seed);
    const ClusterReport report = Simulated(options, requests);
    EXPECT_EQ(report.finished, static_cast<int64_t>(requests.size()));
    int64_t tokens = 0;
    for (const ClusterRequest& request : requests) tokens += request.answer_tokens();
    EXPECT_EQ(report.output_tokens, tokens);
    EXPECT_GT(report.restarted, 0);
    failed += report.transfers_failed;
  }
  EXPECT_GT(failed, 0);
}

TEST(Cluster, WithoutALinkNoPagesCanBeSent) {
  Hardware machine = Machine();
  machine.link_bytes_per_second = 0;
  const auto report = SimulateCluster(Small(), machine, {}, {.engines = 2, .prefill_engines = 1},
                                      Drawn(ClusterLoad::kRandom, 1));
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.error().message.find("link_bytes_per_second"), std::string::npos);
}

TEST(Cluster, RoutingByPrefixReusesMore) {
  const auto requests = Drawn(ClusterLoad::kAgentic, 0.5);
  const auto reused = [&](Policy route) {
    const ClusterReport report = Simulated({.engines = 4, .route = route}, requests);
    EXPECT_EQ(report.finished, report.requests);
    return static_cast<double>(report.reused_tokens) / static_cast<double>(report.input_tokens);
  };
  const double prefix = reused(Policy::kPrefix);
  EXPECT_GT(prefix, 0.6);
  EXPECT_GT(prefix, reused(Policy::kRoundRobin) + 0.05);
}

TEST(Cluster, MoreLoadWaitsLonger) {
  const double calm = Simulated({}, Drawn(ClusterLoad::kRandom, 0.2)).first_token.Quantile(0.5);
  const double busy = Simulated({}, Drawn(ClusterLoad::kRandom, 200)).first_token.Quantile(0.5);
  EXPECT_GT(busy, 2 * calm);
}

TEST(TimeHistogram, QuantilesAreWithinTwoPercent) {
  TimeHistogram times;
  for (int i = 1; i <= 1000; ++i) times.Add(i * 1e-3);
  EXPECT_NEAR(times.Quantile(0.5), 0.5, 0.01);
  EXPECT_NEAR(times.Quantile(0.99), 0.99, 0.02);
  EXPECT_NEAR(times.mean(), 0.5005, 1e-9);
  EXPECT_EQ(TimeHistogram().Quantile(0.5), 0);
  EXPECT_EQ(TimeHistogram().mean(), 0);
  TimeHistogram one;
  one.Add(0.25);
  for (const double q : {0.0, 0.5, 1.0}) EXPECT_NEAR(one.Quantile(q), 0.25, 0.005);
  one.Add(4, 3);
  EXPECT_EQ(one.count(), 4);
  EXPECT_NEAR(one.mean(), (0.25 + 3 * 4) / 4, 1e-12);
  EXPECT_NEAR(one.Quantile(0.25), 0.25, 0.005);
  EXPECT_NEAR(one.Quantile(0.26), 4, 0.08);
  one.Add(0);
  EXPECT_NEAR(one.Quantile(0), 1e-6, 2e-8);
}

TEST(Workload, DrawsWhatItSays) {
  const auto requests = Drawn(ClusterLoad::kRandom, 50);
  EXPECT_NEAR(static_cast<double>(requests.size()), 3000, 200);
  double out = 0;
  for (const ClusterRequest& r : requests) {
    EXPECT_GE(r.prompt_tokens(), 128);
    EXPECT_LE(r.prompt_tokens(), 256);
    out += r.answer_tokens();
  }
  EXPECT_NEAR(out / static_cast<double>(requests.size()), 24, 0.5);
  double in = 0;
  const auto chats = Drawn(ClusterLoad::kShareGpt, 100);
  for (const ClusterRequest& r : chats) in += r.prompt_tokens();
  EXPECT_NEAR(in / static_cast<double>(chats.size()), 220, 25);
}

TEST(Workload, LaterTurnsBeginAsEarlierOnesWithTheirAnswers) {
  const auto requests = Drawn(ClusterLoad::kAgentic, 1);
  int turns = 0;
  for (const ClusterRequest& r : requests) {
    if (r.follows < 0) continue;
    const ClusterRequest& before = requests[static_cast<size_t>(r.follows)];
    const std::vector<TokenId> now = PromptTokens(r, 1000), then = PromptTokens(before, 1000);
    ASSERT_TRUE(std::equal(then.begin(), then.end(), now.begin()));
    ASSERT_EQ(before.answer.size(), 1U);
    for (int32_t i = 0; i < before.answer_tokens(); ++i) {
      const TokenId token = now[then.size() + static_cast<size_t>(i)];
      ASSERT_EQ(token, SegmentToken(before.answer[0].key, i, 1000));
      // The last one is never computed: it is the end instead.
      const bool last = i + 1 == before.answer_tokens();
      ASSERT_EQ(AnswerToken(before, i, 1000), last ? kEndToken : token);
    }
    ++turns;
  }
  EXPECT_GT(turns, 100);
}

TEST(Workload, ReadsPublicTraces) {
  const auto mooncake = ParseTrace(
      "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 1]}\n"
      "{\"timestamp\": 1500, \"input_length\": 700, \"output_length\": 6, \"hash_ids\": [0, 2]}\n"
      "{\"timestamp\": 9e6, \"input_length\": 1, \"output_length\": 6, \"hash_ids\": [3]}\n",
      "t", 60);
  ASSERT_TRUE(mooncake) << mooncake.error().message;
  ASSERT_EQ(mooncake->size(), 2U);
  EXPECT_EQ((*mooncake)[1].at_us, 1500000);
  EXPECT_EQ((*mooncake)[1].prompt_tokens(), 700);
  EXPECT_EQ((*mooncake)[0].prompt[0].key, (*mooncake)[1].prompt[0].key);
  const auto azure = ParseTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:16:47.1805900,396,109\r\n",
      "t", 100);
  ASSERT_TRUE(azure) << azure.error().message;
  ASSERT_EQ(azure->size(), 2U);
  EXPECT_EQ((*azure)[1].at_us, 60500000);
  EXPECT_EQ((*azure)[1].prompt_tokens(), 396);
  EXPECT_EQ((*azure)[1].answer_tokens(), 109);
  const auto error = [](std::string_view text) {
    const auto read = ParseTrace(text, "t", 10);
    return read ? std::string("none") : read.error().message;
  };
  EXPECT_NE(error("{\"timestamp\": 0}\n").find("t, line 1: needs timestamp"), std::string::npos);
  EXPECT_NE(error("2023-11-16 18:15:46,x\n").find("ContextTokens"), std::string::npos);
  EXPECT_NE(error("{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, "
                  "\"hash_ids\": [0]}")
                .find("do not make 600"),
            std::string::npos);
  EXPECT_NE(error("").find("no request"), std::string::npos);
}

TEST(Workload, ATraceMayCrossTheEndOfAMonthButNotGoBack) {
  const auto read = [](const std::string& lines) { return ParseTrace(lines, "t", 1e5); };
  const auto months = read("2024-02-29 23:59:59.5,374,44\n2024-03-01 00:00:01.0,5,6\n");
  ASSERT_TRUE(months) << months.error().message;
  ASSERT_EQ(months->size(), 2U);
  EXPECT_EQ((*months)[1].at_us, 1'500'000);
  const auto error = [&](const std::string& lines) {
    const auto requests = read(lines);
    return requests ? std::string("none") : requests.error().message;
  };
  EXPECT_NE(error("2024-03-01 00:00:01,5,6\n2024-02-29 23:59:59.5,374,44\n")
                .find("t, line 2: is 1.500 s before the first request"),
            std::string::npos);
  const auto mooncake = [](int ms) {
    return fmt::format(
        "{{\"timestamp\": {}, \"input_length\": 5, \"output_length\": 5, "
        "\"hash_ids\": [0]}}\n",
        ms);
  };
  EXPECT_NE(error(mooncake(9) + mooncake(10) + mooncake(8)).find("t, line 3: is 0.001 s before"),
            std::string::npos);
  // Rows between others may change places.
  EXPECT_EQ(read(mooncake(0) + mooncake(10) + mooncake(8))->size(), 3U);
  // Times without a date, and dates that do not exist.
  for (const char* time : {" 12:34:56", "1 12:34:56", "12:34:56", "2024-02-30 12:34:56",
                           "2024-13-01 12:34:56", "2024-01-01 24:34:56", "2024-01-01 1x:34:56"}) {
    EXPECT_NE(error(std::string(time) + ",374,44\n").find("line 1: needs TIMESTAMP"),
              std::string::npos)
        << time;
  }
}

}  // namespace
}  // namespace braid
