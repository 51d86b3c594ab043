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
