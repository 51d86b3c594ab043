// Qwen3 and Qwen3-MoE: full attention in every layer, with norms on queries and keys and without an
// output gate; experts without a shared one.
#include <fmt/core.h>

#include "model/families/qwen_hybrid.h"

namespace braid {
namespace {

constexpr IntRange kHeads{1, 1024};

FullAttention ReadAttention(HfConfig& config) {
  FullAttention mixer{.heads = config.Int("num_attention_heads", kHeads),
                      .kv_heads = config.Int("num_key_value_heads", kHeads),
                      .head_dim = config.IntOr("head_dim", {1, 1024}, 128),
                      .qk_norm = true};
  mixer.rotary = ReadQwenRotary(config, mixer.head_dim, 1.0);
  CheckQwenHeads(config, mixer);
  return mixer;
}

ModelSpec Read(HfConfig& config) {
  ModelSpec spec;
  spec.hidden = config.Int("hidden_size", {1, 65536});
  spec.vocabulary = config.Int("vocab_size", {1, 1 << 22});
  spec.context_tokens_max = config.IntOr("max_position_embeddings", {1, 1 << 27}, 40960);
  spec.norm = {.eps = static_cast<float>(config.NumberOr("rms_norm_eps", {1e-12, 0.1}, 1e-6))};
  spec.tied_head = config.BoolOr("tie_word_embeddings", false);
  spec.prefixes = {"model."};
  const int32_t layers = config.Int("num_hidden_layers", {1, 512});
  const FullAttention mixer = ReadAttention(config);
  const MoeFfn moe = ReadQwenMoe(config, layers, {.width = 768, .router = {.renormalise = false}});
  const std::vector<Ffn> ffns = ReadQwenFfns(config, moe, layers);
  for (int32_t i = 0; i < layers; ++i) {
    spec.layers.push_back({.prefix = fmt::format("@layers.{}.", i),
                           .mixer = mixer,
                           .ffn = ffns[static_cast<size_t>(i)]});
  }
  config.Words("layer_types", layers, {"full_attention"});
  config.Word("hidden_act", {"silu"});
  config.MustBeNeutral("attention_bias", "biases of the attention's projections");
  config.MustBeNeutral("use_sliding_window", "attention over a window");
  config.Ignore({"sliding_window", "max_window_layers"});  // of that window
  return spec;
}

json::object Example(ExampleSize size) {
  const bool mid = size == ExampleSize::kMid;
  return {
      {"architectures", {"Qwen3MoeForCausalLM"}},
      {"model_type", "qwen3_moe"},
      {"dtype", "bfloat16"},
      {"vocab_size", mid ? 65536 : 512},
      {"hidden_size", mid ? 2048 : 64},
      {"num_hidden_layers", mid ? 16 : 4},
      {"num_attention_heads", mid ? 32 : 4},
      {"num_key_value_heads", mid ? 4 : 2},
      {"head_dim", mid ? 128 : 16},
      {"hidden_act", "silu"},
      {"rms_norm_eps", 1e-6},
      {"max_position_embeddings", mid ? 32768 : 4096},
      {"rope_theta", 1e6},
      {"num_experts", mid ? 64 : 8},
      {"num_experts_per_tok", mid ? 8 : 2},
      {"norm_topk_prob", true},
      {"moe_intermediate_size", mid ? 768 : 32},
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
}

}  // namespace

Family Qwen3Family() {
  return {.name = "qwen3",
          .architectures = {"Qwen3MoeForCausalLM", "Qwen3ForCausalLM"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
