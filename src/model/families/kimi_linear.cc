// Kimi-Linear: Kimi delta attention (a decay per channel, gates through a low rank), latent
// attention without positions, sigmoid router with a bias. Layer lists count
// from one.
#include <fmt/core.h>

#include <algorithm>

#include "model/families/latent_moe.h"

namespace braid {
namespace {

// Whether layer i is a full-attention layer.
std::vector<bool> ReadPattern(HfConfig& config, int32_t layers) {
  std::vector<bool> full;
  const auto lists = [&](const char* key) {
    return config.Ints(std::string("linear_attn_config.") + key, {1, layers});
  };
  const std::vector<int32_t> full_layers = lists("full_attn_layers"), linear = lists("kda_layers");
  const std::vector<std::string> kinds =
      config.Words("layer_types", layers, {"linear_attention", "full_attention"});
  if (full_layers.empty() && linear.empty() && kinds.empty()) {
    config.Fail("linear_attn_config.full_attn_layers",
                "is missing; it must list the full-attention layers, counted from 1");
  }
  for (int32_t i = 0; i < layers; ++i) {
    const bool listed = std::ranges::count(full_layers, i + 1) > 0;
    if (kinds.empty() && listed == (std::ranges::count(linear, i + 1) > 0)) {
      config.Fail("linear_attn_config",
                  fmt::format("has layer {} in both lists or in none of full_attn_layers and "
                              "kda_layers",
                              i + 1));
      return std::vector<bool>(static_cast<size_t>(layers));
    }
    full.push_back(kinds.empty() ? listed : kinds[static_cast<size_t>(i)] == "full_attention");
    if (!kinds.empty() && !full_layers.empty() && listed != full.back()) {
      config.Fail("layer_types", "differs from linear_attn_config.full_attn_layers");
    }
  }
  return full;
}

LinearAttention ReadDeltaAttention(HfConfig& config) {
  const int32_t heads =
      IntUnder(config, {"linear_attn_config.num_heads", "linear_num_heads"}, kHeadsRange);
  const int32_t dim =
      IntUnder(config, {"linear_attn_config.head_dim", "linear_head_dim"}, {1, 1024});
  return {.module = "self_attn.",
          .key_heads = heads,
          .value_heads = heads,
          .key_dim = dim,
          .value_dim = dim,
          .conv_width = IntUnderOr(
              config, {"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"},
              {2, 16}, 4),
          .layout = DeltaLayout::kPerTensor,
          .channel_decay = true,
          .gate_lora_rank = dim,
          .gate = ops::GateActivation::kSigmoid};
}

ModelSpec Read(HfConfig& config) {
  ModelSpec spec = ReadLatentModel(config);
  const int32_t layers = config.Int("num_hidden_layers", {1, 512});
  LatentAttention latent = ReadLatentAttention(config, "self_attn.", false);
  latent.out_names = {"o_proj"};
  const LinearAttention linear = ReadDeltaAttention(config);
  const MoeFfn moe = ReadSigmoidMoe(config, layers,
                                    {.module = "block_sparse_moe.",
                                     .gate = "w1",
                                     .up = "w3",
                                     .down = "w2",
                                     .shared = "shared_experts.",
                                     .bias = {"gate.e_score_correction_bias"}});
  // A library's export calls the dense layers' tensors like the sparse ones'.
  const DenseFfn dense{.modules = {"mlp.", "block_sparse_moe."},
                       .width = config.Int("intermediate_size", kDimRange)};
  const std::vector<bool> full = ReadPattern(config, layers);
  const std::vector<bool> is_dense = ReadDenseLayers(config, layers);
  for (size_t i = 0; i < full.size(); ++i) {
    spec.layers.push_back({.prefix = fmt::format("@layers.{}.", i),
                           .mixer = full[i] ? Mixer(latent) : Mixer(linear),
                           .ffn = is_dense[i] ? Ffn(dense) : Ffn(moe)});
  }
  if (!config.BoolOr("mla_use_nope", true)) {
    config.Fail("mla_use_nope", "is false; full attention with positions is not supported here");
  }
  // A relative of the same name has these.
  config.MustBeNeutral("attn_res_block_size", "attention over the residuals of blocks");
  config.MustBeNeutral("mla_use_output_gate", "a gate on full attention");
  config.MustBeNeutral("routed_expert_hidden_size", "experts in a latent space");
  config.MustBeNeutral("num_nextn_predict_layers", "a draft head");
  config.Ignore({"head_dim", "rope_theta", "rope_scaling", "rope_parameters"});  // no positions
  return spec;
}

json::object Example(ExampleSize size) {
  const bool mid = size == ExampleSize::kMid;
  return {
      {"architectures", {"KimiLinearForCausalLM"}},
      {"model_type", "kimi_linear"},
      {"dtype", "bfloat16"},
      {"vocab_size", mid ? 65536 : 512},
      {"hidden_size", mid ? 2048 : 64},
      {"num_hidden_layers", mid ? 12 : 4},
      {"num_attention_heads", mid ? 16 : 4},
      {"kv_lora_rank", mid ? 512 : 32},
      {"qk_nope_head_dim", mid ? 128 : 16},
      {"qk_rope_head_dim", mid ? 64 : 8},
      {"v_head_dim", mid ? 128 : 16},
      {"mla_use_nope", true},
      {"linear_attn_config",
       {{"num_heads", mid ? 16 : 4},
        {"head_dim", mid ? 128 : 16},
        {"short_conv_kernel_size", 4},
        {"kda_layers", mid ? json::array{1, 2, 3, 5, 6, 7, 9, 10, 11} : json::array{1, 2, 3}},
        {"full_attn_layers", mid ? json::array{4, 8, 12} : json::array{4}}}},
      {"intermediate_size", mid ? 6144 : 160},
      {"first_k_dense_replace", 1},
      {"num_experts", mid ? 64 : 8},
      {"num_experts_per_token", mid ? 8 : 2},
      {"num_shared_experts", 1},
      {"moe_intermediate_size", mid ? 512 : 32},
      {"moe_router_activation_func", "sigmoid"},
      {"moe_renormalize", true},
      {"routed_scaling_factor", 2.446},
      {"num_expert_group", 1},
      {"topk_group", 1},
      {"rms_norm_eps", 1e-5},
      {"hidden_act", "silu"},
      {"model_max_length", mid ? 32768 : 4096},
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
}

}  // namespace

Family KimiLinearFamily() {
  return {.name = "kimi_linear",
          .architectures = {"KimiLinearForCausalLM"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
