// Ling-2.5 and 2.6, and Ring: Lightning attention (a constant decay per head and layer, no
// convolution, no update gate), grouped output norm, latent attention.
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <string>

#include "model/families/ling.h"

namespace braid {
namespace {

// Slopes of linear biases for `heads` heads (Press et al. 2022).
std::vector<double> BaseSlopes(int32_t heads) {
  const auto whole = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(heads)));
  std::vector<double> slopes;
  for (int32_t h = 0; h < whole; ++h) slopes.push_back(std::exp2(-8.0 * (h + 1) / whole));
  for (int32_t h = 0; h < heads - whole; ++h) {
    slopes.push_back(std::exp2(-8.0 * (2 * h + 1) / (2 * whole)));
  }
  return slopes;
}

// The log decay of every head of layer `layer` of `layers`. Checkpoints do not say which of two
// conventions they were trained with; serving engines agree on the first.
std::vector<float> LogDecays(int32_t heads, int32_t layer, int32_t layers, bool first_convention) {
  const double at = first_convention ? layer : layer - 1;
  const double factor = 1.0 - (layers > 1 ? at / (layers - 1) : 0.0) + 1e-5;
  std::vector<float> decays;
  for (double slope : BaseSlopes(heads)) decays.push_back(static_cast<float>(-slope * factor));
  return decays;
}

RotarySpec ReadLinearRotary(HfConfig& config, int32_t head_dim) {
  const char* const key = "partial_rotary_factor";
  const std::string nested_key = std::string("rope_parameters.") + key;
  const double nested = config.NumberOr(nested_key, {0.0, 1.0}, 0.5);
  const double factor = config.NumberOr(key, {0.0, 1.0}, nested);
  if (config.Has(nested_key) && factor != nested) {
    config.Fail(key, fmt::format("is {} and differs from {}, {}", factor, nested_key, nested));
  }
  const auto dims = static_cast<int32_t>(factor * head_dim);
  if (!config.BoolOr("linear_rope", true)) return {};
  return ReadRotary(config, dims).rotary;
}

ModelSpec Read(HfConfig& config) {
  ModelSpec spec = ReadLingModel(config);
  const int32_t layers = ReadLingLayerCount(config);
  const int32_t heads = config.Int("num_attention_heads", kHeadsRange);
  const int32_t dim = config.IntOr("head_dim", {1, 1024}, 128);
  LinearAttention linear{.module = "attention.",
                         .key_heads = heads,
                         .value_heads = heads,
                         .key_dim = dim,
                         .value_dim = dim,
                         .conv_width = 1,
                         .layout = DeltaLayout::kPacked,
                         .rule = {.decay = ops::DecayForm::kConstant, .add = true},
                         .qk_norm = true,
                         .rotary = ReadLinearRotary(config, dim),
                         .norm_groups = config.Int("group_norm_size", {1, int64_t{heads} * dim}),
                         .gate = ops::GateActivation::kSigmoid};
  if (heads * dim % linear.norm_groups != 0) {
    config.Fail("group_norm_size", fmt::format("is {}; it must divide the {} channels of {} heads",
                                               linear.norm_groups, heads * dim, heads));
  }
  const bool first_convention =
      config.Word("lightning_slope_mode", {"production", "hf"}) == "production";
  LingTraits traits{.full_tail = true};
  for (int32_t i = 0; i < layers; ++i) {
    linear.constant_decay = LogDecays(heads, i, layers, first_convention);
    traits.linear.push_back(linear);
  }
  ReadLingLayers(config, traits, spec);
  if (!config.BoolOr("use_qk_norm", true)) {
    config.Fail("use_qk_norm", "is false; only true is supported");
  }
  config.Word("full_attention_type", {"mla"});
  config.MustBeNeutral("linear_silu", "an activation of q, k and v");
  config.MustBeNeutral("use_linear_silu", "an activation of q, k and v");
  config.Ignore({"rotary_dim"});
  return spec;
}

json::object Example(ExampleSize size) {
  json::object config = LingExample(size);
  config["architectures"] = {"BailingMoeV2_5ForCausalLM"};
  config["group_norm_size"] = 2;
  config["partial_rotary_factor"] = 0.5;
  config["use_qk_norm"] = true;
  config["linear_rope"] = true;
  config["full_attention_type"] = "mla";
  return config;
}

}  // namespace

Family Ling2Family() {
  return {.name = "ling_2",
          .architectures = {"BailingMoeV2_5ForCausalLM"},
          .read = Read,
          .example = Example};
}

}  // namespace braid
