// Times of steps from the clocks of a forecast.
#include "cluster/step_times.h"

#include <gtest/gtest.h>

#include "forecast/test_forecast.h"

namespace braid {
namespace {

constexpr Mesh kGroups{.dp = 2, .tp = 2, .ep = 4};

Hardware Slower(double times) {
  Hardware hardware = Machine();
  hardware.memory_bytes_per_second /= times;
  hardware.bf16_flops /= times;
  return hardware;
}
StepClock Clock(double slower = 1) {
  return *StepClock::Create(Mixture(), kGroups, Slower(slower), {});
}
StepTimes Times(bool overlap = true) {
  std::vector<StepClock> clocks;
  clocks.push_back(Clock());
  clocks.push_back(Clock(4));
  return {std::move(clocks), overlap};
}
Row Chunk(int32_t start, int32_t tokens, bool sample = false) {
  return {.token_count = tokens, .start = start, .sample = sample};
}

TEST(StepTimes, AStepLastsAsTheForecastOfItsPromptsAndItsDecodes) {
  // Contexts are means of 64 and of 1000 tokens, in blocks of 64.
  const std::vector<Row> rows{Chunk(128, 512, true), Chunk(0, 64), Chunk(1600, 1, true),
                              Chunk(700, 1, true), Chunk(700, 1, true)};
  const StepRows prompts{.tokens = 576, .sequences = 2, .context_tokens = 64, .logits_rows = 1};
  const StepRows decodes{.tokens = 3, .sequences = 3, .context_tokens = 1024, .logits_rows = 3};
  const StepForecast step = Clock().StepOf(prompts, decodes);
  ASSERT_LT(step.seconds_with_overlap(), 0.9 * step.seconds_without_overlap());
  EXPECT_DOUBLE_EQ(Times().SecondsOf(rows, 0, 0), step.seconds_with_overlap());
  EXPECT_DOUBLE_EQ(Times(false).SecondsOf(rows, 0, 0), step.seconds_without_overlap());
  EXPECT_DOUBLE_EQ(Times().SecondsOf(rows, 0, 1),
                   Clock(4).StepOf(prompts, decodes).seconds_with_overlap());
  // Each part alone.
  StepTimes times = Times();
  const std::span<const Row> all = rows;
  EXPECT_DOUBLE_EQ(times.SecondsOf(all.first(2), 0, 0),
                   Clock().StepOf(prompts, {}).seconds_with_overlap());
  EXPECT_DOUBLE_EQ(times.SecondsOf(all.subspan(2), 0, 0),
                   Clock().StepOf({}, decodes).seconds_with_overlap());
  EXPECT_DOUBLE_EQ(times.SecondsOf(rows, 0, 0), step.seconds_with_overlap());
  // Scores take the output head for every token.
  Row scored = Chunk(0, 500);
  scored.prompt_logprobs = true;
  EXPECT_DOUBLE_EQ(
      times.SecondsOf(std::vector{scored}, 0, 0),
      Clock()
          .StepOf({.tokens = 512, .sequences = 1, .context_tokens = 0, .logits_rows = 500}, {})
          .seconds_with_overlap());
}

TEST(StepTimes, OnlyNearlyEqualStepsTakeTheSameTime) {
  StepTimes times = Times(false);
  const auto of = [&](std::vector<Row> rows) { return times.SecondsOf(rows, 0, 0); };
  EXPECT_EQ(of({Chunk(0, 497)}), of({Chunk(0, 512)}));
  EXPECT_LT(of({Chunk(0, 496)}), of({Chunk(0, 512)}));
  EXPECT_EQ(of({Chunk(961, 1, true)}), of({Chunk(1024, 1, true)}));
  EXPECT_LT(of({Chunk(960, 1, true)}), of({Chunk(1024, 1, true)}));
  EXPECT_LT(of({Chunk(0, 1, true)}), of({Chunk(0, 1, true), Chunk(0, 1, true)}));
  EXPECT_LT(of({Chunk(0, 512)}), of({Chunk(0, 256), Chunk(1024, 256)}));
  EXPECT_LT(of({Chunk(0, 512)}), of({Chunk(0, 512, true)}));
}

TEST(StepTimes, EachWindowHasABalanceOfItsOwn) {
  StepTimes times = Times();
  const std::vector<Row> rows{Chunk(0, 4096)};
  const double even = times.SecondsOf(rows, 0, 0), slow = times.SecondsOf(rows, 0, 1);
  times.SetExpertBalance(0.5);
  EXPECT_EQ(times.SecondsOf(rows, 0, 0), even);
  EXPECT_GT(times.SecondsOf(rows, 1, 0), 1.05 * even);
  EXPECT_GT(times.SecondsOf(rows, 1, 1), 1.05 * slow);
  EXPECT_EQ(times.SecondsOf(rows, 0, 1), slow);
}

}  // namespace
}  // namespace braid
