// Models with latent attention in GGUF files: the two halves of kv_b_proj are tensors of their own,
// that of the keys transposed; the experts of a layer are one tensor a part.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "model/families/families.h"
#include "model/families/gguf.h"

namespace braid {
namespace {

constexpr int64_t kSigmoidGating = 2;  // of expert_gating_func

// What both architectures say in the same words.
json::object LatentConfig(GgufKeys& keys) {
  json::object config = {{"hidden_act", "silu"}};
  keys.Copy("embedding_length", "hidden_size", config);
  keys.Copy("context_length", "max_position_embeddings", config);
  keys.Copy("attention.head_count", "num_attention_heads", config);
  keys.Copy("attention.layer_norm_rms_epsilon", "rms_norm_eps", config);
  keys.Copy("attention.q_lora_rank", "q_lora_rank", config);
  keys.Copy("attention.kv_lora_rank", "kv_lora_rank", config);
  keys.Copy("attention.value_length_mla", "v_head_dim", config);
  keys.Copy("rope.dimension_count", "qk_rope_head_dim", config);
  keys.Copy("feed_forward_length", "intermediate_size", config);
  keys.Copy("leading_dense_block_count", "first_k_dense_replace", config);
  keys.Copy("expert_count", "num_experts", config);
  keys.Copy("expert_used_count", "num_experts_per_tok", config);
  keys.Copy("expert_shared_count", "num_shared_experts", config);
  keys.Copy("expert_feed_forward_length", "moe_intermediate_size", config);
  keys.Copy("expert_weights_scale", "routed_scaling_factor", config);
  keys.Copy("expert_group_count", "n_group", config);
  keys.Copy("expert_group_used_count", "topk_group", config);
  const int64_t rotated = keys.IntOr("rope.dimension_count", 0);
  config["qk_nope_head_dim"] = keys.IntOr("attention.key_length_mla", 0) - rotated;
  const bool sigmoid = keys.IntOr("expert_gating_func", 0) == kSigmoidGating;
  config["scoring_func"] = sigmoid ? "sigmoid" : "softmax";
  const int64_t drafts = std::clamp<int64_t>(keys.IntOr("nextn_predict_layers", 0), 0, 8);
  config["num_hidden_layers"] = std::max<int64_t>(0, keys.IntOr("block_count", 0)) - drafts;
  config["num_nextn_predict_layers"] = drafts;
  config["rope_theta"] = keys.NumberOr("rope.freq_base", 0);
  const GgufTensor* embedding = keys.Tensor("token_embd.weight");
  if (embedding && embedding->shape.size() == 2) config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = keys.Tensor("output.weight") == nullptr;
  // Of the absorbed form, which follow from the others.
  keys.Ignore("attention.key_length");
  keys.Ignore("attention.value_length");
  keys.Ignore("vocab_size");
  return config;
}

json::object Deepseek2Config(GgufKeys& keys) {
  json::object config = LatentConfig(keys);
  keys.Ignore("attention.head_count_kv");
  config["norm_topk_prob"] = keys.Value("expert_weights_norm") == json::value(true);
  const json::value scaling = keys.Value("rope.scaling.type");
  if (scaling.is_null()) return config;
  json::object& rope = config["rope_scaling"].emplace_object();
  rope["type"] = scaling;
  keys.Copy("rope.scaling.factor", "factor", rope);
  keys.Copy("rope.scaling.original_context_length", "original_max_position_embeddings", rope);
  keys.Copy("rope.scaling.yarn_beta_fast", "beta_fast", rope);
  keys.Copy("rope.scaling.yarn_beta_slow", "beta_slow", rope);
  // A tenth of mscale_all_dim; cosines and sines are not scaled, so mscale is the same.
  if (const double tenth = keys.NumberOr("rope.scaling.yarn_log_multiplier", 0); tenth > 0) {
    rope["mscale"] = rope["mscale_all_dim"] = tenth * 10;
  }
  return config;
}

json::object KimiConfig(GgufKeys& keys) {
  json::object config = LatentConfig(keys);
  config["moe_renormalize"] = true;
  config["mla_use_nope"] = true;
  json::object& linear = config["linear_attn_config"].emplace_object();
  keys.Copy("kda.head_dim", "head_dim", linear);
  keys.Copy("ssm.conv_kernel", "short_conv_kernel_size", linear);
  json::array kda, full;
  if (const json::value heads = keys.Value("attention.head_count_kv"); heads.is_array()) {
    for (size_t i = 0; i < heads.get_array().size(); ++i) {
      (heads.get_array()[i] == json::value(0) ? kda : full).push_back(static_cast<int64_t>(i + 1));
    }
  }
  if (!kda.empty()) {
    const GgufTensor* decays = keys.Tensor(fmt::format("blk.{}.ssm_a", kda[0].get_int64() - 1));
    int64_t count = 1;
    for (size_t i = 0; decays && i < decays->shape.size(); ++i) count *= decays->shape[i];
    linear["num_heads"] = count;
  }
  linear["kda_layers"] = std::move(kda);
  linear["full_attn_layers"] = std::move(full);
  return config;
}

// Both architectures: latent attention, experts with sigmoid scores behind some dense layers.
Result<json::object> LatentMetadata(const ModelSpec& spec, const LatentAttention& m) {
  const auto* moe = FirstFfn<MoeFfn>(spec);
  if (moe == nullptr) return NoGgufKeyFor("a model without experts");
  if (moe->shared_width % moe->width != 0) {
    return NoGgufKeyFor("shared experts that are no multiple of the others");
  }
  const auto dense = [](const LayerSpec& layer) {
    return std::holds_alternative<DenseFfn>(layer.ffn);
  };
  const auto leading = std::ranges::find_if_not(spec.layers, dense) - spec.layers.begin();
  if (std::ranges::count_if(spec.layers, dense) != leading) {
    return NoGgufKeyFor("dense layers behind layers of experts");
  }
  json::object keys = CommonGgufKeys(spec, DraftBlocks(spec));
  keys["attention.head_count"] = m.heads;
  if (m.q_lora_rank > 0) keys["attention.q_lora_rank"] = m.q_lora_rank;
  keys["attention.kv_lora_rank"] = m.latent_dim;
  keys["attention.key_length"] = m.latent_dim + m.shared_dim;
  keys["attention.value_length"] = m.latent_dim;
  keys["attention.key_length_mla"] = m.key_dim + m.shared_dim;
  keys["attention.value_length_mla"] = m.value_dim;
  keys["rope.dimension_count"] = m.shared_dim;
  keys["rope.freq_base"] = m.rotary.theta;
  keys["leading_dense_block_count"] = static_cast<int64_t>(leading);
  keys["expert_shared_count"] = moe->shared_width / moe->width;
  keys["expert_weights_scale"] = double{moe->router.scale};
  keys["expert_group_count"] = moe->router.groups;
  keys["expert_group_used_count"] = moe->router.groups_kept;
  keys["expert_gating_func"] = kSigmoidGating;
  return keys;
}

Result<json::object> Deepseek2Metadata(const ModelSpec& spec) {
  const auto& m = std::get<LatentAttention>(spec.layers.front().mixer);
  if (!m.rotary.interleaved) return NoGgufKeyFor("rope_interleave=false");
  ASSIGN_OR_RETURN(json::object keys, LatentMetadata(spec, m));
  const auto* moe = FirstFfn<MoeFfn>(spec);
  keys["attention.head_count_kv"] = 1;
  keys["expert_weights_norm"] = moe->router.renormalise;
  if (const int64_t drafts = DraftBlocks(spec)) keys["nextn_predict_layers"] = drafts;
  if (!m.rotary.yarn) return keys;
  const YarnSpec& yarn = *m.rotary.yarn;
  keys["rope.scaling.type"] = "yarn";
  keys["rope.scaling.factor"] = yarn.factor;
  keys["rope.scaling.original_context_length"] = yarn.original_tokens;
  keys["rope.scaling.yarn_beta_fast"] = yarn.beta_fast;
  keys["rope.scaling.yarn_beta_slow"] = yarn.beta_slow;
  // The scores' factor is (0.1 * mscale_all_dim * ln(factor) + 1)^2; cosines then have none.
  const double factor = m.score_scale * std::sqrt(m.key_dim + m.shared_dim);
  if (std::abs(factor - 1) < 1e-6) return keys;
  if (m.rotary.scale != 1.0f) return NoGgufKeyFor("mscale that differs from mscale_all_dim");
  keys["rope.scaling.yarn_log_multiplier"] = (std::sqrt(factor) - 1) / std::log(yarn.factor);
  return keys;
}

Result<json::object> KimiMetadata(const ModelSpec& spec) {
  const auto* full = FirstMixer<LatentAttention>(spec);
  const auto* linear = FirstMixer<LinearAttention>(spec);
  if (full == nullptr || linear == nullptr) return NoGgufKeyFor("layers of one kind of attention");
  const auto* moe = FirstFfn<MoeFfn>(spec);
  if (moe && !moe->router.renormalise) return NoGgufKeyFor("moe_renormalize=false");
  ASSIGN_OR_RETURN(json::object keys, LatentMetadata(spec, *full));
  keys["rope.freq_base"] = 10000.0;  // without effect
  json::array heads;
  for (const LayerSpec& layer : spec.layers) {
    heads.push_back(std::holds_alternative<LatentAttention>(layer.mixer) ? 1 : 0);
  }
  keys["attention.head_count_kv"] = std::move(heads);
  keys["kda.head_dim"] = linear->key_dim;
  keys["ssm.conv_kernel"] = linear->conv_width;
  return keys;
}

// The tensors of a module under their names here: each is "NAME.weight" on both sides.
void MapWeights(const std::string& to, const std::string& from, GgufNames& names,
                std::initializer_list<std::pair<const char*, const char*>> parts) {
  for (const auto& [name, tensor] : parts) {
    names.Whole(fmt::format("{}{}.weight", to, name), fmt::format("{}{}.weight", from, tensor));
  }
}

void MapLatent(LatentAttention& m, const std::string& to, const std::string& from,
               GgufNames& names) {
  m.split_kv_b = true;
  MapWeights(to + m.module, from, names,
             {{"q_proj", "attn_q"},
              {"q_a_proj", "attn_q_a"},
              {"q_a_layernorm", "attn_q_a_norm"},
              {"q_b_proj", "attn_q_b"},
              {"kv_a_proj_with_mqa", "attn_kv_a_mqa"},
              {"kv_a_layernorm", "attn_kv_a_norm"},
              {"k_b_proj", "attn_k_b"},
              {"v_b_proj", "attn_v_b"},
              {"o_proj", "attn_output"}});
}

void MapKda(const LinearAttention& m, const std::string& to, const std::string& from,
            GgufNames& names) {
  const std::string base = to + m.module;
  MapWeights(base, from, names,
             {{"q_proj", "attn_q"},
              {"k_proj", "attn_k"},
              {"v_proj", "attn_v"},
              {"b_proj", "ssm_beta"},
              {"f_a_proj", "ssm_f_a"},
              {"f_b_proj", "ssm_f_b"},
              {"g_a_proj", "ssm_g_a"},
              {"g_b_proj", "ssm_g_b"},
              {"o_norm", "ssm_norm"},
              {"o_proj", "attn_output"}});
  for (const char* part : {"q", "k", "v"}) {
    const int64_t channels =
        *part == 'v' ? int64_t{m.value_heads} * m.value_dim : int64_t{m.key_heads} * m.key_dim;
    names.Rows(fmt::format("{}{}_conv1d.weight", base, part), {channels, 1, m.conv_width},
               {{fmt::format("{}ssm_conv1d_{}.weight", from, part), 0, channels}});
    names.StoredAs({1, channels, 1, m.conv_width});
  }
  names.Whole(base + "A_log", from + "ssm_a");
  names.LogOfNegative();
  names.StoredAs({1, 1, m.value_heads, 1});
  names.Whole(base + "dt_bias", from + "ssm_dt.bias");
}

void MapMoe(const MoeFfn& moe, int64_t hidden, const std::string& to, const std::string& from,
            GgufNames& names) {
  const std::string base = to + moe.names.module;
  MapExperts(moe, hidden, base, from, names);
  names.Whole(base + moe.names.bias.front(), from + "exp_probs_b.bias");
  MapWeights(base + moe.names.shared, from, names,
             {{"gate_proj", "ffn_gate_shexp"},
              {"up_proj", "ffn_up_shexp"},
              {"down_proj", "ffn_down_shexp"}});
}

void MapLayer(LayerSpec& layer, int64_t hidden, const std::string& to, const std::string& from,
              GgufNames& names) {
  MapWeights(to, from, names,
             {{"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"}});
  if (auto* latent = std::get_if<LatentAttention>(&layer.mixer)) {
    MapLatent(*latent, to, from, names);
  } else if (const auto* linear = std::get_if<LinearAttention>(&layer.mixer)) {
    MapKda(*linear, to, from, names);
  }
  if (const auto* moe = std::get_if<MoeFfn>(&layer.ffn)) {
    MapMoe(*moe, hidden, to, from, names);
  } else {
    MapWeights(to + std::get<DenseFfn>(layer.ffn).modules.front(), from, names,
               {{"gate_proj", "ffn_gate"}, {"up_proj", "ffn_up"}, {"down_proj", "ffn_down"}});
  }
}

void Map(ModelSpec& spec, GgufNames& names) {
  MapWeights("model.", "", names, {{"embed_tokens", "token_embd"}, {"norm", "output_norm"}});
  names.Whole("lm_head.weight", "output.weight");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    MapLayer(spec.layers[i], spec.hidden, fmt::format("model.layers.{}.", i),
             fmt::format("blk.{}.", i), names);
  }
  const auto behind = static_cast<int64_t>(spec.layers.size());
  if (MapDraftHead(spec, behind, names)) {
    LayerSpec& layer = spec.draft->layers.front();
    MapLayer(layer, spec.hidden, layer.prefix, fmt::format("blk.{}.", behind), names);
  }
}

}  // namespace

GgufFamily Deepseek2Gguf() {
  return {.architectures = {{"deepseek2", "DeepseekV3ForCausalLM"}},
          .config = Deepseek2Config,
          .map = Map,
          .metadata = Deepseek2Metadata};
}

GgufFamily KimiLinearGguf() {
  return {.architectures = {{"kimi-linear", "KimiLinearForCausalLM"}},
          .config = KimiConfig,
          .map = Map,
          .metadata = KimiMetadata};
}

}  // namespace braid
