// Config keys of latent attention (MLA), of sigmoid routers with groups and bias, and of YaRN.
#include "model/families/latent_moe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr int64_t kExpertsInAllMax = 65536;  // every expert is three names

double Magnitude(double factor, double weight) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1.0;
}

void ReadYarn(HfConfig& config, const std::string& section, RotaryReading& reading) {
  YarnSpec yarn;
  yarn.factor = config.Number(section + "factor", {1.0, 1e6});
  yarn.original_tokens =
      config.Int(section + "original_max_position_embeddings", {1, int64_t{1} << 27});
  yarn.beta_fast = config.NumberOr(section + "beta_fast", {1e-3, 1e6}, 32.0);
  yarn.beta_slow = config.NumberOr(section + "beta_slow", {1e-3, 1e6}, 1.0);
  const double mscale = config.NumberOr(section + "mscale", {0.0, 100.0}, 0.0);
  const double all_dim = config.NumberOr(section + "mscale_all_dim", {0.0, 100.0}, 0.0);
  const double given = config.NumberOr(section + "attention_factor", {0.0, 100.0}, 0.0);
  if (!config.BoolOr(section + "truncate", true)) {
    config.Fail(section + "truncate", "is false; only true is supported");
  }
  double scale = Magnitude(yarn.factor, 1.0);
  if (mscale > 0 && all_dim > 0) {
    scale = Magnitude(yarn.factor, mscale) / Magnitude(yarn.factor, all_dim);
  }
  reading.rotary.scale = static_cast<float>(given > 0 ? given : scale);
  if (all_dim > 0) {
    reading.score_factor = static_cast<float>(std::pow(Magnitude(yarn.factor, all_dim), 2.0));
  }
  reading.rotary.yarn = yarn;
}

void CheckSigmoid(HfConfig& config) {
  for (const char* key : {"scoring_func", "score_function", "moe_router_activation_func"}) {
    config.Word(key, {"sigmoid"});
  }
  config.Word("topk_method", {"noaux_tc"});
  config.Word("router_dtype", {"fp32", "float32"});
  for (const char* key : {"use_grouped_topk", "moe_router_enable_expert_bias"}) {
    if (!config.BoolOr(key, true)) config.Fail(key, "is false; only true is supported");
  }
}

void CheckGroups(HfConfig& config, const MoeFfn& moe) {
  const int32_t groups = moe.router.groups, size = moe.experts / groups;
  if (moe.experts % groups != 0 || (groups > 1 && size < 2)) {
    config.Fail("n_group", fmt::format("is {}; the {} experts must fall into groups of equal size, "
                                       "two or more each",
                                       groups, moe.experts));
  }
  if (moe.router.groups_kept * size < moe.top_k) {
    config.Fail("topk_group",
                fmt::format("is {}: {} groups of {} experts do not hold the {} of a token",
                            moe.router.groups_kept, moe.router.groups_kept, size, moe.top_k));
  }
}

}  // namespace

int32_t IntUnderOr(HfConfig& config, std::initializer_list<std::string_view> keys, IntRange range,
                   int32_t otherwise) {
  std::string_view first;
  int32_t value = otherwise;
  for (std::string_view key : keys) {
    if (!config.Has(key)) continue;
    const int32_t found = config.IntOr(key, range, otherwise);
    if (!first.empty() && found != value) {
      config.Fail(key,
                  fmt::format("is {} and \"{}\", another name of it, is {}", found, first, value));
    }
    if (first.empty()) first = key;
    value = found;
  }
  return value;
}

int32_t IntUnder(HfConfig& config, std::initializer_list<std::string_view> keys, IntRange range) {
  const bool there = std::ranges::any_of(keys, [&](auto key) { return config.Has(key); });
  if (!there) return config.Int(*keys.begin(), range);
  return IntUnderOr(config, keys, range, static_cast<int32_t>(range.low));
}

ModelSpec ReadLatentModel(HfConfig& config) {
  ModelSpec spec;
  spec.hidden = config.Int("hidden_size", kDimRange);
  spec.vocabulary = config.Int("vocab_size", {1, 1 << 22});
  spec.context_tokens_max =
      IntUnder(config, {"max_position_embeddings", "model_max_length"}, {1, 1 << 27});
  spec.norm = {.eps = static_cast<float>(config.NumberOr("rms_norm_eps", {1e-12, 0.1}, 1e-6))};
  spec.tied_head = config.BoolOr("tie_word_embeddings", false);
  spec.prefixes = {"model."};
  config.Word("hidden_act", {"silu"});
  config.MustBeNeutral("attention_bias", "biases of the attention's projections");
  config.MustBeNeutral("use_bias", "biases of projections");
  config.MustBeNeutral("use_qkv_bias", "biases of the attention's projections");
  config.MustBeNeutral("use_sliding_window", "attention over a window");
  // Sizes that follow from others, and how the model was trained.
  config.Ignore({"num_key_value_heads", "qk_head_dim", "pretraining_tp", "ep_size", "seq_aux",
                 "aux_loss_alpha", "mtp_loss_scaling_factor", "initializer_range"});
  return spec;
}

RotaryReading ReadRotary(HfConfig& config, int32_t dims) {
  RotaryReading reading;
  const bool nested = config.Has("rope_parameters");
  const std::string section = nested ? "rope_parameters." : "rope_scaling.";
  RotarySpec& rotary = reading.rotary;
  rotary.dims = dims;
  rotary.theta = config.Number(nested ? "rope_parameters.rope_theta" : "rope_theta", {1.0, 1e12});
  if (nested && config.NumberOr("rope_theta", {1.0, 1e12}, rotary.theta) != rotary.theta) {
    config.Fail("rope_theta",
                fmt::format("differs from rope_parameters.rope_theta, {}", rotary.theta));
  }
  const std::string kind = config.Word(section + "rope_type", {"default", "yarn"});
  const std::string old_kind = config.Word(section + "type", {"default", "yarn"});
  if (kind == "yarn" || old_kind == "yarn") ReadYarn(config, section, reading);
  if (dims % 2 != 0) {
    config.Fail("qk_rope_head_dim", fmt::format("turns {} channels, which must be even", dims));
  }
  return reading;
}

LatentAttention ReadLatentAttention(HfConfig& config, const std::string& module, bool rotated) {
  LatentAttention mixer{.module = module,
                        .heads = config.Int("num_attention_heads", kHeadsRange),
                        .q_lora_rank = config.IntOr("q_lora_rank", kDimRange, 0),
                        .latent_dim = config.Int("kv_lora_rank", kDimRange),
                        .key_dim = config.Int("qk_nope_head_dim", kDimRange),
                        .shared_dim = config.Int("qk_rope_head_dim", kDimRange),
                        .value_dim = config.Int("v_head_dim", kDimRange)};
  double scale = 1.0 / std::sqrt(static_cast<double>(mixer.key_dim) + mixer.shared_dim);
  if (rotated) {
    const RotaryReading reading = ReadRotary(config, mixer.shared_dim);
    mixer.rotary = reading.rotary;
    mixer.rotary.interleaved = config.BoolOr("rope_interleave", true);
    scale *= reading.score_factor;
  }
  mixer.score_scale = static_cast<float>(scale);
  return mixer;
}

MoeFfn ReadSigmoidMoe(HfConfig& config, int32_t layers, MoeNames names) {
  MoeFfn moe{.names = std::move(names)};
  moe.experts =
      IntUnder(config, {"num_experts", "n_routed_experts", "num_local_experts"}, {1, 4096});
  moe.top_k = IntUnder(config, {"num_experts_per_tok", "num_experts_per_token"}, {1, moe.experts});
  moe.width = config.Int("moe_intermediate_size", kDimRange);
  const int32_t shared = IntUnderOr(config, {"n_shared_experts", "num_shared_experts"}, {0, 64}, 1);
  moe.shared_width =
      shared * config.IntOr("moe_shared_expert_intermediate_size", kDimRange, moe.width);
  moe.router.score = ops::RouterScore::kSigmoid;
  moe.router.renormalise =
      config.BoolOr("norm_topk_prob", true) && config.BoolOr("moe_renormalize", true);
  moe.router.scale = static_cast<float>(config.Number("routed_scaling_factor", {1e-6, 1e6}));
  moe.router.groups = IntUnderOr(config, {"n_group", "num_expert_group"}, {1, moe.experts}, 1);
  moe.router.groups_kept = config.IntOr("topk_group", {1, moe.router.groups}, moe.router.groups);
  CheckSigmoid(config);
  CheckGroups(config, moe);
  if (int64_t{layers} * moe.experts > kExpertsInAllMax) {
    config.Fail("num_experts",
                fmt::format("is {} in each of {} layers; at most {} in all are accepted",
                            moe.experts, layers, kExpertsInAllMax));
  }
  return moe;
}

std::vector<bool> ReadDenseLayers(HfConfig& config, int32_t layers) {
  const int32_t first = config.IntOr("first_k_dense_replace", {0, layers}, 0);
  const int32_t step = config.IntOr("moe_layer_freq", {1, 4096}, 1);
  const std::vector<std::string> kinds =
      config.Words("mlp_layer_types", layers, {"dense", "sparse"});
  std::vector<bool> dense;
  for (int32_t i = 0; i < layers; ++i) {
    dense.push_back(kinds.empty() ? i < first || i % step != 0
                                  : kinds[static_cast<size_t>(i)] == "dense");
  }
  return dense;
}

}  // namespace braid
