// A device's choices are the host's: the same key draws the same token from the same logits.
#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "ops/testing/test_context.h"
#include "ops/vulkan/test_device.h"

namespace braid::ops {
namespace {

using gpu::DeviceDraw;
using gpu::DeviceDrawn;

class VulkanSample : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    device_ = TestDevice::Open(&why);
    if (device_ == nullptr) GTEST_SKIP() << why;
  }
  std::vector<DeviceDrawn> Run(const OwnedMatrix& logits, const std::vector<DeviceDraw>& draws,
                               int64_t sampled) {
    std::vector<DeviceDrawn> drawn(draws.size());
    SampleRows(*device_, {logits.view, sampled, draws.data(), drawn.data()});
    return drawn;
  }
  std::unique_ptr<TestDevice> device_;
  TestContext base_{Isa::kBase};
};

OwnedMatrix RandomLogits(uint64_t seed, int64_t rows, int64_t vocabulary) {
  Rng rng(seed);
  return {rng, rows, vocabulary, 3.0};
}
std::span<const float> Row(const OwnedMatrix& logits, int64_t r, int64_t count) {
  return {logits.view.row(r), static_cast<size_t>(count)};
}

constexpr SampleParams kParams[] = {
    {},
    {.temperature = 0.7f},
    {.temperature = 2.5f},
    {.top_k = 1},
    {.top_k = 20},
    {.top_k = 100000},
    {.top_p = 0.01f},
    {.top_p = 0.9f},
    {.temperature = 2.0f, .top_p = 0.999f},
    {.min_p = 0.05f},
    {.min_p = 1.0f},
    {.top_k = 40, .top_p = 0.9f},
    {.temperature = 1.5f, .top_k = 7, .min_p = 0.2f},
    {.temperature = 0.8f, .top_k = 50, .top_p = 0.6f, .min_p = 0.01f}};

TEST_F(VulkanSample, DrawsTheHostsTokens) {
  SampleScratch scratch;
  for (const auto& [vocabulary, sampled] :
       {std::pair<int64_t, int64_t>{3, 3}, {500, 498}, {5003, 5000}, {70001, 70001}}) {
    // A software driver takes its time.
    const int32_t rows = vocabulary < 1000 ? 40 : vocabulary < 10000 ? 10 : 4;
    OwnedMatrix logits = RandomLogits(static_cast<uint64_t>(vocabulary), rows, vocabulary);
    logits.view.row(1)[2] = -std::numeric_limits<float>::infinity();
    // Ties everywhere, and at the end of what is kept.
    for (int64_t i = 0; i < vocabulary; ++i) {
      logits.view.row(2)[i] = 0.0f;
      logits.view.row(3)[i] = static_cast<float>(i % 3) - (i % 2 == 0 ? 0.0f : 1.0f);
    }
    int other = 0;
    for (const SampleParams& params : kParams) {
      std::vector<DeviceDraw> draws;
      for (int32_t r = 0; r < rows; ++r) {
        draws.push_back({.seed = 11u + static_cast<uint64_t>(r % 5),
                         .position = r,
                         .scale = 1.0f / params.temperature,
                         .top_k = params.top_k,
                         .top_p = params.top_p,
                         .min_p = params.min_p,
                         .flags = DeviceDraw::kChoose});
      }
      const std::vector<DeviceDrawn> drawn = Run(logits, draws, sampled);
      for (size_t r = 0; r < draws.size(); ++r) {
        const double uniform = RandomUniform(draws[r].seed, r);
        const TokenId token = Sample(
            base_.context, params, Row(logits, static_cast<int64_t>(r), sampled), uniform, scratch);
        EXPECT_EQ(drawn[r].finite, 1);
        // What was drawn is kept by the host too.
        const auto kept =
            std::ranges::count(scratch.candidates, drawn[r].token,
                               [](const auto& candidate) { return candidate.second; });
        const bool all = params.top_k == 0 && params.top_p == 1.0f && params.min_p == 0.0f;
        EXPECT_TRUE(all || kept == 1) << drawn[r].token << " of " << vocabulary;
        if (drawn[r].token != token) ++other;
      }
    }
    // A uniform number may fall between two sums that differ by rounding.
    EXPECT_LE(other, 1) << "of " << vocabulary;
  }
}

TEST_F(VulkanSample, TheLargestIsTheFirstOfThemAndPaddingIsNeverChosen) {
  OwnedMatrix logits = RandomLogits(7, 5, 1003);
  for (int64_t r = 0; r < 5; ++r) {
    logits.view.row(r)[200 * r + 3] = 50.0f;
    logits.view.row(r)[1000] = 50.0f;
    logits.view.row(r)[1002] = 60.0f;
  }
  for (int64_t i = 0; i < 1003; ++i) logits.view.row(4)[i] = i % 2 == 0 ? -0.0f : 0.0f;
  const std::vector<DeviceDrawn> drawn =
      Run(logits, std::vector<DeviceDraw>(5, {.flags = DeviceDraw::kChoose}), 1001);
  for (int32_t r = 0; r < 5; ++r) {
    EXPECT_EQ(drawn[static_cast<size_t>(r)].token, r == 4 ? 0 : 200 * r + 3);
  }
}

TEST_F(VulkanSample, NonFiniteLogitsAreSeen) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::quiet_NaN()}) {
    OwnedMatrix logits = RandomLogits(2, 4, 1003);
    logits.view.row(0)[0] = bad;
    logits.view.row(1)[517] = bad;
    logits.view.row(2)[1002] = bad;  // padding counts
    const auto drawn =
        Run(logits, std::vector<DeviceDraw>(4, {.scale = 1, .flags = DeviceDraw::kChoose}), 1000);
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(drawn[r].finite, 0) << r;
    EXPECT_EQ(drawn[3].finite, 1);
  }
  OwnedMatrix never(1, 70);
  std::ranges::fill(never.values, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Run(never, {{.flags = DeviceDraw::kDescribe}}, 70)[0].finite, 0);
}

TEST_F(VulkanSample, DescribesWhatTheHostDescribes) {
  for (int64_t vocabulary : {5, 500, 5003}) {
    OwnedMatrix logits = RandomLogits(9, 4, vocabulary);
    for (int64_t i = 0; i < vocabulary; ++i) logits.view.row(3)[i] = static_cast<float>(i % 4);
    std::vector<DeviceDraw> draws(4, {.next = 3, .flags = DeviceDraw::kDescribe | 20});
    draws[1].flags = DeviceDraw::kDescribe;
    draws[2] = {.scale = 1.0f, .top_k = 3, .min_p = 0.5f};
    draws[2].flags = DeviceDraw::kDescribe | DeviceDraw::kChoose | 5;
    const std::vector<DeviceDrawn> drawn = Run(logits, draws, vocabulary);
    for (size_t r = 0; r < draws.size(); ++r) {
      const auto row = Row(logits, static_cast<int64_t>(r), vocabulary);
      const LogitStats stats = StatsOf(base_.context, row);
      const int32_t top = draws[r].flags & 0xff;
      EXPECT_EQ(drawn[r].most, stats.maximum);
      EXPECT_NEAR(std::log(std::ldexp(static_cast<double>(drawn[r].sum), -40)), stats.log_sum,
                  2e-6);
      const auto want = TopLogprobs(base_.context, row, stats, top);
      ASSERT_EQ(drawn[r].best_count, std::ssize(want));
      for (const auto& [id, logprob] : want) {
        const auto* end = drawn[r].best + drawn[r].best_count;
        const auto* at =
            std::find_if(drawn[r].best, end, [&](const auto& b) { return b.id == id; });
        ASSERT_NE(at, end) << id;
        EXPECT_EQ(at->logit, row[static_cast<size_t>(id)]);
      }
      EXPECT_EQ(drawn[r].next_logit, draws[r].next >= 0 ? row[3] : 0.0f);
      if (drawn[r].token >= 0) {
        EXPECT_EQ(drawn[r].token_logit, row[static_cast<size_t>(drawn[r].token)]);
      }
    }
    EXPECT_GE(drawn[2].token, 0);
    EXPECT_EQ(drawn[0].token, -1);
  }
}

TEST_F(VulkanSample, MoreInvocationsChooseAndDescribeTheSame) {
  for (int64_t vocabulary : {90, 4099}) {
    const OwnedMatrix logits = RandomLogits(8, std::ssize(kParams), vocabulary);
    std::vector<DeviceDraw> draws;
    for (const SampleParams& p : kParams) {
      draws.push_back({.seed = 3,
                       .position = static_cast<int32_t>(draws.size()),
                       .scale = draws.empty() ? 0.0f : 1.0f / p.temperature,
                       .top_k = p.top_k,
                       .top_p = p.top_p,
                       .min_p = p.min_p,
                       .next = 1,
                       .flags = DeviceDraw::kChoose | DeviceDraw::kDescribe | 3});
    }
    const auto of = [&](int32_t invocations) {
      std::vector<DeviceDrawn> drawn(draws.size());
      SampleRows(*device_, {.logits = logits.view,
                            .sampled = vocabulary - 1,
                            .draws = draws.data(),
                            .drawn = drawn.data(),
                            .invocations = invocations});
      return drawn;
    };
    const std::vector<DeviceDrawn> want = of(128);
    for (int32_t invocations : {256, 512}) {
      const std::vector<DeviceDrawn> got = of(invocations);
      for (size_t r = 0; r < want.size(); ++r) {
        EXPECT_EQ(got[r].token, want[r].token) << invocations << " row " << r;
        EXPECT_EQ(got[r].sum, want[r].sum);
        EXPECT_EQ(got[r].most, want[r].most);
        EXPECT_EQ(got[r].token_logit, want[r].token_logit);
        EXPECT_EQ(got[r].best_count, 3);
      }
    }
  }
}

TEST_F(VulkanSample, RowsThatTheHostSamplesAreLeftAlone) {
  const OwnedMatrix logits = RandomLogits(4, 2, 90);
  const auto drawn = Run(logits, {{}, {.scale = 1.0f, .flags = DeviceDraw::kChoose}}, 90);
  EXPECT_EQ(drawn[0].token, -1);
  EXPECT_EQ(drawn[0].finite, 0);
  EXPECT_GE(drawn[1].token, 0);
}

}  // namespace
}  // namespace braid::ops
