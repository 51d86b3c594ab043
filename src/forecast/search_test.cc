// The best mesh: against others, within bounds, and why there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "forecast/test_forecast.h"

namespace braid {
namespace {

TEST(Search, FindsTheFastestMeshThatFitsAndKeepsTheBounds) {
  const SearchSpace space{.devices_max = 4};
  const auto found = SearchMesh(Mixture(), Machine(), kWorkload, {}, space);
  ASSERT_TRUE(found) << found.error().message;
  const SearchResult* const best = &found->front();
  for (const Mesh& mesh : {Mesh{}, Mesh{.tp = 2}, Mesh{.tp = 4, .ep = 4}, Mesh{.dp = 4},
                           Mesh{.dp = 2, .tp = 2, .ep = 4}}) {
    EXPECT_GE(best->forecast.overlapped.output_tokens_per_second,
              Of(Mixture(), mesh, kWorkload).overlapped.output_tokens_per_second)
        << MeshText(mesh);
  }
  SearchSpace bounded = space;
  bounded.inter_token_seconds_max = best->forecast.overlapped.inter_token_seconds_mean * 0.999;
  const auto other = SearchMesh(Mixture(), Machine(), kWorkload, {}, bounded);
  if (other) {
    for (const SearchResult& result : *other) {
      EXPECT_LE(result.forecast.overlapped.inter_token_seconds_mean,
                *bounded.inter_token_seconds_max);
    }
  }
  bounded.inter_token_seconds_max = 1e-12;
  const auto none = SearchMesh(Mixture(), Machine(), kWorkload, {}, bounded);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("inter-token latency"), std::string::npos);
}

TEST(Search, SaysHowManyMeshesThereAreAndWhyNoneWillDo) {
  const auto refused = [](const SearchSpace& space, const Hardware& machine) {
    const auto found = SearchMesh(Mixture(), machine, kWorkload, {}, space);
    return found ? "found " + MeshText(found->front().mesh) : found.error().message;
  };
  // Of one device; two groups or two ranks, with experts whole or shared; twice, for two formats.
  const std::vector<ops::WeightFormat> two{ops::WeightFormat::kBF16, ops::WeightFormat::kI8};
  const SearchSpace slow{.devices_max = 2, .formats = two, .inter_token_seconds_max = 1e-12};
  EXPECT_NE(refused(slow, Machine()).find("none of 10 meshes"), std::string::npos);
  EXPECT_NE(refused(slow, Machine()).find("10 the inter-token"), std::string::npos);
  const SearchSpace late{.devices_max = 2, .first_token_seconds_max = 1e-12};
  EXPECT_NE(refused(late, Machine()).find("5 exceed the time to first token, 0 the inter-token"),
            std::string::npos);
  Hardware small = Machine();
  small.memory_bytes = 1000;
  EXPECT_NE(refused({.devices_max = 2}, small).find("0 cannot divide the model or lack links, 5"),
            std::string::npos);
  Hardware lone = Machine();
  lone.memory_bytes = 1000;
  lone.link_devices = 1;
  lone.network_bytes_per_second = 0;  // two groups without shared experts exchange nothing
  EXPECT_NE(refused({.devices_max = 2}, lone).find("3 cannot divide the model or lack links, 2"),
            std::string::npos)
      << refused({.devices_max = 2}, lone);
}

TEST(Search, GivesTheBestFewByTheSpeedOfAllDevicesOrOfEach) {
  SearchSpace space{.devices_max = 4, .results_max = 100};
  const auto all = SearchMesh(Mixture(), Machine(), kWorkload, {}, space);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 15u);  // three ranks divide neither heads nor experts
  const auto total = [](const SearchResult& r) {
    return r.forecast.overlapped.output_tokens_per_second;
  };
  const auto each = [&](const SearchResult& r) { return total(r) / r.mesh.ranks(); };
  EXPECT_TRUE(std::ranges::is_sorted(*all, std::greater<>(), total));
  space.results_max = 3;
  const auto few = SearchMesh(Mixture(), Machine(), kWorkload, {}, space);
  ASSERT_EQ(few->size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*few)[i].mesh, (*all)[i].mesh);
  space.aim = SearchAim::kTokensPerDevice;
  const auto by_device = SearchMesh(Mixture(), Machine(), kWorkload, {}, space);
  ASSERT_EQ(by_device->size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(*by_device, std::greater<>(), each));
  EXPECT_EQ(each(by_device->front()), each(*std::ranges::max_element(*all, {}, each)));
  EXPECT_NE(by_device->front().mesh, few->front().mesh);
}

TEST(Search, KeepsAForecastThatMeetsTheBoundsExactly) {
  const SpeedForecast speed = Of(Mixture(), {}, kWorkload).overlapped;
  const SearchSpace space{.devices_max = 1,
                          .inter_token_seconds_max = speed.inter_token_seconds_mean,
                          .first_token_seconds_max = speed.first_token_seconds};
  EXPECT_TRUE(SearchMesh(Mixture(), Machine(), kWorkload, {}, space));
}

TEST(Search, TellsItsProgress) {
  std::vector<double> parts;
  SearchSpace space{.devices_max = 2,
                    .formats = {ops::WeightFormat::kBF16, ops::WeightFormat::kI8},
                    .progress = [&](double part) { parts.push_back(part); }};
  const auto found = SearchMesh(Mixture(), Machine(), kWorkload, {}, space);
  ASSERT_TRUE(found);
  std::vector<double> tenths;
  for (int i = 0; i < 10; ++i) tenths.push_back(i / 10.0);
  EXPECT_EQ(parts, tenths) << "five meshes, twice";
  const SearchResult& best = found->front();
  EXPECT_EQ(best.format, ops::WeightFormat::kI8) << "it has fewer bytes to read";
  EXPECT_EQ(best.forecast.overlapped.output_tokens_per_second,
            Of(Mixture(), best.mesh, kWorkload, {.format = ops::WeightFormat::kI8})
                .overlapped.output_tokens_per_second);
}

TEST(Search, LeavesOutGroupsThatHaveNoRequest) {
  const auto found =
      SearchMesh(Dense(), Machine(), {512, 64, 1}, {}, {.devices_max = 4, .results_max = 100});
  ASSERT_TRUE(found);
  for (const SearchResult& result : *found) EXPECT_EQ(result.mesh.dp, 1);
  EXPECT_GT(found->size(), 1u);
}

TEST(Search, TriesMoreGroupsThanRequestsAndCopiesOfExperts) {
  const SearchSpace slow{.devices_max = 4, .inter_token_seconds_max = 1e-12};
  const auto refused = [&](const Workload& workload, const ForecastOptions& options) {
    return SearchMesh(Mixture(), Machine(), workload, options, slow).error().message;
  };
  // Pairs of dp and tp of product 1 to 4: 1, 2, 2 and 3 of them, with 1, 2, 2 and 3 divisors.
  EXPECT_NE(refused(kWorkload, {}).find("none of 18 meshes"), std::string::npos)
      << refused(kWorkload, {});
  EXPECT_NE(refused({512, 64, 1}, {}).find("none of 18 meshes"), std::string::npos);
  const auto copies =
      SearchMesh(Mixture(), Machine(), kWorkload, {.redundant_experts = 2}, {.devices_max = 3});
  ASSERT_TRUE(copies) << copies.error().message;
  for (const SearchResult& result : *copies) EXPECT_GT(result.mesh.ep, 1);
  EXPECT_NE(refused({4000, 200, 1}, {}).find("the model's context is 4096"), std::string::npos);
}

}  // namespace
}  // namespace braid
