// Each flag that commands with an engine share reaches the option that it names.
#include "cli/command/engine_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <functional>

namespace braid {
namespace {

using Check = std::function<bool(const EngineOptions&)>;

// The options after these words, or the error.
Result<EngineOptions> OptionsOf(std::vector<std::string> words, Offered offered) {
  CLI::App app;
  Flags flags(app);
  EngineOptions options;
  if (offered == Offered::kServe) AddSchedulerFlags(flags, offered, options.scheduler);
  AddEngineFlags(flags, options);
  std::ranges::reverse(words);
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return Error{ErrorCode::kInvalid, error.what()};
  }
  return options;
}

// Without the variable by which `make test ISA=avx2` masks instruction sets.
class EngineFlags : public ::testing::Test {
 protected:
  EngineFlags() { ::unsetenv("BRAID_ISA"); }
  ~EngineFlags() override {
    if (!isa_.empty()) ::setenv("BRAID_ISA", isa_.c_str(), 1);
  }

 private:
  static std::string Isa() {
    const char* value = std::getenv("BRAID_ISA");
    return value == nullptr ? "" : value;
  }
  const std::string isa_ = Isa();
};

TEST_F(EngineFlags, EachReachesItsOption) {
  const struct {
    std::vector<std::string> words;
    Check reached;
  } cases[] = {
      {{"--device", "vulkan:1"}, [](auto& o) { return o.device == "vulkan:1"; }},
      {{"--experts", "cpu"}, [](auto& o) { return o.experts == "cpu"; }},
      {{"--compute", "bf16"}, [](auto& o) { return o.compute == "bf16"; }},
      {{"--isa", "avx2"}, [](auto& o) { return o.isa == "avx2"; }},
      {{"--threads", "3"}, [](auto& o) { return o.threads == 3; }},
      {{"--kv-dtype", "int8"}, [](auto& o) { return o.kv_dtype == "int8"; }},
      {{"--state-dtype", "bf16"}, [](auto& o) { return o.state_dtype == "bf16"; }},
      {{"--mla", "expanded"}, [](auto& o) { return o.mla == "expanded"; }},
      {{"--weights", "int8"}, [](auto& o) { return o.weights == "int8"; }},
      {{"--quantize-head"}, [](auto& o) { return o.quantise_head; }},
      {{"--expand"}, [](auto& o) { return o.expand; }},
      {{"--memory", "3G"}, [](auto& o) { return o.memory_bytes == int64_t{3} << 30; }},
      {{"--max-model-len", "77"}, [](auto& o) { return o.context_tokens_max == 77; }},
      {{"--ctx-size", "78"}, [](auto& o) { return o.context_tokens_max == 78; }},
      {{"--draft", "ngram"}, [](auto& o) { return o.draft == "ngram"; }},
      {{"--tp", "2"}, [](auto& o) { return o.mesh == Mesh{.tp = 2}; }},
      {{"--dp", "3"}, [](auto& o) { return o.mesh == Mesh{.dp = 3}; }},
      {{"--ep", "4"}, [](auto& o) { return o.mesh == Mesh{.ep = 4}; }},
      {{"--ep-dispatch", "latency"}, [](auto& o) { return o.ep_dispatch == "latency"; }},
      {{"--reduce", "fast"}, [](auto& o) { return o.reduce == "fast"; }},
      {{"--two-batch-overlap", "on"}, [](auto& o) { return o.two_batch_overlap == "on"; }},
      {{"--rank-seconds", "9"}, [](auto& o) { return o.rank_seconds == 9; }},
      {{"--cache-dir", "d"}, [](auto& o) { return o.cache_dir == "d"; }},
      {{"--cache-disk", "5G"}, [](auto& o) { return o.cache_disk_bytes == int64_t{5} << 30; }},
      {{"--cache-host", "6M"}, [](auto& o) { return o.cache_host_bytes == 6 << 20; }},
      {{"--cache-host-node", "0"}, [](auto& o) { return o.cache_host_node == 0; }},
      {{"--cache-key-file", "k"}, [](auto& o) { return o.cache_key_file == "k"; }},
      {{"--event-log", "l"}, [](auto& o) { return o.event_log == "l"; }},
      {{"--expert-loads", "e"}, [](auto& o) { return o.expert_loads == "e"; }},
      {{"--expert-loads-line", "pass"}, [](auto& o) { return o.expert_loads_line == "pass"; }},
      {{"--expert-placement", "p"}, [](auto& o) { return o.expert_placement == "p"; }},
      {{"--redundant-experts", "8"}, [](auto& o) { return o.redundant_experts == 8; }},
      {{"--balance-experts"}, [](auto& o) { return o.balance_experts; }},
      {{"--balance-every", "20"}, [](auto& o) { return o.balance.every_steps == 20; }},
      {{"--balance-below", "0.5"}, [](auto& o) { return o.balance.below == 0.5; }},
      {{"--balance-step-bytes", "64K"}, [](auto& o) { return o.balance_step_bytes == 64 << 10; }},
      {{"--trace", "t"}, [](auto& o) { return o.trace_file == "t"; }},
      {{"--explain-ops"}, [](auto& o) { return o.explain_ops; }},
      {{"--max-batch-tokens", "64"}, [](auto& o) { return o.scheduler.step_tokens_max == 64; }},
      {{"--chunk-tokens", "0"}, [](auto& o) { return o.scheduler.chunk_tokens_max == 0; }},
      {{"--no-prefix-cache"}, [](auto& o) { return !o.scheduler.prefix_cache; }},
      {{"--disable-radix-cache"}, [](auto& o) { return !o.scheduler.prefix_cache; }},
      {{"--decode-latency-ms", "7"}, [](auto& o) { return o.scheduler.decode_latency_us == 7000; }},
      {{"--max-prefills", "2"}, [](auto& o) { return o.scheduler.prefills_max == 2; }},
      {{"--max-num-seqs", "5"}, [](auto& o) { return o.scheduler.running_max == 5; }},
  };
  const Result<EngineOptions> none = OptionsOf({}, Offered::kServe);
  ASSERT_TRUE(none) << none.error().message;
  for (const auto& c : cases) {
    const Result<EngineOptions> options = OptionsOf(c.words, Offered::kServe);
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_TRUE(c.reached(*options)) << c.words[0];
    EXPECT_EQ(c.reached(*none), c.words[0] == "--chunk-tokens") << c.words[0];
  }
}

TEST_F(EngineFlags, BoundsAreThoseOfTheSettings) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--max-batch-tokens", "63"},
                                             {"--max-batch-tokens", "1048577"},
                                             {"--decode-latency-ms", "1048577"},
                                             {"--chunk-tokens", "-1"},
                                             {"--threads", "0"},
                                             {"--redundant-experts", "129"},
                                             {"--balance-every", "9"},
                                             {"--balance-below", "0"},
                                             {"--kv-dtype", "fp8"}}) {
    EXPECT_FALSE(OptionsOf(words, Offered::kServe)) << words[0];
  }
  // A setting that serve alone offers.
  EXPECT_FALSE(OptionsOf({"--max-num-seqs", "5"}, Offered::kEngine));
  EXPECT_TRUE(OptionsOf({"--decode-latency-ms", "1048576"}, Offered::kEngine));
}

TEST(SamplingFlags, EachReachesItsChoice) {
  CLI::App app;
  Flags flags(app);
  SamplingChoice choice;
  AddSamplingFlags(flags, choice);
  std::vector<std::string> words = {"--max-tokens", "5",    "--temperature", "0.5",
                                    "--top-k",      "6",    "--top-p",       "0.75",
                                    "--min-p",      "0.25", "--seed",        "7"};
  std::ranges::reverse(words);
  app.parse(std::move(words));
  EXPECT_EQ(choice.max_tokens, 5);
  EXPECT_EQ(choice.temperature, 0.5);
  EXPECT_EQ(choice.top_k, 6);
  EXPECT_EQ(choice.top_p, 0.75);
  EXPECT_EQ(choice.min_p, 0.25);
  EXPECT_EQ(choice.seed, 7u);
}

}  // namespace
}  // namespace braid
