// Which parts of a step run, how often, and whose time counts; against parts that only note it.
#include "cli/bench/ops_step.h"

#include <gtest/gtest.h>

#include <map>

#include "base/clock.h"
#include "forecast/calibration.h"

namespace braid {
namespace {

constexpr int64_t kLongNs = 20'000'000;

// Counts runs by name, and takes some time.
class NotedRun : public OpRun {
 public:
  NotedRun(int64_t ns, int& runs) : ns_(ns), runs_(runs) {}
  void Run(const ops::OpContext&, int64_t) override {
    ++runs_;
    for (const int64_t end_ns = MonotonicNs() + ns_; MonotonicNs() < end_ns;) {
    }
  }

 private:
  int64_t ns_;
  int& runs_;
};

OpCase Part(std::string_view part, double bytes, int64_t ns, int& runs) {
  return {.bytes = bytes, .part = part, .make = [=, &runs] {
            return std::make_unique<NotedRun>(ns, runs);
          }};
}

TEST(StepRun, AllPartsRunAndTheMeanOfTheWantedOnesCounts) {
  int wanted = 0, others = 0;
  const std::vector<OpCase> parts = {Part("experts", 8, 0, wanted),
                                     Part("head", 8, kLongNs, others),
                                     Part("experts", 8, kLongNs, wanted),
                                     // The same part of other amounts is another.
                                     Part("experts", 9, 4 * kLongNs, others)};
  const std::unique_ptr<OpRun> run = MakeStepRun(parts, parts[0]);
  EXPECT_LT(run->counted_ns(), 0) << "nothing has run yet";
  const int64_t start_ns = MonotonicNs();
  run->Run({}, 0);
  const auto took = static_cast<double>(MonotonicNs() - start_ns);
  EXPECT_EQ(wanted, 2);
  EXPECT_EQ(others, 2);
  EXPECT_GE(run->counted_ns(), kLongNs / 2);
  // Of the rest, which is five times as long, nothing counts.
  EXPECT_LE(run->counted_ns() * 2, took - 5 * kLongNs + 1);
}

TEST(StepRun, LayersBeyondTheColdBytesAreLeftOutButNoKindIs) {
  int first = 0, second = 0;
  const double third = static_cast<double>(kColdBytes) / 3;
  std::vector<OpCase> parts;
  for (int layer = 0; layer < 8; ++layer) parts.push_back(Part("experts", third, 0, first));
  parts.push_back(Part("attention", third, 0, second));
  parts.push_back(Part("attention", third, 0, second));
  MakeStepRun(parts, parts[0])->Run({}, 0);
  EXPECT_EQ(first, 4);  // the fourth begins at all of the cold bytes, not beyond them
  EXPECT_EQ(second, 1);
}

TEST(StepParts, ADecodeStepHasThePartsThatAForecastCounts) {
  const ModelSpec spec{
      .hidden = 64,
      .vocabulary = 128,
      .layers = {{.mixer = FullAttention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                  .ffn = DenseFfn{.width = 256}},
                 {.mixer = FullAttention{.heads = 4, .kv_heads = 2, .head_dim = 16},
                  .ffn = MoeFfn{.experts = 16, .top_k = 2, .width = 32, .shared_width = 32}}},
      .prefixes = {""}};
  const BenchStep step{8, 96, 3};
  const ops::PackedMatrix row{.format = ops::WeightFormat::kI8, .n = 1, .k = 64};
  const StepShape shape{.tokens = 24,
                        .sequences = 8,
                        .context_tokens = 96,
                        .bytes_per_weight = row.bytes_per_weight()};
  std::vector<Cost> costs = CostsOf(spec, shape, 24);
  costs.push_back(RowWorkOf(spec, 24));
  const std::vector<OpCase> parts =
      PartsOf({.spec = spec, .format = ops::WeightFormat::kI8}, step, false);
  ASSERT_EQ(parts.size(), costs.size());
  for (const Cost& cost : costs) {
    const auto found = std::ranges::count_if(parts, [&](const OpCase& part) {
      return part.part == cost.part && part.flops == cost.flops && part.bytes == cost.bytes;
    });
    const auto wanted = std::ranges::count_if(costs, [&](const Cost& other) {
      return other.part == cost.part && other.flops == cost.flops && other.bytes == cost.bytes;
    });
    EXPECT_EQ(found, wanted) << cost.part;
  }
}

}  // namespace
}  // namespace braid
