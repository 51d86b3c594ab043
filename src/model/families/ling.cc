// Config keys of the Ling families, and what follows from them for both. Problems are noted in the
// config and reported together; limits of activations and layer kinds are per layer.
#include "model/families/ling.h"

#include <fmt/core.h>

#include <algorithm>

namespace braid {
namespace {

// Whether layer i is a full-attention layer: the last of every group.
std::vector<bool> ReadPattern(HfConfig& config, int32_t layers, bool full_tail) {
  const int32_t size = config.IntOr("layer_group_size", {1, 4096}, 0);
  std::vector<std::string> kinds =
      config.Words("layer_types", layers, {"linear_attention", "full_attention"});
  if (kinds.empty()) {
    kinds = config.Words("layers_block_type", layers,
                         {"linear_attention", "attention", "full_attention"});
  }
  if (kinds.empty() && size == 0) {
    config.Fail("layer_group_size", "is missing; it must be an integer from 1 to 4096");
    return std::vector<bool>(static_cast<size_t>(layers), true);
  }
  std::vector<bool> full;
  for (int32_t i = 0; i < layers; ++i) {
    const bool tail = full_tail && size > 0 && i >= layers / size * size;
    full.push_back(kinds.empty() ? (i + 1) % size == 0 || tail
                                 : kinds[static_cast<size_t>(i)] != "linear_attention");
  }
  return full;
}

// Limits of the activation per layer, behind them the draft head's; none where the list has none.
std::vector<double> ReadLimits(HfConfig& config, const char* key, size_t layers) {
  std::vector<double> limits = config.Numbers(key, static_cast<int64_t>(layers), {0.0, 1e6});
  limits.resize(layers + 1);
  return limits;
}

// Of every layer and, last, of the draft head's.
std::vector<Ffn> ReadFfns(HfConfig& config, const MoeFfn& moe, int32_t layers) {
  const std::vector<bool> is_dense = ReadDenseLayers(config, layers);
  const auto count = static_cast<size_t>(layers);
  const std::vector<double> limits = ReadLimits(config, "expert_swiglu_limit_list", count);
  const std::vector<double> shared = ReadLimits(config, "share_expert_swiglu_limit_list", count);
  DenseFfn dense;
  if (std::ranges::count(is_dense, true) > 0) {
    dense.width = config.Int("intermediate_size", kDimRange);
  } else {
    config.Ignore({"intermediate_size"});
  }
  std::vector<Ffn> ffns;
  for (size_t i = 0; i <= count; ++i) {
    MoeFfn sparse = moe;
    sparse.limit = static_cast<float>(limits[i]);
    sparse.shared_limit = static_cast<float>(shared[i]);
    const bool only_dense = i < count && is_dense[i];
    if (only_dense && shared[i] > 0) {
      config.Fail("share_expert_swiglu_limit_list",
                  fmt::format("limits layer {}, which has no shared expert", i));
    }
    ffns.push_back(only_dense ? Ffn(dense) : Ffn(sparse));
  }
  return ffns;
}

}  // namespace

ModelSpec ReadLingModel(HfConfig& config) {
  ModelSpec spec = ReadLatentModel(config);
  spec.embedding = "@word_embeddings";
  return spec;
}

int32_t ReadLingLayerCount(HfConfig& config) { return config.Int("num_hidden_layers", {1, 512}); }

void ReadLingLayers(HfConfig& config, const LingTraits& traits, ModelSpec& spec) {
  const auto layers = static_cast<int32_t>(traits.linear.size());
  LatentAttention latent = ReadLatentAttention(config, "attention.", true);
  latent.out_names = {"dense", "o_proj"};
  latent.head_gate = traits.head_gate;
  const MoeFfn moe = ReadSigmoidMoe(
      config, layers,
      {.shared = "shared_experts.", .bias = {"gate.expert_bias", "gate.e_score_correction_bias"}});
  const std::vector<bool> full = ReadPattern(config, layers, traits.full_tail);
  const std::vector<Ffn> ffns = ReadFfns(config, moe, layers);
  for (size_t i = 0; i < full.size(); ++i) {
    spec.layers.push_back({.prefix = fmt::format("@layers.{}.", i),
                           .mixer = full[i] ? Mixer(latent) : Mixer(traits.linear[i]),
                           .ffn = ffns[i]});
  }
  config.MustBeNeutral("use_mla_nope", "full attention without positions");
  config.MustBeNeutral("mtp_use_kda", "a draft head with linear attention");
  const int32_t drafts =
      IntUnderOr(config, {"num_nextn_predict_layers", "num_mtp_layers"}, {0, 1}, 0);
  const std::string prefix = fmt::format("model.layers.{}.", layers);
  spec.draft = DraftSpec{.prefix = prefix,
                         .declared = drafts > 0,
                         .layers = {{.prefix = prefix, .mixer = latent, .ffn = ffns.back()}},
                         .embedding_norm = "enorm",
                         .hidden_norm = "hnorm",
                         .projection = "eh_proj",
                         .final_norm = "final_layernorm"};
}

json::object LingExample(ExampleSize size) {
  const bool mid = size == ExampleSize::kMid;
  return {
      {"model_type", "bailing_hybrid"},
      {"dtype", "bfloat16"},
      {"vocab_size", mid ? 65536 : 512},
      {"hidden_size", mid ? 2048 : 64},
      {"num_hidden_layers", mid ? 12 : 4},
      {"layer_group_size", 4},
      {"num_attention_heads", mid ? 16 : 4},
      {"head_dim", mid ? 128 : 16},
      {"q_lora_rank", mid ? 768 : 24},
      {"kv_lora_rank", mid ? 512 : 32},
      {"qk_nope_head_dim", mid ? 128 : 16},
      {"qk_rope_head_dim", mid ? 64 : 8},
      {"v_head_dim", mid ? 128 : 16},
      {"rope_interleave", true},
      {"rope_theta", 6000000.0},
      {"intermediate_size", mid ? 6144 : 160},
      {"first_k_dense_replace", 1},
      {"num_experts", mid ? 64 : 8},
      {"num_experts_per_tok", mid ? 8 : 2},
      {"num_shared_experts", 1},
      {"moe_intermediate_size", mid ? 512 : 32},
      {"n_group", mid ? 8 : 4},
      {"topk_group", mid ? 4 : 2},
      {"score_function", "sigmoid"},
      {"moe_router_enable_expert_bias", true},
      {"norm_topk_prob", true},
      {"routed_scaling_factor", 2.5},
      {"rms_norm_eps", 1e-6},
      {"hidden_act", "silu"},
      {"max_position_embeddings", mid ? 32768 : 4096},
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
}

}  // namespace braid
