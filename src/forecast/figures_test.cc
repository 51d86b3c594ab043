// The figures that published documents give of models and machines, V01 to V54 of docs/figures.md,
// from the formulas of a forecast. Where a document rounds, the expected value is the exact one and
// the document's is in docs/figures.md.
#include <gtest/gtest.h>

#include <array>

#include "base/math.h"
#include "base/system/file.h"
#include "forecast/forecast.h"
#include "forecast/formulas.h"
#include "model/describe.h"
#include "model/families/families.h"
#include "parallel/rank_view.h"

namespace braid {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

// Within 0.1 %, or as many parts in a thousand as are given.
void Agrees(double value, double expected, double per_mille = 1) {
  EXPECT_NEAR(value, expected, std::abs(expected) * per_mille / 1000);
}

ModelSpec Published(const std::string& name) {
  const std::string path = BRAID_SOURCE_DIR "/tests/configs/" + name + ".json";
  Result<std::string> text = ReadFile(path, 1 << 20);
  CHECK(text, "{}", text.error().message);
  Result<ModelSpec> spec = ParseModelSpec(*text, path);
  CHECK(spec, "{}", spec.error().message);
  return *std::move(spec);
}

double FactOf(const ModelSpec& spec, std::string_view section, std::string_view key) {
  const json::object facts = FactsAsJson(DescribeModel(spec, nullptr, nullptr));
  return facts.at(section).as_object().at(key).to_number<double>();
}
double KvBytes(const std::string& name) {
  return FactOf(Published(name), "cache", "kv_bytes_per_token_bf16");
}
double StateBytes(const std::string& name) {
  return FactOf(Published(name), "cache", "recurrent_state_bytes");
}
double ConvolutionBytes(const std::string& name) {
  return FactOf(Published(name), "cache", "convolution_state_bytes_bf16");
}

Hardware Known(const std::string& name) {
  Result<Hardware> hardware = ReadHardware(name);
  CHECK(hardware, "{}", hardware.error().message);
  return *std::move(hardware);
}

// The mixture of the document on the fused kernel: one layer on one of 32 devices.
constexpr int64_t kTokens = 16384, kHidden = 8192;
constexpr int32_t kRanks = 32;
MoeFfn LingExperts(int32_t width, int32_t shared_width) {
  return {.experts = 256, .top_k = 8, .width = width, .shared_width = shared_width};
}
// Of the experts alone: the router's cost is that of a mixture whose experts have no width.
Cost ExpertCost(int64_t tokens, int64_t shared_rows, int32_t shared_width) {
  const StepShape shape{.tokens = shared_rows,
                        .routed_tokens = tokens,
                        .expert_share = 1.0 / kRanks,
                        .bytes_per_weight = 1};
  const Cost all = CostsOf(LingExperts(2048, shared_width), kHidden, shape)[0];
  const Cost router = CostsOf(LingExperts(0, 0), kHidden, shape)[0];
  return {.flops = all.flops - router.flops, .bytes = all.bytes - router.bytes};
}
Cost Routed(int64_t tokens) { return ExpertCost(tokens, 512, 0); }

TEST(FusedExperts, V01ToV05RoutedWorkOfADevice) {
  const double flops = Routed(kTokens).flops;
  const double rows = flops / (2.0 * 3 * kHidden * 2048);
  EXPECT_EQ(rows, 4096);                                                         // V01
  EXPECT_EQ((Share{.index = 0, .count = kRanks}.Of(256).count), 8);              // V02
  EXPECT_EQ(rows / 8, 512);                                                      // V02
  Agrees(flops * 2 / 3, 274.878e9);                                              // V03
  Agrees(flops / 3, 137.439e9);                                                  // V04
  Agrees(flops, 412.317e9);                                                      // V05
  EXPECT_EQ(ExpertCost(512, 16, 0).flops / (2.0 * 3 * kHidden * 2048), 128);     // V23
  EXPECT_EQ(ExpertCost(512, 16, 0).flops / (2.0 * 3 * kHidden * 2048) / 8, 16);  // V23
}

TEST(FusedExperts, V06ToV09TheSharedExpertsRowsDecideTheArithmetic) {
  const double peak = Known("tpu_v7x").fp8_flops, routed = Routed(kTokens).flops;
  const auto total = [&](int64_t rows) { return ExpertCost(kTokens, rows, 2048).flops; };
  struct Case {
    int64_t rows;
    double shared, total, ms;
  };
  for (const Case& c : {Case{4096, 412.317e9, 824.634e9, 0.3574},     // V06, as printed
                        Case{512, 51.540e9, 463.856e9, 0.2011},       // V07
                        Case{2048, 206.158e9, 618.475e9, 0.2681}}) {  // V08
    Agrees(total(c.rows) - routed, c.shared);
    Agrees(total(c.rows), c.total);
    Agrees(total(c.rows) / peak * 1e3, c.ms);
  }
  Agrees(routed / peak * 1e3, 0.1787);  // V09
  // The printed 4096 rows in the 0.159 ms that were measured would exceed the peak.
  EXPECT_GT((total(4096) - routed) / 0.159e-3, peak);
  EXPECT_LT((total(2048) - routed) / 0.159e-3, peak);
}

TEST(FusedExperts, V10ToV16Links) {
  const Hardware tpu = Known("tpu_v7x");
  // A device's 512 tokens of 16384, with all their copies.
  const double tokens = static_cast<double>(kTokens) / kRanks;
  EXPECT_EQ(RoutedBytes(tokens, 8, kHidden, 1), 33554432);  // V10: elements, V11: fp8
  EXPECT_EQ(RoutedBytes(tokens, 8, kHidden, 2), 67108864);  // V11: bf16
  const double fp8 = RoutedBytes(tokens, 8, kHidden, 1) / tpu.link_bytes_per_second * 1e3;
  const double bf16 = RoutedBytes(tokens, 8, kHidden, 2) / tpu.link_bytes_per_second * 1e3;
  Agrees(fp8, 0.1678);       // V12
  Agrees(bf16, 0.3355);      // V12
  Agrees(2 * fp8, 0.3355);   // V13
  Agrees(2 * bf16, 0.6711);  // V13
  const double hops = MeanHops(std::array<int32_t, 3>{2, 2, 4});
  EXPECT_EQ(hops, 2.0);                                // V14
  EXPECT_EQ(hops, tpu.mean_hops);                      // V14
  Agrees(hops * 16 / 15, 2.133);                       // V14: the own chip excluded
  Agrees(hops * fp8, 0.3355);                          // V15
  Agrees(hops * bf16, 0.6711);                         // V15
  Agrees(2 * hops * fp8, 0.6711);                      // V15
  Agrees(2 * hops * bf16, 1.3422);                     // V15
  const double link = 1.2e12 / 2 / 6;                  // one of 6, one direction
  EXPECT_EQ(link, 100e9);                              // V16
  EXPECT_EQ(4 * link, 400e9);                          // V16
  EXPECT_EQ(4 * link / 2, tpu.link_bytes_per_second);  // V16
}

TEST(FusedExperts, V17ToV20Weights) {
  const Hardware tpu = Known("tpu_v7x");
  const double bytes = Routed(kTokens).bytes;
  EXPECT_EQ(bytes, 402653184);     // V17
  EXPECT_EQ(bytes / 8, 50331648);  // V17
  const double pass = bytes / tpu.memory_bytes_per_second * 1e3;
  Agrees(pass, 0.1091);  // V18
  const int64_t passes = CeilDiv(int64_t{512}, int64_t{160});
  EXPECT_EQ(passes, 4);                                // V19
  Agrees(static_cast<double>(passes) * pass, 0.4365);  // V19
  // Tiles of 1024 of 2048 channels, 512 of 8192 hidden ones, 128 of 512 rows.
  const int64_t stagings = CeilDiv(2048, 1024) * CeilDiv(8192, 512) * CeilDiv(512, 128);
  EXPECT_EQ(stagings, 128);          // V20
  EXPECT_EQ(stagings / passes, 32);  // V20
}

TEST(FusedExperts, V21ToV25MeasuredTimesAgainstTheLimits) {
  const Hardware tpu = Known("tpu_v7x");
  EXPECT_NEAR(1 - 2.42 / 5.16, 0.531, 0.0005);    // V21: prefill
  EXPECT_NEAR(1 - 0.211 / 0.249, 0.153, 0.0005);  // V21: decode
  EXPECT_NEAR(1 - 3.02 / 5.16, 0.415, 0.0005);    // V21: before quantised activations
  const double ffn1 = Routed(kTokens).flops * 2 / 3 / tpu.fp8_flops * 1e3;
  Agrees(ffn1, 0.1191);                     // V22
  EXPECT_NEAR(ffn1 / 0.72, 0.165, 0.0005);  // V22
  const double window = 0.211e-3 * tpu.memory_bytes_per_second;
  const double routed = Routed(kTokens).bytes;  // as many tokens as reach every expert
  Agrees(routed / window, 0.517);               // V24
  const double with_shared = ExpertCost(kTokens, 512, 2048).bytes;
  Agrees(with_shared / window, 0.582);          // V24
  EXPECT_NEAR(2.4 - (0.42 + 0.18), 1.8, 1e-9);  // V25: communication that is hidden
}

TEST(HybridCache, V26ToV32KeysValuesAndStates) {
  const ModelSpec ling = Published("ling_2_6_1t");
  const double logical = KvBytes("ling_2_6_1t");
  int64_t padded = 0;  // rows of the latent on lanes of 128
  for (const LayerSpec& layer : ling.layers) {
    if (const auto* m = std::get_if<LatentAttention>(&layer.mixer)) {
      padded += 2 * RoundUp(m->latent_dim + m->shared_dim, 128);
    }
  }
  EXPECT_EQ(padded, 12800);   // V26
  EXPECT_EQ(logical, 11520);  // V27
  const double pads = static_cast<double>(padded);
  EXPECT_EQ(pads * 16384 / kMiB, 200);         // V28
  EXPECT_EQ(logical * 16384 / kMiB, 180);      // V28
  EXPECT_EQ(pads * 262144 / kGiB, 3.125);      // V29
  EXPECT_EQ(logical * 262144 / kGiB, 2.8125);  // V29
  const double state = StateBytes("ling_2_6_1t");
  EXPECT_EQ(state, 293601280);  // V30
  Result<RankView> rank = ViewOf(ling, {.dp = 8, .tp = 4, .ep = 32}, 0);
  ASSERT_TRUE(rank) << rank.error().message;
  const double held = FactOf(rank->spec, "cache", "recurrent_state_bytes");
  EXPECT_EQ(held / kMiB, 70);             // V30
  EXPECT_DOUBLE_EQ(held / pads, 5734.4);  // V31
  EXPECT_EQ(64 * held / kGiB, 4.375);     // V32
  // Keys and values are not divided by tp.
  EXPECT_EQ(FactOf(rank->spec, "cache", "kv_bytes_per_token_bf16"), logical);
  Agrees(2 * held, 146.8e6);                                                // V54
  Agrees(2 * held / Known("tpu_v7x").memory_bytes_per_second * 1e6, 39.8);  // V54
}

TEST(ExpertParallelDeployment, V33ToV40) {
  EXPECT_EQ(LeastMemoryRanks(18432, 2048, 0), 3);  // V33
  EXPECT_EQ(LeastMemoryRanks(18432, 128, 3), 6);   // V34
  const int64_t experts = 256 + 32;
  EXPECT_EQ(experts, 288);  // V35
  EXPECT_EQ(experts % 12, 0);
  EXPECT_EQ((Share{.index = 71, .count = 72}.Of(experts).count), 4);  // V35
  EXPECT_EQ(52300.0 / 8, 6537.5);                                     // V36
  EXPECT_EQ(22300.0 / 8, 2787.5);                                     // V36
  Agrees(DollarsPerMillion(8 * 2, 22300), 0.1993);                    // V37
  const double there = RoutedBytes(128, 8, 7168, 1, 128), back = RoutedBytes(128, 8, 7168, 2);
  EXPECT_EQ(there, 7569408);         // V38
  Agrees(there / 77e-6, 98e9, 10);   // V38
  EXPECT_EQ(back, 14680064);         // V39
  Agrees(back / 114e-6, 127e9, 20);  // V39
  Agrees(there / 118e-6, 63e9, 20);  // V40
  Agrees(back / 195e-6, 74e9, 20);   // V40
}

TEST(LatentCache, V41ToV43) {
  const ModelSpec v3 = Published("deepseek_v3");
  const auto& m = std::get<LatentAttention>(v3.layers[0].mixer);
  const int64_t token = CacheOf(m, DType::kBF16).block_bytes / kBlockTokens;
  EXPECT_EQ(token, 1152);
  Agrees(static_cast<double>(token) * 131072 * 62 / kGiB, 8.72);  // V41: with the draft layer
  // fp8 codes of the latent, a scale of 4 bytes for 128 of them, the rotated key in bf16.
  EXPECT_EQ(m.latent_dim + m.latent_dim / 128 * 4 + 2 * m.shared_dim, 656);  // V42
  // One more token of context costs a decode step this much.
  const StepShape shape{.tokens = 1, .sequences = 1, .context_tokens = 1000};
  StepShape longer = shape;
  ++longer.context_tokens;
  const Cost a = CostsOf(m, v3.hidden, shape)[1], b = CostsOf(m, v3.hidden, longer)[1];
  EXPECT_DOUBLE_EQ(b.flops - a.flops, 278528);               // V43
  EXPECT_NEAR(b.bytes - a.bytes, 1152, 1e-6);                // V43
  Agrees((b.flops - a.flops) / (b.bytes - a.bytes), 241.8);  // V43
}

TEST(PublishedModels, V44ToV50SizesAndCaches) {
  Agrees(FactOf(Published("deepseek_v3"), "parameters", "total"), 671.03e9);  // V44
  const ModelSpec large = Published("qwen3_5_397b_a17b");
  const ParameterCount count = ParametersOf(large);
  Agrees(static_cast<double>(count.total), 396.3e9);                      // V45
  Agrees(static_cast<double>(count.total), 397e9, 3);                     // V45: as named
  Agrees(static_cast<double>(count.active + count.embedding), 17.35e9);   // V45
  Agrees(static_cast<double>(count.active + count.embedding), 17e9, 30);  // V45: as named
  Agrees(static_cast<double>(ParametersOf(Published("qwen3_5_35b_a3b")).total), 34.66e9);   // V46
  Agrees(static_cast<double>(ParametersOf(Published("qwen3_5_35b_a3b")).total), 35e9, 10);  // V46
  struct Cache {
    const char* config;
    double kv, state_mib, conv_mib;
  };
  for (const Cache& c : {Cache{"qwen3_5_35b_a3b", 20480, 60, 1.40625},       // V47
                         Cache{"qwen3_5_397b_a17b", 30720, 180, 3.1640625},  // V48
                         Cache{"kimi_linear_48b_a3b", 8064, 40, 1.40625},    // V49
                         Cache{"ling_3_tiny", 6912, 18, 0.6328125}}) {       // V50
    EXPECT_EQ(KvBytes(c.config), c.kv) << c.config;
    EXPECT_EQ(StateBytes(c.config) / kMiB, c.state_mib) << c.config;
    EXPECT_EQ(ConvolutionBytes(c.config) / kMiB, c.conv_mib) << c.config;
  }
  EXPECT_EQ(KvBytes("ling_3_tiny") / 576 * 640, 7680);  // V50: on lanes of 128
}

TEST(Experts, V51DistinctOnes) {
  const MoeFfn moe{.experts = 128, .top_k = 8, .width = 1};
  const auto distinct = [&](int64_t tokens) {
    const StepShape shape{.tokens = tokens, .bytes_per_weight = 1};
    const double router = 2.0 * 128;
    return (CostsOf(moe, 1, shape)[0].bytes - router) / 3;
  };
  Agrees(distinct(8), 51.6, 5);    // V51
  Agrees(distinct(32), 111.8, 5);  // V51
}

TEST(FusedExperts, V52ShareOfThePrefillTime) {
  const double saved = 1 - 1 / 1.248;                     // of the time, by 24.8 % more throughput
  EXPECT_NEAR(saved, 0.199, 0.0005);                      // V52
  EXPECT_NEAR(saved / (1 - 2.42 / 5.16), 0.374, 0.0005);  // V52
}

TEST(ExpertParallelDeployment, V53ExpertWeightsOfADevice) {
  double bytes = 0;
  for (const LayerSpec& layer : Published("ling_2_6_1t").layers) {
    if (const auto* moe = std::get_if<MoeFfn>(&layer.ffn)) {
      bytes += 3.0 * kHidden * moe->width * moe->experts / kRanks;
    }
  }
  Agrees(bytes, 30.60e9);  // V53
}

}  // namespace
}  // namespace braid
