// Forecasts of meshes, against sums by hand and against each other.
#include "forecast/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "forecast/formulas.h"
#include "forecast/test_forecast.h"

namespace braid {
namespace {

TEST(Forecast, TheFullestRankOfExpertsDecides) {
  const auto experts = [](const StepForecast& step) {
    for (const PartForecast& part : step.parts) {
      if (part.part == "experts") return part;
    }
    return PartForecast{};
  };
  const Mesh mesh{.dp = 8, .tp = 1, .ep = 8};
  const Workload workload{.input_tokens = 512, .output_tokens = 64, .concurrency = 64};
  const Forecast even = Of(Mixture(), mesh, workload);
  const Forecast half = Of(Mixture(), mesh, workload, {.expert_balance = 0.5});
  const Forecast worst = Of(Mixture(), mesh, workload, {.expert_balance = 0.001});
  // Rows of the routed experts double; the shared expert, the router and the bytes do not.
  const double routed = 512.0 * 2 * 6 * 64 * 32;  // of a rank, of its group's prompt, forth
  EXPECT_NEAR(experts(half.prefill).flops - experts(even.prefill).flops, routed, routed * 1e-9);
  EXPECT_NEAR(experts(worst.prefill).flops - experts(even.prefill).flops, 7 * routed,
              routed * 1e-9);
  EXPECT_EQ(experts(half.prefill).bytes, experts(even.prefill).bytes);
  EXPECT_DOUBLE_EQ(half.prefill.sent_bytes, 2 * even.prefill.sent_bytes);
  EXPECT_LT(half.serial.output_tokens_per_second, even.serial.output_tokens_per_second);
  EXPECT_NE(ErrorOf(ForecastOf(Mixture(), mesh, Machine(), workload, {.expert_balance = 0}))
                .find("above 0"),
            std::string::npos);
}

TEST(Forecast, DraftsAreVerifiedMadeAndCountedAsFarAsTheyAreRight) {
  ModelSpec spec = Dense();
  const Forecast plain = Of(spec, {}, kWorkload);
  EXPECT_NE(ErrorOf(ForecastOf(spec, {}, Machine(), kWorkload, {.drafts = 2})).find("draft head"),
            std::string::npos);
  spec.draft = DraftSpec{.layers = spec.layers};
  const Forecast wrong = Of(spec, {}, kWorkload, {.drafts = 2, .draft_acceptance = 0});
  const Forecast right = Of(spec, {}, kWorkload, {.drafts = 2, .draft_acceptance = 1});
  EXPECT_EQ(wrong.tokens_per_step, 1);
  EXPECT_EQ(right.tokens_per_step, 3);
  EXPECT_EQ(Of(spec, {}, kWorkload, {.drafts = 2, .draft_acceptance = 0.5}).tokens_per_step, 1.75);
  EXPECT_EQ(Of(spec, {}, kWorkload, {.drafts = 0, .draft_acceptance = 1}).tokens_per_step, 1);
  EXPECT_DOUBLE_EQ(right.serial.inter_token_seconds, right.decode.seconds_without_overlap() / 3);
  // The model's products see three rows of each sequence; the head makes two passes of its layer,
  // of its projection [hidden, 2 hidden] and of the output head.
  const PartForecast& head = wrong.decode.parts.back();
  ASSERT_EQ(head.part, "draft head");
  double layer = 0;
  for (const PartForecast& part : plain.decode.parts) layer += part.flops;
  EXPECT_NEAR(head.flops, 2 * (layer + 8 * 4 * 64.0 * 64), head.flops * 1e-9);
  const Forecast light =
      Of(spec, {}, kWorkload, {.drafts = 2, .draft_acceptance = 0, .without_weight_bytes = true});
  // What is left are keys and values, of two passes.
  const auto kept = std::ranges::find(plain.decode.parts, "attention", &PartForecast::part);
  EXPECT_NEAR(light.decode.parts.back().bytes, 2 * kept->bytes, 1);
  const Forecast twice = Of(spec, {}, kWorkload, {.drafts = 4, .draft_acceptance = 0});
  EXPECT_DOUBLE_EQ(twice.decode.parts.back().bytes, 2 * head.bytes);
  EXPECT_DOUBLE_EQ(twice.decode.parts.back().arithmetic_seconds, 2 * head.arithmetic_seconds);
  EXPECT_DOUBLE_EQ(twice.decode.parts.back().memory_seconds, 2 * head.memory_seconds);
  EXPECT_NEAR(head.memory_seconds, head.bytes / 1e9, 1e-15);
  EXPECT_NEAR(head.arithmetic_seconds, head.flops / 1e12, 1e-15);
  // Passes have the bytes of the layer, the output head and the projection in bf16.
  double bytes = 0;
  for (const PartForecast& part : plain.decode.parts) bytes += part.bytes;
  EXPECT_NEAR(head.bytes, 2 * (bytes + 2 * 2 * 64.0 * 64), head.bytes * 1e-9);
  for (size_t i = 0; i < plain.decode.parts.size(); ++i) {
    if (plain.decode.parts[i].part == "attention") continue;  // later rows have longer contexts
    EXPECT_NEAR(wrong.decode.parts[i].flops, 3 * plain.decode.parts[i].flops, head.flops * 1e-9)
        << plain.decode.parts[i].part;
  }
}

TEST(Forecast, TheHeadsFirstPassSeesAllTokensOfTheStepBefore) {
  ModelSpec spec = Dense();
  spec.draft = DraftSpec{.layers = spec.layers};
  const auto head = [&](double acceptance, int32_t drafts) {
    return Of(spec, {}, kWorkload, {.drafts = drafts, .draft_acceptance = acceptance})
        .decode.parts.back()
        .flops;
  };
  // Of a row: 12288 weights of attention, 49152 of the feed-forward, the projection [64, 128]; of
  // each of 8 sequences in a pass: the output head [128, 64]; 4 heads of 16 meet 544 keys and half
  // of the pass's own.
  const auto pass = [](double rows_each) {
    return 8 * (rows_each * 2 * (12288 + 49152 + 8192) + 2 * 8192 +
                rows_each * 4 * (544 + (rows_each + 1) / 2) * 64);
  };
  EXPECT_DOUBLE_EQ(head(0, 1), pass(1));
  EXPECT_DOUBLE_EQ(head(1, 1), pass(2));
  EXPECT_DOUBLE_EQ(head(1, 2), pass(3) + pass(1));
  EXPECT_DOUBLE_EQ(head(0.5, 2), 0.25 * pass(1) + 0.75 * pass(2) + pass(1));
}

TEST(Forecast, WorkOnRowsIsThatOfTheLayersThatRun) {
  ModelSpec spec = Dense();
  spec.draft = DraftSpec{.layers = spec.layers};
  spec.layers = {spec.layers[0], spec.layers[0], spec.layers[0]};
  Hardware measured = Machine();
  measured.calibration = Calibration({{std::string(kRowWork), "", 0, 1e6, 1e-3}}, 1, 1);
  const ForecastOptions options{.drafts = 2, .draft_acceptance = 1};
  const StepForecast without = Of(spec, {}, kWorkload, options).decode;
  const StepForecast with = Of(spec, {}, kWorkload, options, measured).decode;
  // Norms read and write 4 floats of 64 channels: two for each layer and one at the end.
  const auto bytes = [](double layers, double rows) {
    return 8 * rows * (2 * layers + 1) * 4 * 64 * 4;
  };
  const auto at = std::ranges::find(with.parts, kRowWork, &PartForecast::part);
  ASSERT_NE(at, with.parts.end());
  EXPECT_DOUBLE_EQ(at->bytes, bytes(3, 3));
  EXPECT_NEAR(with.parts.back().bytes - without.parts.back().bytes, bytes(1, 3) + bytes(1, 1), 1);
  // A thousandth of a second for a million bytes.
  EXPECT_NEAR(at->seconds, bytes(3, 3) * 1e-9, 1e-12);
}

// Three layers and a head of one, on two ranks.
ModelSpec WithHead(ModelSpec spec) {
  spec.draft = DraftSpec{.layers = spec.layers};
  spec.layers = {spec.layers[0], spec.layers[0], spec.layers[0]};
  return spec;
}

TEST(Forecast, ADraftPassSendsWhatTheHeadsOwnLayersSend) {
  const Mesh mesh{.dp = 1, .tp = 2, .ep = 1};
  // A rank gets half of 64 inner and 64 outer channels of a layer's mixer, 256 and 64 of its
  // feed-forward, in bf16: of 24 rows that the model verifies, and of one pass of the head.
  const auto layer = [](double rows) { return rows * (64 + 64 + 256 + 64) * 2 / 2; };
  const double dense = Of(WithHead(Dense()), mesh, kWorkload, {.drafts = 2, .draft_acceptance = 0})
                           .decode.sent_bytes;
  EXPECT_DOUBLE_EQ(dense, 3 * layer(24) + 2 * layer(8));
  // A token's two experts there and back, of which seven eighths are elsewhere.
  const auto routed = [](double rows) { return rows * 2 * 64 * (2 + 2) * 7 / 8; };
  const double mixture = Of(WithHead(Mixture()), {.dp = 8, .tp = 1, .ep = 8}, kWorkload,
                            {.drafts = 1, .draft_acceptance = 0})
                             .decode.sent_bytes;
  EXPECT_DOUBLE_EQ(mixture, 3 * routed(2) + routed(1));
}

TEST(Forecast, RanksOfAGroupDivideTheDraftHead) {
  const ForecastOptions options{.drafts = 2, .draft_acceptance = 1};
  const auto head = [&](const Mesh& mesh) {
    return Of(WithHead(Dense()), mesh, kWorkload, options).decode.parts.back();
  };
  const PartForecast one = head({}), two = head({.tp = 2});
  ASSERT_EQ(two.part, "draft head");
  EXPECT_DOUBLE_EQ(two.flops, one.flops / 2);
  EXPECT_LT(two.bytes, 0.51 * one.bytes);  // but for the rows of the embedding
}

TEST(Forecast, ADraftHeadThatIsUsedTakesMemory) {
  ModelSpec spec = WithHead(Dense());
  spec.layers[1].mixer = LinearAttention{
      .key_heads = 2, .value_heads = 2, .key_dim = 16, .value_dim = 16, .conv_width = 4};
  const MemoryForecast without = Of(spec, {}, kWorkload).memory;
  UseDraftHead(spec);
  PlanState(spec, 2);
  const MemoryForecast with = Of(spec, {}, kWorkload, {.drafts = 2}).memory;
  // The head's matrices in bf16 and its norms.
  const double head = 12288 + 49152 + 8192;
  EXPECT_NEAR(static_cast<double>(with.weights - without.weights), 2 * head, 0.05 * 2 * head);
  // Of each of 9 blocks: keys and values of one more layer, and the last state in fp32.
  EXPECT_EQ(with.kv - without.kv, 8 * 9 * (64 * 2 * 2 * 16 * 2 + 64 * 4));
  // Three states instead of two, each with two further rows of the convolution's 96 channels.
  const CachePlan plan = CachePlanOf(spec, DType::kBF16);
  const auto state = std::ranges::find(plan.groups, GroupKind::kState, &GroupGeometry::kind);
  EXPECT_EQ(with.state, 8 * 3 * state->block_bytes);
  EXPECT_GT(with.state, without.state / 2 * 3);
}

TEST(Forecast, AWorkloadMayFillTheWholeContext) {
  const Workload full{.input_tokens = 4000, .output_tokens = 96, .concurrency = 1};
  EXPECT_TRUE(ForecastOf(Dense(), {}, Machine(), full, {}));
  const Workload beyond{.input_tokens = 4000, .output_tokens = 97, .concurrency = 1};
  EXPECT_NE(ErrorOf(ForecastOf(Dense(), {}, Machine(), beyond, {})).find("context is 4096"),
            std::string::npos);
}

TEST(Forecast, AHostsTimeGrowsWithTheSequencesOfAStep) {
  Hardware machine = Machine();
  machine.host_seconds = 0.5;
  machine.host_sequence_seconds = 0.25;
  const Forecast forecast = Of(Dense(), {}, kWorkload, {}, machine);
  EXPECT_DOUBLE_EQ(forecast.prefill.host_seconds, 0.75);
  EXPECT_DOUBLE_EQ(forecast.decode.host_seconds, 0.5 + 8 * 0.25);
}

TEST(Forecast, OfOneDeviceIsTheModelsCostAtTheLimits) {
  const Forecast forecast = Of(Dense(), {}, kWorkload);
  const StepShape shape{
      .tokens = 8, .sequences = 8, .context_tokens = 512 + 32, .kv_dtype = DType::kBF16};
  double seconds = 0;
  for (const Cost& cost : CostsOf(Dense(), shape, 8)) {
    seconds += std::max(cost.flops / 1e12, cost.bytes / 1e9);
  }
  EXPECT_DOUBLE_EQ(forecast.decode.compute_seconds, seconds);
  EXPECT_EQ(forecast.decode.sent_bytes, 0);
  EXPECT_EQ(forecast.decode.bound(), Bound::kMemory);
  EXPECT_DOUBLE_EQ(forecast.serial.inter_token_seconds, seconds);
}

TEST(Forecast, PromptsShareStepsAsFarAsTheLimitOfTokensAllows) {
  const auto clock = StepClock::Create(Dense(), {}, Machine(), {});
  ASSERT_TRUE(clock);
  const auto prompts = [&](int64_t count) {
    return clock->StepOf({.tokens = count * 512, .sequences = count, .logits_rows = count}, {})
        .compute_seconds;
  };
  const auto speeds = [](int64_t step_tokens) {
    return Of(Dense(), {}, kWorkload, {.step_tokens_max = step_tokens});
  };
  // All eight, and 63 further steps for 8 * 64 tokens.
  const Forecast all = speeds(8192);
  const double step = all.decode.compute_seconds;
  EXPECT_NEAR(all.serial.output_tokens_per_second, 512 / (prompts(8) + 63 * step), 1e-6);
  EXPECT_NEAR(all.serial.first_token_seconds, prompts(1), 1e-12);
  EXPECT_NEAR(all.serial.first_token_seconds_burst, prompts(8), 1e-12);
  // Four and four: the mean of a token after the first four prompts and one after all.
  const Forecast half = speeds(2500);
  EXPECT_NEAR(half.serial.output_tokens_per_second, 512 / (2 * prompts(4) + 63 * step), 1e-6);
  EXPECT_NEAR(half.serial.first_token_seconds_burst, 1.5 * prompts(4), 1e-12);
  EXPECT_NEAR(half.serial.inter_token_seconds_mean, (prompts(4) + 63 * step) / 63, 1e-12);
  EXPECT_NEAR(all.serial.inter_token_seconds_mean, step, 1e-12);
  // One by one: weights are read for each.
  const Forecast alone = speeds(1000);
  EXPECT_NEAR(alone.serial.output_tokens_per_second, 512 / (8 * prompts(1) + 63 * step), 1e-6);
  EXPECT_LT(alone.serial.output_tokens_per_second, half.serial.output_tokens_per_second);
}

// Three requests on two groups: the second group has room for one more, which nobody uses.
TEST(Forecast, GroupsThatAreNotFullCountAsTheyAre) {
  const Workload three{.input_tokens = 512, .output_tokens = 64, .concurrency = 3};
  const Workload four{.input_tokens = 512, .output_tokens = 64, .concurrency = 4};
  const double part = Of(Dense(), {.dp = 2}, three).serial.output_tokens_per_second;
  const double full = Of(Dense(), {.dp = 2}, four).serial.output_tokens_per_second;
  EXPECT_DOUBLE_EQ(part, full * 3 / 4);
}

TEST(Forecast, PartsAddUpToTheStep) {
  const Forecast forecast = Of(Mixture(), {}, kWorkload);
  double seconds = 0;
  for (const PartForecast& part : forecast.prefill.parts) seconds += part.seconds;
  EXPECT_DOUBLE_EQ(seconds, forecast.prefill.compute_seconds);
  EXPECT_EQ(forecast.prefill.parts.size(), 4u);  // head, projections, attention, experts
}

TEST(Forecast, OfMemoryIsWhatTheCacheAndTheWeightsTake) {
  const Forecast forecast = Of(Dense(), {}, kWorkload);
  // 9 blocks of 64 tokens, 2 heads of 16 for keys and for values, bf16.
  EXPECT_EQ(forecast.memory.kv, 8 * 9 * 64 * 2 * 2 * 16 * 2);
  EXPECT_EQ(forecast.memory.state, 0);
  const ParameterCount count = ParametersOf(Dense());
  EXPECT_GE(forecast.memory.weights, 2 * count.total);
  EXPECT_LE(forecast.memory.weights, 2 * count.total + 2 * 1024);  // vectors are fp32
  EXPECT_TRUE(forecast.fits);
  // Of 8 prompts of 512 tokens: three vectors of 64 channels and gate and up of 256.
  EXPECT_EQ(forecast.memory.workspace, 4 * (8 * 512 * (3 * 64 + 2 * 256) + 8 * 128));
  const ForecastOptions short_steps{.step_tokens_max = 4};  // of fewer tokens than sequences
  EXPECT_EQ(Of(Dense(), {}, kWorkload, short_steps).memory.workspace,
            4 * (8 * (3 * 64 + 2 * 256) + 8 * 128));
  ModelSpec many = Dense();  // words: the head's output is of the rows that need it
  many.vocabulary = 5000;
  EXPECT_EQ(Of(many, {}, kWorkload).memory.workspace,
            4 * (8 * 512 * (3 * 64 + 2 * 256) + 8 * 5000));
  ModelSpec recurrent = Dense();
  recurrent.layers.push_back(recurrent.layers[0]);
  recurrent.layers[1].mixer = LinearAttention{
      .key_heads = 2, .value_heads = 2, .key_dim = 16, .value_dim = 16, .conv_width = 4};
  const CachePlan cache = CachePlanOf(recurrent, DType::kBF16);
  ASSERT_EQ(cache.groups.size(), 2u);
  const auto state = std::ranges::find_if(
      cache.groups, [](const GroupGeometry& g) { return g.kind != GroupKind::kFull; });
  EXPECT_EQ(Of(recurrent, {}, kWorkload).memory.state, 8 * 2 * state->block_bytes);
  Hardware small = Machine();
  small.memory_bytes = static_cast<double>(forecast.memory.total()) - 1;
  EXPECT_FALSE(Of(Dense(), {}, kWorkload, {}, small).fits);
}

TEST(Forecast, TensorRanksDivideWorkAndWeightsAndGatherRows) {
  const Forecast one = Of(Dense(), {}, kWorkload), two = Of(Dense(), {.tp = 2}, kWorkload);
  EXPECT_NEAR(static_cast<double>(two.memory.weights), static_cast<double>(one.memory.weights) / 2,
              1024);
  EXPECT_EQ(two.memory.kv, one.memory.kv / 2);
  for (size_t i = 0; i < one.decode.parts.size(); ++i) {
    EXPECT_DOUBLE_EQ(two.decode.parts[i].flops, one.decode.parts[i].flops / 2);
  }
  // Of 8 tokens half of 64 inner and 64 outer channels of the mixer, 256 and 64 of the ffn.
  EXPECT_DOUBLE_EQ(two.decode.sent_bytes, 8 * (64 + 64 + 256 + 64) * 2 / 2);
  EXPECT_DOUBLE_EQ(two.decode.link_seconds, two.decode.sent_bytes / 1e8);
}

TEST(Forecast, ExpertRanksOfSeveralGroupsSendRowsThereAndBack) {
  const Mesh mesh{.dp = 4, .tp = 1, .ep = 4};
  const Forecast four = Of(Mixture(), mesh, kWorkload), one = Of(Mixture(), {}, kWorkload);
  // 2 tokens of a group, 2 experts each, three quarters on other ranks, bf16 both ways.
  EXPECT_DOUBLE_EQ(four.decode.sent_bytes, 2 * (2 * 2 * 64 * 2) * 0.75);
  // Integers with a scale of 4 bytes there.
  const Forecast coded = Of(Mixture(), mesh, kWorkload, {.format = ops::WeightFormat::kI8});
  EXPECT_DOUBLE_EQ(coded.decode.sent_bytes, 2 * 2 * (64 + 4 + 64 * 2) * 0.75);
  const auto experts = [](const Forecast& f) { return f.decode.parts.back(); };
  ASSERT_EQ(experts(four).part, "experts");
  // A quarter of the experts for the tokens of all: the routed work of a quarter of the tokens.
  EXPECT_DOUBLE_EQ(experts(four).flops, experts(one).flops / 4);
  EXPECT_LT(experts(four).bytes, experts(one).bytes);
  // Of the 1024 tokens of two prompts, two rows in bf16 there and two back, twice.
  EXPECT_EQ(four.memory.exchange_buffers, 2 * 1024 * (2 * 64 * 2 + 2 * 64 * 2));
  EXPECT_EQ(one.memory.exchange_buffers, 0);
}

TEST(Forecast, OverTheNetworkATokenGoesOnceToEachNode) {
  // Drawn against counted: 8 of 256 experts of 4 of 8 groups on 4 nodes, and without groups on 9.
  Rng rng(7);
  const auto drawn = [&](int32_t experts, int32_t groups, int32_t kept, int32_t nodes) {
    constexpr int kTokens = 20000;
    int64_t visited = 0;
    for (int token = 0; token < kTokens; ++token) {
      std::set<int32_t> chosen, allowed, seen;
      while (static_cast<int32_t>(allowed.size()) < kept) {
        allowed.insert(static_cast<int32_t>(rng.Below(groups)));
      }
      while (chosen.size() < 8) {
        const auto expert = static_cast<int32_t>(rng.Below(experts));
        if (allowed.contains(expert / (experts / groups))) chosen.insert(expert);
      }
      for (const int32_t expert : chosen) seen.insert(expert / (experts / nodes));
      visited += static_cast<int64_t>(seen.size());
    }
    return static_cast<double>(visited) / kTokens;
  };
  EXPECT_NEAR(NodesOfToken(256, 8, 8, 4, 4), drawn(256, 8, 4, 4), 0.02);
  EXPECT_NEAR(NodesOfToken(256, 8, 8, 4, 8), drawn(256, 8, 4, 8), 0.02);
  EXPECT_NEAR(NodesOfToken(288, 8, 1, 1, 9), drawn(288, 1, 1, 9), 0.02);
  EXPECT_EQ(NodesOfToken(16, 16, 1, 1, 4), 4);
  // Pairs of devices: two nodes, of which the other one gets a token unless both its experts are
  // here; links pass on half of what arrives.
  Hardware pairs = Machine();
  pairs.link_devices = 2;
  const Forecast forecast = Of(Mixture(), {.dp = 4, .tp = 1, .ep = 4}, kWorkload, {}, pairs);
  const double other = 1 - (8.0 * 7) / (16 * 15);
  const double network = 2 * (2 * other * 64 * 2), links = 2 * (2 * 2 * 64 * 2) / 2.0;
  EXPECT_DOUBLE_EQ(forecast.decode.sent_bytes, network + links);
  EXPECT_DOUBLE_EQ(forecast.decode.link_seconds, network / 1e7);
}

TEST(Forecast, LayersOfAKindAddUp) {
  ModelSpec three = Dense();
  three.layers = {three.layers[0], three.layers[0], three.layers[0]};
  const Forecast one = Of(Dense(), {}, kWorkload), all = Of(three, {}, kWorkload);
  ASSERT_EQ(all.decode.parts.size(), one.decode.parts.size());
  for (size_t i = 0; i < one.decode.parts.size(); ++i) {
    const PartForecast &each = one.decode.parts[i], &sum = all.decode.parts[i];
    const double times = each.part == "embedding, head" ? 1 : 3;
    EXPECT_NEAR(sum.flops, times * each.flops, each.flops * 1e-9) << each.part;
    EXPECT_NEAR(sum.bytes, times * each.bytes, each.bytes * 1e-9) << each.part;
    EXPECT_NEAR(sum.seconds, times * each.seconds, each.seconds * 1e-9) << each.part;
    EXPECT_NEAR(sum.arithmetic_seconds, times * each.arithmetic_seconds, 1e-15) << each.part;
    EXPECT_NEAR(sum.memory_seconds, times * each.memory_seconds, 1e-15) << each.part;
  }
}

TEST(Forecast, ExpertRanksOfOneGroupSumTheirOutputs) {
  Hardware machine = Machine();
  machine.exchange_seconds = 1e-3;
  const Forecast two = Of(Mixture(), {.tp = 2, .ep = 2}, kWorkload, {}, machine);
  // Gathers of 64 + 64 and 32 + 64 channels, of which half come, and sums of 64 that are scattered
  // and gathered: three exchanges.
  const double bytes = 8 * (64 + 64 + 32 + 64) * 2 / 2.0 + 2 * 8 * 64 * 2 / 2.0;
  EXPECT_DOUBLE_EQ(two.decode.sent_bytes, bytes);
  EXPECT_DOUBLE_EQ(two.decode.link_seconds, bytes / 1e8 + 3e-3);
  EXPECT_EQ(two.memory.exchange_buffers, 0);
  // A device that is alone exchanges nothing.
  EXPECT_EQ(Of(Mixture(), {}, kWorkload, {}, machine).decode.link_seconds, 0);
}

TEST(Forecast, SpeedsAreThoseOfPromptsAndStepsInTurn) {
  Hardware machine = Machine();
  machine.dollars_per_hour = 3;
  machine.watts = 500;
  machine.host_seconds = 1e-3;
  const Workload workload{.input_tokens = 1000, .output_tokens = 5, .concurrency = 6};
  const ForecastOptions options{.step_tokens_max = 300};
  const Mesh mesh{.tp = 2};
  const Forecast forecast = Of(Dense(), mesh, workload, options, machine);
  const auto clock = StepClock::Create(Dense(), mesh, machine, options);
  ASSERT_TRUE(clock);
  double prompt = 0;
  for (const auto& [at, tokens] : {std::pair{0, 300}, {300, 300}, {600, 300}, {900, 100}}) {
    const StepForecast step = clock->StepOf(
        {.tokens = tokens, .sequences = 1, .context_tokens = at, .logits_rows = at == 900 ? 1 : 0},
        {});
    prompt += std::max(step.compute_seconds, step.link_seconds) + 1e-3;
  }
  const double step =
      std::max(forecast.decode.compute_seconds, forecast.decode.link_seconds) + 1e-3;
  const SpeedForecast& speed = forecast.overlapped;
  EXPECT_DOUBLE_EQ(speed.first_token_seconds, prompt);
  EXPECT_DOUBLE_EQ(speed.first_token_seconds_burst, prompt * 3.5);
  EXPECT_DOUBLE_EQ(speed.inter_token_seconds, step);
  EXPECT_DOUBLE_EQ(speed.inter_token_seconds_mean, (5 * prompt + 4 * step) / 4);
  const double requests = 6 / (6 * prompt + 4 * step);
  EXPECT_DOUBLE_EQ(speed.output_tokens_per_second, 5 * requests);
  EXPECT_DOUBLE_EQ(speed.input_tokens_per_second, 1000 * requests);
  EXPECT_DOUBLE_EQ(*speed.joules_per_million_output, 2 * 500 / (5 * requests) * 1e6);
  EXPECT_DOUBLE_EQ(*speed.dollars_per_million_output, 2 * 3 / 3600.0 / (5 * requests) * 1e6);
  machine.watts = machine.dollars_per_hour = 0;
  const Forecast unpriced = Of(Dense(), mesh, workload, options, machine);
  EXPECT_FALSE(unpriced.serial.joules_per_million_output);
  EXPECT_FALSE(unpriced.serial.dollars_per_million_output);
  // An answer of one token has no time between tokens.
  const Workload one{.input_tokens = 1000, .output_tokens = 1, .concurrency = 6};
  EXPECT_EQ(Of(Dense(), mesh, one, options, machine).serial.inter_token_seconds_mean, 0);
}

TEST(Forecast, AHostThatIsSlowerThanTheDeviceBoundsTheStep) {
  Hardware machine = Machine();
  machine.host_seconds = 10;
  const StepForecast& step = Of(Dense(), {.tp = 4}, kWorkload, {}, machine).decode;
  EXPECT_EQ(step.bound(), Bound::kHost);
  EXPECT_DOUBLE_EQ(step.seconds_with_overlap(),
                   std::max(step.compute_seconds, step.link_seconds) + 10);
}

TEST(Forecast, OverlapHidesTheShorterOfComputationAndCommunication) {
  const Forecast forecast = Of(Dense(), {.tp = 4}, kWorkload);
  const StepForecast& step = forecast.prefill;
  EXPECT_DOUBLE_EQ(step.seconds_with_overlap(), std::max(step.compute_seconds, step.link_seconds));
  EXPECT_DOUBLE_EQ(step.seconds_without_overlap(), step.compute_seconds + step.link_seconds);
  EXPECT_EQ(step.bound(), Bound::kLink);
  EXPECT_LT(forecast.serial.output_tokens_per_second, forecast.overlapped.output_tokens_per_second);
}

TEST(Forecast, RanksBeyondTheLinksUseTheNetwork) {
  Hardware pairs = Machine();
  pairs.link_devices = 2;
  const Forecast near = Of(Dense(), {.tp = 4}, kWorkload);
  const Forecast far = Of(Dense(), {.tp = 4}, kWorkload, {}, pairs);
  EXPECT_DOUBLE_EQ(far.decode.link_seconds, 10 * near.decode.link_seconds);
}

TEST(Forecast, GroupsThatDoNotDivideANodeUseTheNetwork) {
  EXPECT_EQ(NodesOfGroup(8, 8, 8), 1);
  EXPECT_EQ(NodesOfGroup(6, 6, 8), 1);
  EXPECT_EQ(NodesOfGroup(24, 4, 8), 1);
  EXPECT_EQ(NodesOfGroup(12, 6, 8), 2);
  EXPECT_EQ(NodesOfGroup(72, 72, 8), 9);
  EXPECT_EQ(NodesOfGroup(10, 10, 8), 2);
  EXPECT_EQ(NodesOfGroup(20, 10, 8), 2);
  EXPECT_EQ(NodesOfGroup(44, 11, 4), 4);  // the second is 11 to 21: on nodes 2 to 5
  EXPECT_EQ(NodesOfGroup(4, 2, 1), 2);
  // Three groups of three: of nodes of eight, the third group has the last device of the first
  // node.
  ModelSpec thirds = Dense();
  thirds.layers[0].mixer = FullAttention{.heads = 6, .kv_heads = 3, .head_dim = 16};
  const Forecast two = Of(thirds, {.dp = 2, .tp = 3}, kWorkload);
  const Forecast three = Of(thirds, {.dp = 3, .tp = 3}, {512, 64, 12});
  EXPECT_DOUBLE_EQ(three.decode.sent_bytes, two.decode.sent_bytes);
  EXPECT_DOUBLE_EQ(three.decode.link_seconds, 10 * two.decode.link_seconds);
}

TEST(Forecast, RanksThatShareExpertsBringTheirPartsOfTheirGroupsTokens) {
  const auto experts = [](const Forecast& f) {
    return *std::ranges::find(f.decode.parts, "experts", &PartForecast::part);
  };
  const auto with_and_without = [](const Mesh& mesh) {
    ModelSpec spec = Mixture();
    std::get<MoeFfn>(spec.layers[0].ffn).experts = 18;
    const Forecast all = Of(spec, mesh, {512, 64, mesh.dp * int64_t{8}});
    std::get<MoeFfn>(spec.layers[0].ffn).top_k = 0;
    const Forecast shared = Of(spec, mesh, {512, 64, mesh.dp * int64_t{8}});
    return std::pair(all, shared);
  };
  const auto routed = [&](const Mesh& mesh) {
    const auto [all, shared] = with_and_without(mesh);
    return experts(all).flops - experts(shared).flops;
  };
  // Every rank computes two experts for as many tokens as it brings: 8, 4 of a group of two, and a
  // group of three sums 8 over its ranks.
  const double token = 2.0 * 2 * 3 * 64 * 32;
  EXPECT_NEAR(routed({.dp = 3, .tp = 1, .ep = 3}), 8 * token, 1);
  EXPECT_NEAR(routed({.dp = 3, .tp = 2, .ep = 3}), 4 * token, 1);
  EXPECT_NEAR(routed({.dp = 3, .tp = 2, .ep = 6}), 4 * token, 1);
  EXPECT_NEAR(routed({.dp = 3, .tp = 4, .ep = 3}), 2 * token, 1);
  // Of eight tokens in a group of two ranks four each, whether these share experts or hold all.
  EXPECT_NEAR(routed({.tp = 2, .ep = 2}), 4 * token, 1);
  EXPECT_NEAR(routed({.tp = 2, .ep = 1}), 4 * token, 1);
  // There and back to two experts, of which two thirds are on the two other ranks.
  const auto sent = [&](const Mesh& mesh) {
    const auto [all, shared] = with_and_without(mesh);
    return all.decode.sent_bytes - shared.decode.sent_bytes;
  };
  EXPECT_NEAR(sent({.dp = 3, .tp = 2, .ep = 3}), 4 * 2 * 64 * (2 + 2) * 2 / 3.0, 1e-6);
}

TEST(Forecast, AblationsLeaveOutExactlyTheirCost) {
  const Forecast all = Of(Mixture(), {.tp = 2, .ep = 2}, kWorkload);
  const Forecast quiet =
      Of(Mixture(), {.tp = 2, .ep = 2}, kWorkload, {.without_communication = true});
  EXPECT_GT(all.decode.link_seconds, 0);
  EXPECT_EQ(quiet.decode.link_seconds, 0);
  EXPECT_DOUBLE_EQ(quiet.decode.compute_seconds, all.decode.compute_seconds);
  const Forecast light =
      Of(Mixture(), {.tp = 2, .ep = 2}, kWorkload, {.without_weight_bytes = true});
  for (size_t i = 0; i < all.decode.parts.size(); ++i) {
    const bool cache = all.decode.parts[i].part == "attention";
    EXPECT_DOUBLE_EQ(light.decode.parts[i].bytes, cache ? all.decode.parts[i].bytes : 0);
    EXPECT_DOUBLE_EQ(light.decode.parts[i].flops, all.decode.parts[i].flops);
  }
}

TEST(Forecast, LongPromptsTakeSeveralSteps) {
  const Workload workload{.input_tokens = 1000, .output_tokens = 2, .concurrency = 1};
  const double whole = Of(Dense(), {}, workload).serial.first_token_seconds;
  const double parts =
      Of(Dense(), {}, workload, {.step_tokens_max = 300}).serial.first_token_seconds;
  EXPECT_GT(parts, whole);  // weights are read four times
}

// 64 channels in bf16, rows in panels of 16.
int64_t RouterBytes(int64_t experts) { return (experts + 15) / 16 * 16 * 64 * 2; }

TEST(Forecast, RedundantExpertsTakeTheirWeightsOnEveryRank) {
  const Mesh mesh{.dp = 4, .tp = 1, .ep = 4};
  const Forecast more = Of(Mixture(), mesh, kWorkload, {.redundant_experts = 8});
  EXPECT_EQ(more.memory.balance_buffers, 8 / 4 * 3 * 64 * 32 * 2);
  // Nothing else grows but the router, by packed rows.
  const Forecast none = Of(Mixture(), mesh, kWorkload);
  EXPECT_EQ(more.memory.weights - none.memory.weights, RouterBytes(24) - RouterBytes(16));
}

TEST(Forecast, CopiesMakeExpertsDivisible) {
  const Mesh mesh{.dp = 3, .tp = 1, .ep = 3};
  EXPECT_NE(ErrorOf(ForecastOf(Mixture(), mesh, Machine(), kWorkload, {}))
                .find("ep 3 does not divide the 16 experts"),
            std::string::npos);
  EXPECT_TRUE(ForecastOf(Mixture(), mesh, Machine(), kWorkload, {.redundant_experts = 2}));
}

TEST(Forecast, CopiesAreThoseThatAnEngineAllows) {
  const auto error = [](const Mesh& mesh, int32_t copies) {
    const ForecastOptions options{.redundant_experts = copies};
    const auto clock = StepClock::Create(Mixture(), mesh, Machine(), options);
    const std::string said = ErrorOf(ForecastOf(Mixture(), mesh, Machine(), kWorkload, options));
    EXPECT_EQ(clock ? "no error" : clock.error().message, said);
    return said;
  };
  const Mesh two{.dp = 2, .tp = 1, .ep = 2};
  EXPECT_EQ(error(two, 128), "no error");
  EXPECT_NE(error(two, 130).find("130 redundant experts; several ranks (ep) can hold 0 to 128"),
            std::string::npos);
  EXPECT_NE(error({.dp = 2}, 2).find("2 redundant experts; several ranks"), std::string::npos);
  EXPECT_NE(error(two, 1).find("ep 2 does not divide the 16 experts and 1 redundant"),
            std::string::npos);
}

TEST(Forecast, SaysWhatIsWrongWithItsInput) {
  const auto error = [](const Mesh& mesh, const Workload& workload, const Hardware& hardware) {
    return ErrorOf(ForecastOf(Dense(), mesh, hardware, workload, {}));
  };
  EXPECT_NE(error({.tp = 3}, kWorkload, Machine()).find("tp 3 does not divide"), std::string::npos);
  EXPECT_NE(error({}, {.input_tokens = 4000, .output_tokens = 200}, Machine())
                .find("4200 tokens; the model's context is 4096"),
            std::string::npos);
  Hardware lone = Machine();
  lone.link_devices = 1;
  lone.network_bytes_per_second = 0;
  EXPECT_NE(error({.tp = 2}, kWorkload, lone).find("network_bytes_per_second"), std::string::npos);
  // Links of a node pass on what the network brings, and join the ranks of a group.
  Hardware unlinked = Machine();
  unlinked.link_bytes_per_second = 0;
  EXPECT_NE(error({.tp = 2}, kWorkload, unlinked).find("2 devices on 1 node exchange data"),
            std::string::npos);
  for (const Mesh& mesh : {Mesh{.dp = 8, .tp = 2, .ep = 16}, Mesh{.dp = 16, .tp = 1, .ep = 16}}) {
    EXPECT_NE(ErrorOf(ForecastOf(Mixture(), mesh, unlinked, kWorkload, {}))
                  .find("its file gives no link_bytes_per_second"),
              std::string::npos)
        << MeshText(mesh);
  }
  unlinked.link_devices = 1;  // each device is a node
  EXPECT_EQ(ErrorOf(ForecastOf(Mixture(), {.dp = 16, .tp = 1, .ep = 16}, unlinked, kWorkload, {})),
            "no error");
}

}  // namespace
}  // namespace braid
