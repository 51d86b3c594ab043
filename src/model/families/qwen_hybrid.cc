// Config keys of the Qwen hybrids. RoPE comes in two forms: nested (rope_parameters) and flat
// (rope_theta, partial_rotary_factor, rope_scaling); for text, mrope is plain RoPE.
#include "model/families/qwen_hybrid.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr IntRange kHeads{1, 1024};
constexpr IntRange kHeadDim{1, 1024};
constexpr IntRange kWidth{1, 1 << 18};
constexpr IntRange kExperts{0, 4096};
constexpr int64_t kExpertsInAllMax =
    65536;  // every expert is three names: the loader's lists stay small

}  // namespace

RotarySpec ReadQwenRotary(HfConfig& config, int32_t head_dim, double partial) {
  const bool nested = config.Has("rope_parameters");
  const std::string base = nested ? "rope_parameters." : "";
  const std::string kind = nested ? "rope_parameters." : "rope_scaling.";
  config.Word(kind + "rope_type", {"default", "mrope"});
  config.Word(kind + "type", {"default", "mrope"});
  for (const char* key : {"mrope_section", "mrope_interleaved"}) {
    config.Ignore({kind + key});
  }
  RotarySpec rotary;
  rotary.theta = config.Number(base + "rope_theta", {1.0, 1e12});
  const double factor = config.NumberOr(base + "partial_rotary_factor", {0.0, 1.0}, partial);
  if (nested) {  // some exporters write both forms: they must agree
    for (const auto& [key, value] : {std::pair<const char*, double>{"rope_theta", rotary.theta},
                                     {"partial_rotary_factor", factor}}) {
      if (config.NumberOr(key, {0.0, 1e12}, value) != value) {
        config.Fail(key, fmt::format("differs from rope_parameters.{}, {}", key, value));
      }
    }
  }
  const double dims = factor * head_dim;
  rotary.dims = static_cast<int32_t>(std::lround(dims));
  if (std::abs(dims - rotary.dims) > 1e-6 || rotary.dims % 2 != 0) {
    config.Fail(
        base + "partial_rotary_factor",
        fmt::format("is {}: with head_dim {} it turns {} channels of a head, which must be an "
                    "even number",
                    factor, head_dim, dims));
  }
  return rotary;
}

void CheckQwenHeads(HfConfig& config, const FullAttention& mixer) {
  if (mixer.heads % mixer.kv_heads == 0) return;
  config.Fail("num_attention_heads", fmt::format("is {}; it must be a multiple of "
                                                 "num_key_value_heads, {}",
                                                 mixer.heads, mixer.kv_heads));
}

namespace {

FullAttention ReadFullAttention(HfConfig& config) {
  FullAttention mixer{.heads = config.Int("num_attention_heads", kHeads),
                      .kv_heads = config.Int("num_key_value_heads", kHeads),
                      .head_dim = config.IntOr("head_dim", kHeadDim, 256),
                      .output_gate = config.BoolOr("attn_output_gate", true),
                      .qk_norm = true};
  mixer.rotary = ReadQwenRotary(config, mixer.head_dim, 0.25);
  CheckQwenHeads(config, mixer);
  return mixer;
}

LinearAttention ReadLinearAttention(HfConfig& config, DeltaLayout layout) {
  LinearAttention mixer{.key_heads = config.IntOr("linear_num_key_heads", kHeads, 16),
                        .value_heads = config.IntOr("linear_num_value_heads", kHeads, 32),
                        .key_dim = config.IntOr("linear_key_head_dim", kHeadDim, 128),
                        .value_dim = config.IntOr("linear_value_head_dim", kHeadDim, 128),
                        .conv_width = config.IntOr("linear_conv_kernel_dim", {2, 16}, 4),
                        .layout = layout,
                        .gate = ops::GateActivation::kSilu};
  if (mixer.value_heads % mixer.key_heads != 0) {
    config.Fail("linear_num_value_heads",
                fmt::format("is {}; it must be a multiple of linear_num_key_heads, {}",
                            mixer.value_heads, mixer.key_heads));
  }
  return mixer;
}

// Whether layer i is a full-attention layer.
std::vector<bool> ReadPattern(HfConfig& config, int32_t layers) {
  const int32_t interval = config.IntOr("full_attention_interval", {1, 4096}, 4);
  const std::vector<std::string> kinds =
      config.Words("layer_types", layers, {"linear_attention", "full_attention"});
  std::vector<bool> full;
  for (int32_t i = 0; i < layers; ++i) {
    full.push_back(kinds.empty() ? (i + 1) % interval == 0
                                 : kinds[static_cast<size_t>(i)] == "full_attention");
  }
  return full;
}

}  // namespace

MoeFfn ReadQwenMoe(HfConfig& config, int32_t layers, MoeFfn moe) {
  const bool shared = moe.shared_width > 0;
  moe.experts = config.IntOr("num_experts", kExperts, 0);
  if (moe.experts == 0) {
    config.Ignore({"num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"});
    if (shared) config.Ignore({"shared_expert_intermediate_size"});
    return moe;
  }
  moe.top_k = config.Int("num_experts_per_tok", {1, moe.experts});
  moe.width = config.IntOr("moe_intermediate_size", kWidth, moe.width);
  if (shared) {
    moe.shared_width =
        config.IntOr("shared_expert_intermediate_size", {0, kWidth.high}, moe.shared_width);
  }
  moe.router.renormalise = config.BoolOr("norm_topk_prob", moe.router.renormalise);
  if (int64_t{layers} * moe.experts > kExpertsInAllMax) {
    config.Fail("num_experts",
                fmt::format("is {} in each of {} layers; at most {} in all are accepted",
                            moe.experts, layers, kExpertsInAllMax));
  }
  return moe;
}

std::vector<Ffn> ReadQwenFfns(HfConfig& config, const MoeFfn& moe, int32_t layers) {
  const int32_t step = config.IntOr("decoder_sparse_step", {1, 4096}, 1);
  const std::vector<int32_t> only = config.Ints("mlp_only_layers", {0, layers - 1});
  std::vector<bool> dense;
  for (int32_t i = 0; i < layers; ++i) {
    dense.push_back(moe.experts == 0 || (i + 1) % step != 0 || std::ranges::count(only, i) > 0);
  }
  DenseFfn mlp;
  if (std::ranges::count(dense, true) > 0) {
    mlp.width = config.Int("intermediate_size", kWidth);
  } else {
    config.Ignore({"intermediate_size"});
  }
  std::vector<Ffn> ffns;
  for (bool is_dense : dense) ffns.push_back(is_dense ? Ffn(mlp) : Ffn(moe));
  return ffns;
}

namespace {

void CheckNeutralKeys(HfConfig& config) {
  config.Word("hidden_act", {"silu"});
  config.Word("output_gate_type", {"silu", "swish"});
  config.MustBeNeutral("attention_bias", "biases of the attention's projections");
  config.MustBeNeutral("layer_scale", "a learnt scale of each branch");
  config.MustBeNeutral("mtp_use_dedicated_embeddings", "a draft head with an embedding of its own");
  config.MustBeNeutral("use_sliding_window", "attention over a window");
}

}  // namespace

ModelSpec ReadQwenHybrid(HfConfig& config, QwenHybridTraits traits) {
  ModelSpec spec;
  spec.hidden = config.Int("hidden_size", {1, 65536});
  spec.vocabulary = config.Int("vocab_size", {1, 1 << 22});
  spec.context_tokens_max = config.IntOr("max_position_embeddings", {1, 1 << 27}, 262144);
  spec.norm = {.eps = static_cast<float>(config.NumberOr("rms_norm_eps", {1e-12, 0.1}, 1e-6)),
               .offset = 1.0f};
  spec.tied_head = config.BoolOr("tie_word_embeddings", false);
  spec.prefixes = std::move(traits.prefixes);
  spec.skip_prefixes = std::move(traits.skip_prefixes);
  const int32_t layers = config.Int("num_hidden_layers", {1, 512});
  const FullAttention full = ReadFullAttention(config);
  const LinearAttention linear = ReadLinearAttention(config, traits.layout);
  const std::vector<bool> pattern = ReadPattern(config, layers);
  const MoeFfn moe =
      ReadQwenMoe(config, layers, {.width = 512, .shared_width = 512, .shared_gate = true});
  const std::vector<Ffn> ffns = ReadQwenFfns(config, moe, layers);
  for (int32_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    spec.layers.push_back({.prefix = fmt::format("@layers.{}.", i),
                           .mixer = pattern[at] ? Mixer(full) : Mixer(linear),
                           .ffn = ffns[at]});
  }
  // Exporters strip the draft head and leave the key, or keep it and lose the key.
  const int32_t named = config.IntOr("num_nextn_predict_layers", {0, 8}, 0);
  const int32_t drafts = config.IntOr("mtp_num_hidden_layers", {0, 8}, named);
  spec.draft = DraftSpec{.prefix = "mtp.", .declared = drafts > 0};
  for (int32_t i = 0; i < std::max(drafts, 1); ++i) {
    spec.draft->layers.push_back({.prefix = fmt::format("mtp.layers.{}.", i),
                                  .mixer = full,
                                  .ffn = moe.experts > 0 ? Ffn(moe) : ffns.back()});
  }
  CheckNeutralKeys(config);
  return spec;
}

json::object QwenHybridExample(ExampleSize size) {
  const bool mid = size == ExampleSize::kMid;
  return {
      {"dtype", "bfloat16"},
      {"vocab_size", mid ? 65536 : 512},
      {"hidden_size", mid ? 2048 : 64},
      {"num_hidden_layers", mid ? 16 : 4},
      {"full_attention_interval", 4},
      {"num_attention_heads", mid ? 16 : 4},
      {"num_key_value_heads", 2},
      {"head_dim", mid ? 256 : 32},
      {"attn_output_gate", true},
      {"hidden_act", "silu"},
      {"rms_norm_eps", 1e-6},
      {"max_position_embeddings", mid ? 32768 : 4096},
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}}},
      {"linear_num_key_heads", mid ? 16 : 2},
      {"linear_num_value_heads", mid ? 32 : 4},
      {"linear_key_head_dim", mid ? 128 : 16},
      {"linear_value_head_dim", mid ? 128 : 16},
      {"linear_conv_kernel_dim", 4},
      {"num_experts", mid ? 64 : 8},
      {"num_experts_per_tok", mid ? 8 : 2},
      {"norm_topk_prob", true},
      {"moe_intermediate_size", mid ? 512 : 32},
      {"shared_expert_intermediate_size", mid ? 512 : 32},
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
}

}  // namespace braid
