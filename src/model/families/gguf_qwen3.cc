// Qwen3 and Qwen3-MoE in GGUF files. Weights of the chosen experts are always renormalised there.
#include <fmt/core.h>

#include "model/families/families.h"
#include "model/families/gguf.h"

namespace braid {
namespace {

json::object Config(GgufKeys& keys) {
  json::object config = {{"hidden_act", "silu"}, {"norm_topk_prob", true}};
  keys.Copy("embedding_length", "hidden_size", config);
  keys.Copy("block_count", "num_hidden_layers", config);
  keys.Copy("context_length", "max_position_embeddings", config);
  keys.Copy("attention.head_count", "num_attention_heads", config);
  keys.Copy("attention.head_count_kv", "num_key_value_heads", config);
  keys.Copy("attention.key_length", "head_dim", config);
  keys.Copy("attention.layer_norm_rms_epsilon", "rms_norm_eps", config);
  keys.Copy("rope.freq_base", "rope_theta", config);
  keys.Copy("feed_forward_length", "intermediate_size", config);
  keys.Copy("expert_count", "num_experts", config);
  keys.Copy("expert_used_count", "num_experts_per_tok", config);
  keys.Copy("expert_feed_forward_length", "moe_intermediate_size", config);
  keys.Ignore("attention.value_length");
  keys.Ignore("vocab_size");
  const GgufTensor* embedding = keys.Tensor("token_embd.weight");
  if (embedding && embedding->shape.size() == 2) config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = keys.Tensor("output.weight") == nullptr;
  return config;
}

Result<json::object> Metadata(const ModelSpec& spec) {
  const auto& attention = std::get<FullAttention>(spec.layers.front().mixer);
  if (attention.rotary.dims != attention.head_dim) {
    return NoGgufKeyFor("heads of which only a part is rotated");
  }
  if (FirstFfn<MoeFfn>(spec) && FirstFfn<DenseFfn>(spec)) {
    return NoGgufKeyFor("dense layers among layers of experts");
  }
  const auto* moe = FirstFfn<MoeFfn>(spec);
  if (moe && !moe->router.renormalise) return NoGgufKeyFor("norm_topk_prob=false");
  json::object keys = CommonGgufKeys(spec, 0);
  keys["attention.head_count"] = attention.heads;
  keys["attention.head_count_kv"] = attention.kv_heads;
  keys["attention.key_length"] = attention.head_dim;
  keys["attention.value_length"] = attention.head_dim;
  keys["rope.freq_base"] = attention.rotary.theta;
  return keys;
}

void Map(ModelSpec& spec, GgufNames& names) {
  names.Whole("model.embed_tokens.weight", "token_embd.weight");
  names.Whole("model.norm.weight", "output_norm.weight");
  names.Whole("lm_head.weight", "output.weight");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string to = fmt::format("model.layers.{}.", i), from = fmt::format("blk.{}.", i);
    names.Whole(to + "input_layernorm.weight", from + "attn_norm.weight");
    names.Whole(to + "post_attention_layernorm.weight", from + "ffn_norm.weight");
    MapFullAttention(to, from, names);
    if (const auto* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn)) {
      MapExperts(*moe, spec.hidden, to + "mlp.", from, names);
    } else {
      MapDense(to, from, names);
    }
  }
}

}  // namespace

GgufFamily Qwen3Gguf() {
  return {.architectures = {{"qwen3", "Qwen3ForCausalLM"}, {"qwen3moe", "Qwen3MoeForCausalLM"}},
          .config = Config,
          .map = Map,
          .metadata = Metadata};
}

}  // namespace braid
