// DeepSeek-V3 and R1: latent attention with YaRN in every layer, dense first layers, sigmoid router
// with groups. The draft head is the layer behind the last one.
#include <fmt/core.h>

#include "model/families/latent_moe.h"

namespace braid {
namespace {

ModelSpec Read(HfConfig& config) {
  ModelSpec spec = ReadLatentModel(config);
  const int32_t layers = config.Int("num_hidden_layers", {1, 512});
  LatentAttention latent = ReadLatentAttention(config, "self_attn.", true);
  latent.out_names = {"o_proj"};
  const MoeFfn moe = ReadSigmoidMoe(
      config, layers,
      {.shared = "shared_experts.", .bias = {"gate.e_score_correction_bias"}});
  const DenseFfn dense{.width = config.Int("intermediate_size", kDimRange)};
  const std::vector<bool> is_dense = ReadDenseLayers(config, layers);
  for (size_t i = 0; i < is_dense.size(); ++i) {
    spec.layers.push_back({.prefix = fmt::format("@layers.{}.", i),
                           .mixer = latent,
                           .ffn = is_dense[i] ? Ffn(dense) : Ffn(moe)});
  }
  config.Ignore({"head_dim"});
  const int32_t drafts = config.IntOr("num_nextn_predict_layers", {0, 1}, 0);
  const std::string prefix = fmt::format("model.layers.{}.", layers);
  spec.draft = DraftSpec{.prefix = prefix,
                         .declared = drafts > 0,
                         .layers = {{.prefix = prefix, .mixer = latent, .ffn = moe}},
                         .embedding_norm = "enorm",
                         .hidden_norm = "hnorm",
                         .projection = "eh_proj",
                         .final_norm = "shared_head.norm"};
  // Copies of the embedding and of the head.
  spec.skip_prefixes = {prefix + "embed_tokens.", prefix + "shared_head.head."};
  return spec;
}

json::object Example(ExampleSize size) {
  const bool mid = size == ExampleSize::kMid;
  return {
      {"architectures", {"DeepseekV3ForCausalLM"}},
      {"model_type", "deepseek_v3"},
      {"dtype", "bfloat16"},
      {"vocab_size", mid ? 65536 : 512},
      {"hidden_size", mid ? 2048 : 64},
      {"num_hidden_layers", mid ? 12 : 3},
      {"num_attention_heads", mid ? 16 : 4},
      {"q_lora_rank", mid ? 768 : 24},
      {"kv_lora_rank", mid ? 512 : 32},
      {"qk_nope_head_dim", mid ? 128 : 16},
      {"qk_rope_head_dim", mid ? 64 : 8},
      {"v_head_dim", mid ? 128 : 16},
      {"intermediate_size", mid ? 6144 : 160},
      {"first_k_dense_replace", 1},
      {"moe_layer_freq", 1},
      {"n_routed_experts", mid ? 64 : 8},
      {"num_experts_per_tok", mid ? 8 : 2},
      {"n_shared_experts", 1},
      {"moe_intermediate_size", mid ? 512 : 32},
      {"n_group", mid ? 8 : 4},
      {"topk_group", mid ? 4 : 2},
      {"topk_method", "noaux_tc"},
      {"scoring_func", "sigmoid"},
      {"norm_topk_prob", true},
      {"routed_scaling_factor", 2.5},
      {"rope_theta", 10000.0},
      {"rope_scaling",
       {{"type", "yarn"},
        {"factor", 40},
        {"original_max_position_embeddings", 4096},
        {"beta_fast", 32},
        {"beta_slow", 1},
        {"mscale", 1.0},
        {"mscale_all_dim", 1.0}}},
      {"rms_norm_eps", 1e-6},
      {"hidden_act", "silu"},
      {"max_position_embeddings", mid ? 32768 : 4096},
      {"tie_word_embeddings", false},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
  };
}

}  // namespace

Family DeepseekV3Family() {
  return {.name = "deepseek_v3",
          .architectures = {"DeepseekV3ForCausalLM"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
