// Ling-3: Kimi delta attention with a bounded decay and full-rank gates, latent attention with a
// gate per head. A library's export renames its architecture.
#include <fmt/core.h>

#include "model/families/ling.h"

namespace braid {
namespace {

ops::LinearAttentionRule ReadDecay(HfConfig& config) {
  ops::LinearAttentionRule rule;
  if (config.BoolOr("kda_safe_gate", true)) {
    rule.decay = ops::DecayForm::kBounded;
    rule.lower_bound =
        static_cast<float>(config.NumberOr("kda_lower_bound", {-100.0, -1e-6}, -5.0));
  } else {
    config.MustBeNeutral("kda_lower_bound", "a bounded decay although kda_safe_gate is false");
  }
  return rule;
}

ModelSpec Read(HfConfig& config) {
  ModelSpec spec = ReadLingModel(config);
  const int32_t layers = ReadLingLayerCount(config);
  const int32_t heads = config.Int("num_attention_heads", kHeadsRange);
  // A library's export keeps the rotated width under head_dim and the linear layers' beside it.
  const bool renamed = config.Has("linear_head_dim");
  const int32_t dim = config.Int(renamed ? "linear_head_dim" : "head_dim", {1, 1024});
  if (renamed) config.Ignore({"head_dim"});
  const LinearAttention linear{
      .module = "attention.",
      .key_heads = heads,
      .value_heads = heads,
      .key_dim = dim,
      .value_dim = dim,
      .conv_width =
          IntUnderOr(config, {"short_conv_kernel_size", "linear_conv_kernel_dim"}, {2, 16}, 4),
      .layout = DeltaLayout::kPerTensor,
      .rule = ReadDecay(config),
      .channel_decay = true,
      .gate_lora_rank = config.BoolOr("no_kda_lora", true) ? 0 : dim,
      .gate = ops::GateActivation::kSigmoid};
  IntUnderOr(config, {"num_attention_heads", "linear_num_heads"}, kHeadsRange, heads);
  ReadLingLayers(config,
                 {.head_gate = true,
                  .linear = std::vector<LinearAttention>(static_cast<size_t>(layers), linear)},
                 spec);
  // Keys of its predecessors that this architecture does not read.
  config.Ignore({"group_norm_size", "linear_silu", "use_linear_silu", "partial_rotary_factor",
                 "rope_parameters.partial_rotary_factor", "use_qk_norm", "up_proj_norm",
                 "value_norm", "scale_router_input", "linear_rope", "full_attention_type"});
  return spec;
}

json::object Example(ExampleSize size) {
  json::object config = LingExample(size);
  config["architectures"] = {"BailingMoeV3ForCausalLM"};
  config["no_kda_lora"] = true;
  config["kda_safe_gate"] = true;
  config["kda_lower_bound"] = -5.0;
  config["short_conv_kernel_size"] = 4;
  return config;
}

}  // namespace

Family Ling3Family() {
  return {.name = "ling_3",
          .architectures = {"BailingMoeV3ForCausalLM", "BailingHybridForCausalLM"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
