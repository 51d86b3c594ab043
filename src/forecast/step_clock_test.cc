// Clocks of steps, the cache that a device has room for, and which workloads a forecast takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "forecast/test_forecast.h"

namespace braid {
namespace {

StepClock Clock(const ModelSpec& spec, const ForecastOptions& options = {},
                const Hardware& hardware = Machine(), const Mesh& mesh = {}) {
  auto clock = StepClock::Create(spec, mesh, hardware, options);
  CHECK(clock, "{}", clock.error().message);
  return *std::move(clock);
}

TEST(StepClock, StepsOfOneKindAreThoseOfTheForecast) {
  const Forecast forecast = Of(Mixture(), {}, kWorkload);
  const StepClock clock = Clock(Mixture());
  const StepRows prompt{.tokens = 512, .sequences = 1, .logits_rows = 1};
  const StepRows decodes{.tokens = 8, .sequences = 8, .context_tokens = 544, .logits_rows = 8};
  EXPECT_EQ(clock.StepOf(prompt, {}).compute_seconds, forecast.prefill.compute_seconds);
  EXPECT_EQ(clock.StepOf({}, decodes).compute_seconds, forecast.decode.compute_seconds);
}

TEST(StepClock, AMixedStepHasTheWorkOfBothAndReadsItsWeightsOnce) {
  const StepClock clock = Clock(Dense(), {}, Machine(), {.tp = 2});
  const StepRows prompts{.tokens = 300, .sequences = 2, .context_tokens = 64, .logits_rows = 1};
  const StepRows decodes{.tokens = 8, .sequences = 8, .context_tokens = 544, .logits_rows = 8};
  const StepForecast a = clock.StepOf(prompts, {}), b = clock.StepOf({}, decodes);
  const StepForecast both = clock.StepOf(prompts, decodes);
  ASSERT_EQ(both.parts.size(), a.parts.size());
  double weights = 0;
  for (size_t i = 0; i < both.parts.size(); ++i) {
    const PartForecast& part = both.parts[i];
    EXPECT_NEAR(part.flops, a.parts[i].flops + b.parts[i].flops, part.flops * 1e-9) << part.part;
    const double saved = a.parts[i].bytes + b.parts[i].bytes - part.bytes;
    weights += saved;
    if (part.part == "attention") {
      EXPECT_NEAR(saved, 0, 1e-6) << "keys and values of each";
    }
  }
  // Half of the matrices in bf16: attention, feed-forward and the head [128, 64].
  EXPECT_NEAR(weights, (12288 + 49152 + 8192) * 2 / 2.0, 1);
  EXPECT_DOUBLE_EQ(both.sent_bytes, a.sent_bytes + b.sent_bytes);
}

TEST(StepClock, RowsForExpertsGoOnceToEachOfSeveralNodes) {
  Hardware pairs = Machine();
  pairs.link_devices = 2;
  const Mesh mesh{.dp = 8, .tp = 1, .ep = 8};
  const StepForecast step =
      Clock(Mixture(), {}, pairs, mesh)
          .StepOf({}, {.tokens = 1, .sequences = 1, .context_tokens = 9, .logits_rows = 1});
  // A token's 2 experts of 16 miss the 4 of a node with this chance; of the four nodes that it may
  // go to three are others. Half of what links pass on stays at its device.
  const double missed = (12.0 * 11) / (16 * 15), row = 64 * 2;
  const double network = 2 * 4 * (1 - missed) * 3 / 4 * row, links = 2 * 2 * row / 2;
  EXPECT_DOUBLE_EQ(step.sent_bytes, network + links);
  EXPECT_DOUBLE_EQ(step.link_seconds, network / pairs.network_bytes_per_second);
}

TEST(Forecast, APromptGoesThroughTheDraftHeadToo) {
  ModelSpec spec = Dense();
  spec.draft = DraftSpec{.layers = spec.layers};
  Hardware machine = Machine();
  machine.bf16_flops = 1e6;  // arithmetic alone takes time
  const auto first = [&](int32_t drafts) {
    return Of(spec, {}, kWorkload, {.drafts = drafts}, machine).serial.first_token_seconds;
  };
  // The layer, the projection [64, 128] and attention of 512 rows, and the output head of the last.
  const double head = 512 * (2 * (12288 + 49152 + 8192) + 4 * (513 / 2.0) * 64) + 2 * 8192;
  EXPECT_NEAR(first(2) - first(0), head / 1e6, 1e-6);
  EXPECT_DOUBLE_EQ(first(2), first(1)) << "a prompt is no draft";
}

TEST(StepClock, TheCacheIsWhatTheFixedMemoryLeaves) {
  const ForecastOptions options{.step_tokens_max = 1024};
  const auto fixed = [&](int64_t running) {
    const MemoryForecast memory =
        Of(Dense(), {}, {.input_tokens = 1024, .output_tokens = 1, .concurrency = running}, options)
            .memory;
    return memory.weights + memory.workspace;
  };
  const auto pages = [&](double bytes, int32_t running) {
    Hardware machine = Machine();
    machine.memory_bytes = bytes;
    const auto geometry = Clock(Dense(), options, machine).Cache(2048, running);
    CHECK(geometry, "{}", geometry.error().message);
    return *geometry;
  };
  const double bytes = 2e8;
  const CacheGeometry few = pages(bytes, 8), many = pages(bytes, 64);
  const int64_t room = static_cast<int64_t>(bytes) - fixed(8);
  EXPECT_LE(few.pages * few.page_bytes, room);
  EXPECT_GT(few.pages * few.page_bytes, room * 9 / 10);
  EXPECT_NEAR(static_cast<double>((few.pages - many.pages) * few.page_bytes),
              static_cast<double>(fixed(64) - fixed(8)), 2.0 * static_cast<double>(few.page_bytes));
  Hardware small = Machine();
  small.memory_bytes = static_cast<double>(fixed(8)) + 1e5;
  const auto none = Clock(Dense(), options, small).Cache(2048, 8);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kExhausted) << none.error().message;
}

TEST(StepClock, ItsErrorsAreThoseOfForecasts) {
  const auto clock = StepClock::Create(Dense(), {.tp = 3}, Machine(), {});
  ASSERT_FALSE(clock);
  EXPECT_EQ(clock.error().message, ErrorOf(ForecastOf(Dense(), {.tp = 3}, Machine(), kWorkload)));
}

TEST(StepForecast, IsBoundByWhatTakesLongest) {
  StepForecast step;
  step.parts = {{.part = "a", .arithmetic_seconds = 2, .memory_seconds = 1, .seconds = 2},
                {.part = "b", .arithmetic_seconds = 1, .memory_seconds = 2, .seconds = 2}};
  EXPECT_EQ(step.parts[0].bound(), Bound::kArithmetic);
  EXPECT_EQ(step.parts[1].bound(), Bound::kMemory);
  step.compute_seconds = 4;
  EXPECT_EQ(step.bound(), Bound::kMemory);
  step.parts[0].seconds = 2.5;
  EXPECT_EQ(step.bound(), Bound::kArithmetic);
  step.link_seconds = 4;
  EXPECT_EQ(step.bound(), Bound::kArithmetic);
  step.link_seconds = 5;
  EXPECT_EQ(step.bound(), Bound::kLink);
  step.host_seconds = 5;
  EXPECT_EQ(step.bound(), Bound::kLink);
  EXPECT_EQ(step.seconds_with_overlap(), 10);
  EXPECT_EQ(step.seconds_without_overlap(), 14);
  step.host_seconds = 6;
  EXPECT_EQ(step.bound(), Bound::kHost);
  EXPECT_EQ(NameOf(Bound::kArithmetic), "arithmetic");
  EXPECT_EQ(NameOf(Bound::kMemory), "memory");
  EXPECT_EQ(NameOf(Bound::kLink), "link");
  EXPECT_EQ(NameOf(Bound::kHost), "host");
}

TEST(Workload, IsCheckedWithWhatIsAskedOfIt) {
  ModelSpec drafting = Dense();
  drafting.draft = DraftSpec{.layers = drafting.layers};
  struct Row {
    Workload workload = {.input_tokens = 1, .output_tokens = 1, .concurrency = 1};
    ForecastOptions options = {};
    std::string error = "";
  };
  for (const Row& row :
       {Row{}, Row{.workload = {1, 4095, 1}}, Row{.options = {.step_tokens_max = 1}},
        Row{.options = {.expert_balance = 1}},
        Row{.options = {.drafts = 1, .draft_acceptance = 0}},
        Row{.options = {.drafts = 1, .draft_acceptance = 1}},
        Row{.workload = {0, 1, 1}, .error = "of at least 1"},
        Row{.workload = {1, 0, 1}, .error = "of at least 1"},
        Row{.workload = {1, 1, 0}, .error = "of at least 1"},
        Row{.options = {.step_tokens_max = 0}, .error = "of at least 1"},
        Row{.options = {.expert_balance = 0}, .error = "above 0 and at most 1"},
        Row{.options = {.expert_balance = 1.001}, .error = "above 0 and at most 1"},
        Row{.options = {.drafts = -1}, .error = "drafts must be at least 0"},
        Row{.options = {.draft_acceptance = -0.1}, .error = "right from 0 to 1"},
        Row{.options = {.draft_acceptance = 1.1}, .error = "right from 0 to 1"},
        Row{.workload = {2, 4095, 1}, .error = "are 4097 tokens; the model's context is 4096"}}) {
    const Status status = CheckWorkload(drafting, row.workload, row.options);
    const std::string error = status ? "" : status.error().message;
    EXPECT_EQ(error.empty(), row.error.empty()) << error << " or " << row.error;
    EXPECT_NE(error.find(row.error), std::string::npos) << error;
  }
  EXPECT_FALSE(CheckWorkload(Dense(), {}, {.drafts = 1})) << "it has no draft head";
  drafting.context_tokens_max = 0;
  EXPECT_TRUE(CheckWorkload(drafting, {.input_tokens = 1 << 30}, {})) << "nobody says how many";
}

}  // namespace
}  // namespace braid
