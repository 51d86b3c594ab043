// Divisions into prefill and decode engines: against forecasts of each side, and why there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "forecast/test_forecast.h"

namespace braid {
namespace {

constexpr Workload kAnswers{.input_tokens = 512, .output_tokens = 65, .concurrency = 8};

std::vector<SplitResult> Splits(const Workload& workload, SearchSpace space,
                                const Hardware& hardware = Machine()) {
  auto found = SearchSplit(Mixture(), hardware, workload, {}, space);
  CHECK(found, "{}", found.error().message);
  return *std::move(found);
}

// Requests that a side can take in a second, by forecasts of one of its engines.
double Prompts(const SplitSide& side, const Workload& workload) {
  Workload one = workload;
  one.output_tokens = 1;
  one.concurrency = side.mesh.dp * (8192 / workload.input_tokens);
  return side.engines * Of(Mixture(), side.mesh, one).overlapped.output_tokens_per_second;
}
double Answers(const SplitSide& side, const Workload& workload) {
  Workload shared = workload;
  shared.concurrency = (workload.concurrency + side.engines - 1) / side.engines;
  const double token = Of(Mixture(), side.mesh, shared).overlapped.inter_token_seconds;
  return static_cast<double>(workload.concurrency) /
         (static_cast<double>(workload.output_tokens - 1) * token);
}

TEST(SearchSplit, TheSlowerSideDecides) {
  Hardware fast = Machine();
  fast.network_bytes_per_second = 1e12;
  fast.link_bytes_per_second = 1e12;
  for (const int64_t out : {2, 65, 2000}) {
    Workload workload = kAnswers;
    workload.output_tokens = out;
    const auto splits = Splits(workload, {.devices_max = 5}, fast);
    ASSERT_EQ(splits.size(), 5u);
    EXPECT_TRUE(
        std::ranges::is_sorted(splits, std::greater<>(), &SplitResult::output_tokens_per_second));
    for (const SplitResult& split : splits) {
      EXPECT_LE(split.devices(), 5);
      Workload one = workload;
      one.output_tokens = 1;
      one.concurrency = split.prefill.mesh.dp * (8192 / workload.input_tokens);
      const double prompts =
          split.prefill.engines *
          Of(Mixture(), split.prefill.mesh, one, {}, fast).overlapped.output_tokens_per_second;
      Workload shared = workload;
      shared.concurrency = (8 + split.decode.engines - 1) / split.decode.engines;
      const double token =
          Of(Mixture(), split.decode.mesh, shared, {}, fast).overlapped.inter_token_seconds;
      const double answers = 8 / (static_cast<double>(out - 1) * token);
      EXPECT_NEAR(split.output_tokens_per_second,
                  std::min(prompts, answers) * static_cast<double>(out),
                  split.output_tokens_per_second * 1e-9);
      EXPECT_EQ(split.bound, prompts < answers ? SplitBound::kPrompts : SplitBound::kAnswers);
      EXPECT_EQ(split.inter_token_seconds, token);
    }
  }
}

TEST(SearchSplit, NoOtherDivisionIsFaster) {
  Hardware fast = Machine();
  fast.network_bytes_per_second = 1e12;
  const auto best = Splits(kAnswers, {.devices_max = 4}, fast).front();
  for (const Mesh& p : {Mesh{}, Mesh{.tp = 2}, Mesh{.dp = 2}, Mesh{.dp = 2, .ep = 2}}) {
    for (const Mesh& d : {Mesh{}, Mesh{.tp = 2}, Mesh{.dp = 2}, Mesh{.tp = 2, .ep = 2}}) {
      for (int32_t m = 1; m < 4; ++m) {
        for (int32_t n = 1; m * p.ranks() + n * d.ranks() <= 4; ++n) {
          const double requests = std::min(Prompts({p, m}, kAnswers), Answers({d, n}, kAnswers));
          EXPECT_GE(best.output_tokens_per_second, requests * 65 * (1 - 1e-9))
              << m << " of " << MeshText(p) << ", " << n << " of " << MeshText(d);
        }
      }
    }
  }
}

TEST(SearchSplit, TakesNoMorePrefillEnginesThanTheAnswersNeed) {
  Hardware fast = Machine();
  fast.network_bytes_per_second = 1e12;
  Workload workload = kAnswers;
  workload.output_tokens = 3000;
  for (const SplitResult& split : Splits(workload, {.devices_max = 6}, fast)) {
    EXPECT_EQ(split.bound, SplitBound::kAnswers);
    EXPECT_EQ(split.prefill.devices(), 1);
  }
}

TEST(SearchSplit, ASlowNetworkIsTheBound) {
  Hardware slow = Machine();
  slow.network_bytes_per_second = 1000;
  const SplitResult split = Splits(kAnswers, {.devices_max = 2}, slow).front();
  EXPECT_EQ(split.bound, SplitBound::kHandoff);
  // Keys and values of two heads of 16 in bf16, 512 tokens, from one device.
  EXPECT_EQ(split.handoff_bytes, 2 * 2 * 16 * 2 * 512);
  EXPECT_NEAR(split.output_tokens_per_second, 65 * 1000 / split.handoff_bytes, 1e-9);
  EXPECT_GT(split.first_token_seconds, split.handoff_bytes / 1000);
}

TEST(SearchSplit, TheLastPagesAndTheStatesFollowTheLastStep) {
  ModelSpec spec = Mixture();
  spec.layers.push_back(spec.layers[0]);
  spec.layers[1].mixer = LinearAttention{
      .key_heads = 2, .value_heads = 2, .key_dim = 16, .value_dim = 16, .conv_width = 4};
  const CachePlan plan = CachePlanOf(spec, DType::kBF16);
  const auto state = std::ranges::find(plan.groups, GroupKind::kState, &GroupGeometry::kind);
  ASSERT_NE(state, plan.groups.end());
  const auto states = static_cast<double>(state->block_bytes);
  const double block = 64 * 2 * 2 * 16 * 2;  // keys and values of two heads of 16 in bf16
  Hardware machine = Machine();
  const ForecastOptions options{.step_tokens_max = 300};
  const Workload prompts{.input_tokens = 1000, .output_tokens = 1, .concurrency = 1};
  const double computed = Of(spec, {}, prompts, options).overlapped.first_token_seconds;
  for (const double network : {1e7, 0.0}) {  // else the links carry them
    machine.network_bytes_per_second = network;
    const double rate = network > 0 ? network : machine.link_bytes_per_second;
    const auto found = SearchSplit(spec, machine, {1000, 65, 8}, options, {.devices_max = 2});
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->front().handoff_bytes, 16 * block + states);
    // Of the last 100 tokens two blocks.
    EXPECT_NEAR(found->front().first_token_seconds, computed + (2 * block + states) / rate, 1e-12);
  }
  // A prompt of whole steps has a whole last one.
  machine.network_bytes_per_second = 1e7;
  const auto whole = SearchSplit(spec, machine, {600, 65, 8}, options, {.devices_max = 2});
  ASSERT_TRUE(whole);
  EXPECT_NEAR(whole->front().first_token_seconds,
              Of(spec, {}, {600, 1, 1}, options).overlapped.first_token_seconds +
                  (5 * block + states) / 1e7,
              1e-12);
}

TEST(SearchSplit, TellsItsProgressAndTriesEachFormat) {
  std::vector<double> parts;
  const SearchSpace space{.devices_max = 2,
                          .formats = {ops::WeightFormat::kI8, ops::WeightFormat::kBF16},
                          .progress = [&](double part) { parts.push_back(part); }};
  const auto splits = Splits(kAnswers, space);
  EXPECT_EQ(parts, (std::vector<double>{0, 0.25, 0.5, 0.75})) << "one mesh on either side, twice";
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_NE(splits[0].format, splits[1].format);
}

TEST(SearchSplit, NamesItsBounds) {
  EXPECT_EQ(NameOf(SplitBound::kPrompts), "prompts");
  EXPECT_EQ(NameOf(SplitBound::kAnswers), "answers");
  EXPECT_EQ(NameOf(SplitBound::kHandoff), "hand-off");
}

TEST(SearchSplit, AllDevicesOfAnEngineSendPages) {
  // From one device the pages take 65 ms, which is too long.
  Hardware slow = Machine();
  slow.network_bytes_per_second = 1e6;
  const auto splits = Splits(
      kAnswers, {.devices_max = 4, .first_token_seconds_max = 0.05, .results_max = 100}, slow);
  for (const SplitResult& split : splits) {
    const Mesh& mesh = split.prefill.mesh;
    EXPECT_GE(mesh.ranks(), 2);
    const double computed =
        Of(Mixture(), mesh, {512, 1, mesh.dp}, {}, slow).overlapped.first_token_seconds;
    EXPECT_NEAR(split.first_token_seconds, computed + split.handoff_bytes / (1e6 * mesh.ranks()),
                1e-12)
        << MeshText(mesh);
  }
}

TEST(SearchSplit, DecodeEnginesShareTheAnswers) {
  // Memory for the four answers of each of two engines, and not for all eight on one.
  const ForecastOptions options{.step_tokens_max = 64};
  ForecastOptions decodes = options;
  decodes.prompts_elsewhere = true;
  Hardware machine = Machine();
  machine.memory_bytes = static_cast<double>(
      Of(Mixture(), {}, {512, 65, 4}, decodes).memory.total());
  const auto found = SearchSplit(Mixture(), machine, kAnswers, options,
                                 {.devices_max = 3, .results_max = 100});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(std::ranges::any_of(*found, [](const SplitResult& split) {
    return split.decode.engines == 2 && split.decode.mesh.ranks() == 1;
  }));
}

TEST(SearchSplit, OfEqualDivisionsThatWithFewerDevicesComesFirst) {
  const auto splits = Splits(kAnswers, {.devices_max = 4, .results_max = 100});
  for (size_t i = 1; i < splits.size(); ++i) {
    if (splits[i].output_tokens_per_second != splits[i - 1].output_tokens_per_second) continue;
    EXPECT_LE(splits[i - 1].devices(), splits[i].devices());
  }
}

TEST(SearchSplit, KeepsTheBoundsOrSaysWhyThereIsNone) {
  const SplitResult best = Splits(kAnswers, {.devices_max = 4, .results_max = 1}).front();
  const SearchSpace less{.devices_max = 4,
                         .inter_token_seconds_max = best.inter_token_seconds * 0.999};
  if (const auto found = SearchSplit(Mixture(), Machine(), kAnswers, {}, less); found) {
    for (const SplitResult& split : *found) {
      EXPECT_LT(split.inter_token_seconds, best.inter_token_seconds);
    }
  }
  const auto says = [](const Workload& workload, const SearchSpace& space,
                       const Hardware& hardware = Machine()) {
    const auto found = SearchSplit(Mixture(), hardware, workload, {}, space);
    return found ? "found" : found.error().message;
  };
  EXPECT_NE(says(kAnswers, {.devices_max = 2, .inter_token_seconds_max = 1e-12})
                .find("1 can compute prompts in time and 0 can generate 8 answers"),
            std::string::npos);
  EXPECT_NE(says(kAnswers, {.devices_max = 2, .first_token_seconds_max = 1e-12})
                .find("0 can compute prompts in time and 1 can generate"),
            std::string::npos);
  EXPECT_NE(says(kAnswers, {.devices_max = 1}).find("at least two devices"), std::string::npos);
  Workload one = kAnswers;
  one.output_tokens = 1;
  EXPECT_NE(says(one, {.devices_max = 2}).find("needs out of at least 2"), std::string::npos);
  Hardware alone = Machine();
  alone.network_bytes_per_second = alone.link_bytes_per_second = 0;
  alone.link_devices = 1;
  EXPECT_NE(says(kAnswers, {.devices_max = 2}, alone).find("gives neither"), std::string::npos);
}

TEST(SearchSplit, CountsDevicesIfEachIsToGiveMost) {
  SearchSpace space{.devices_max = 6, .aim = SearchAim::kTokensPerDevice};
  const auto each = [](const SplitResult& r) { return r.output_tokens_per_second / r.devices(); };
  const auto splits = Splits(kAnswers, space);
  EXPECT_TRUE(std::ranges::is_sorted(splits, std::greater<>(), each));
  space.aim = SearchAim::kTokens;
  EXPECT_GE(each(splits.front()), each(Splits(kAnswers, space).front()));
}

}  // namespace
}  // namespace braid
