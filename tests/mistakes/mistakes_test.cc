// Mistakes that implementations of these families make and that still answer fluently. Each is
// planted into the spec of a golden set, where a model is data: the loader must refuse it, or the
// golden's log-probabilities must be missed by far more than the tolerance. One line for each.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/families/golden_model.h"

namespace braid {
namespace {

// Ten times what the golden sets allow.
constexpr double kMissedBy = 1e-3;

struct Mistake {
  const char* what;
  const char* set;
  std::function<void(ModelSpec&)> plant;
};

template <class Kind>
std::function<void(ModelSpec&)> InMixers(std::function<void(Kind&)> change) {
  return [change](ModelSpec& spec) {
    for (LayerSpec& layer : spec.layers) {
      if (auto* mixer = std::get_if<Kind>(&layer.mixer)) change(*mixer);
    }
  };
}

std::function<void(ModelSpec&)> InMoe(std::function<void(MoeFfn&)> change) {
  return [change](ModelSpec& spec) {
    for (LayerSpec& layer : spec.layers) {
      if (auto* moe = std::get_if<MoeFfn>(&layer.ffn)) change(*moe);
    }
  };
}

// The decay of layer i by the position among linear layers only, as if others did not count.
void DecayByLinearLayers(ModelSpec& spec) {
  std::vector<const LayerSpec*> linear;
  for (const LayerSpec& layer : spec.layers) {
    if (std::holds_alternative<LinearAttention>(layer.mixer)) linear.push_back(&layer);
  }
  const double all = static_cast<double>(spec.layers.size()) - 1;
  const double some = static_cast<double>(linear.size()) - 1;
  double at = 0, layer_at = 0;
  for (LayerSpec& layer : spec.layers) {
    if (auto* mixer = std::get_if<LinearAttention>(&layer.mixer)) {
      const double right = 1 - layer_at / all + 1e-5, wrong = 1 - at++ / some + 1e-5;
      for (float& decay : mixer->constant_decay) {
        decay = static_cast<float>(static_cast<double>(decay) / right * wrong);
      }
    }
    ++layer_at;
  }
}

using Full = FullAttention;
using Latent = LatentAttention;
using Linear = LinearAttention;

std::vector<Mistake> QwenMistakes() {
  return {
      {"norms multiply by w instead of 1 + w", "qwen3_5_a",
       [](ModelSpec& s) { s.norm.offset = 0; }},
      {"all channels of a head are rotated", "qwen3_5_a",
       InMixers<Full>([](Full& m) { m.rotary.dims = m.head_dim; })},
      {"half of the channels are rotated that should be", "qwen3_5_a",
       InMixers<Full>([](Full& m) { m.rotary.dims /= 2; })},
      {"theta of rotation is 10000", "qwen3_5_a",
       InMixers<Full>([](Full& m) { m.rotary.theta = 1e4; })},
      {"no rotation at all", "qwen3_5_a", InMixers<Full>([](Full& m) { m.rotary.dims = 0; })},
      {"q and k are not normalised", "qwen3_5_a",
       InMixers<Full>([](Full& m) { m.qk_norm = false; })},
      {"attention without its output gate", "qwen3_5_a",
       InMixers<Full>([](Full& m) { m.output_gate = false; })},
      {"sigmoid instead of SiLU in the gated norm", "qwen3_5_a",
       InMixers<Linear>([](Linear& m) { m.gate = ops::GateActivation::kSigmoid; })},
      {"fused rows read as separate components", "qwen3_next_a",
       InMixers<Linear>([](Linear& m) { m.layout = DeltaLayout::kSeparate; })},
      {"separate components read as fused rows", "qwen3_5_a",
       InMixers<Linear>([](Linear& m) { m.layout = DeltaLayout::kFused; })},
      {"router weights are not renormalised", "qwen3_5_moe_a",
       InMoe([](MoeFfn& m) { m.router.renormalise = false; })},
      {"sigmoid instead of softmax in the router", "qwen3_5_moe_a",
       InMoe([](MoeFfn& m) { m.router.score = ops::RouterScore::kSigmoid; })},
      {"the shared expert without its gate", "qwen3_5_moe_a",
       InMoe([](MoeFfn& m) { m.shared_gate = false; })},
      {"no shared expert", "qwen3_5_moe_a", InMoe([](MoeFfn& m) { m.shared_width = 0; })},
      {"one expert fewer a token", "qwen3_5_moe_a", InMoe([](MoeFfn& m) { --m.top_k; })},
      {"heads of hidden / heads channels", "qwen3_5_a",
       [](ModelSpec& s) {
         for (LayerSpec& layer : s.layers) {
           if (auto* m = std::get_if<Full>(&layer.mixer)) m->head_dim = s.hidden / m->heads;
         }
       }},
      {"an untied head", "qwen3_5_b", [](ModelSpec& s) { s.tied_head = false; }},
      {"gate and up of experts exchanged", "qwen3_5_moe_b",
       InMoe([](MoeFfn& m) { std::swap(m.names.gate, m.names.up); })},
      {"epsilon of norms 1e-3 instead of 1e-5", "qwen3_5_moe_c",
       [](ModelSpec& s) { s.norm.eps = 1e-3f; }},
  };
}

std::vector<Mistake> KimiMistakes() {
  return {
      {"norms multiply by 1 + w", "kimi_linear_a", [](ModelSpec& s) { s.norm.offset = 1; }},
      {"SiLU instead of sigmoid in the gated norm", "kimi_linear_a",
       InMixers<Linear>([](Linear& m) { m.gate = ops::GateActivation::kSilu; })},
      {"one decay a head instead of one a channel", "kimi_linear_a",
       InMixers<Linear>([](Linear& m) { m.channel_decay = false; })},
      {"gate and up of experts exchanged (w1 and w3)", "kimi_linear_a",
       InMoe([](MoeFfn& m) { std::swap(m.names.gate, m.names.up); })},
      {"the router's bias is forgotten", "kimi_linear_a",
       InMoe([](MoeFfn& m) { m.names.bias.clear(); })},
      {"the router's scale is forgotten", "kimi_linear_a",
       InMoe([](MoeFfn& m) { m.router.scale = 1; })},
      {"softmax instead of sigmoid in the router", "kimi_linear_a", InMoe([](MoeFfn& m) {
         m.router.score = ops::RouterScore::kSoftmax;
         m.names.bias.clear();
       })},
      {"groups of the router are ignored", "kimi_linear_b",
       InMoe([](MoeFfn& m) { m.router.groups = m.router.groups_kept = 1; })},
      {"the shared key is rotated", "kimi_linear_a",
       InMixers<Latent>([](Latent& m) { m.rotary.dims = m.shared_dim; })},
      {"scores are scaled by the unrotated width", "kimi_linear_a", InMixers<Latent>([](Latent& m) {
         m.score_scale = 1.0f / std::sqrt(static_cast<float>(m.key_dim));
       })},
      {"scores are scaled by the latent width", "kimi_linear_a", InMixers<Latent>([](Latent& m) {
         m.score_scale = 1.0f / std::sqrt(static_cast<float>(m.latent_dim + m.shared_dim));
       })},
      {"layer lists count from 0", "kimi_linear_a",
       [](ModelSpec& s) {
         for (size_t i = 0; i + 1 < s.layers.size(); ++i) {
           std::swap(s.layers[i].mixer, s.layers[i + 1].mixer);
         }
       }},
      {"the dense first layers are sparse", "kimi_linear_a",
       [](ModelSpec& s) { s.layers[0].ffn = s.layers.back().ffn; }},
  };
}

std::vector<Mistake> LingMistakes() {
  return {
      {"slopes count linear layers only", "ling_2_a", DecayByLinearLayers},
      {"one norm over all channels", "ling_2_a",
       InMixers<Linear>([](Linear& m) { m.norm_groups = 1; })},
      {"the number of norm groups read as their length", "ling_2_b",
       InMixers<Linear>(
           [](Linear& m) { m.norm_groups = m.value_heads * m.value_dim / m.norm_groups; })},
      {"SiLU instead of sigmoid in the gate", "ling_2_a",
       InMixers<Linear>([](Linear& m) { m.gate = ops::GateActivation::kSilu; })},
      {"linear attention rotates neighbours", "ling_2_a",
       InMixers<Linear>([](Linear& m) { m.rotary.interleaved = true; })},
      {"linear attention rotates all channels", "ling_2_a",
       InMixers<Linear>([](Linear& m) { m.rotary.dims = m.key_dim; })},
      {"latent attention rotates halves", "ling_2_a",
       InMixers<Latent>([](Latent& m) { m.rotary.interleaved = false; })},
      {"half of the shared key is rotated", "ling_2_a",
       InMixers<Latent>([](Latent& m) { m.rotary.dims = m.shared_dim / 2; })},
      {"the bounded decay as softplus", "ling_3_a",
       InMixers<Linear>([](Linear& m) { m.rule.decay = ops::DecayForm::kSoftplus; })},
      {"another bound of the decay", "ling_3_a",
       InMixers<Linear>([](Linear& m) { m.rule.lower_bound = -10; })},
      {"the softplus decay as bounded", "ling_3_b", InMixers<Linear>([](Linear& m) {
         m.rule.decay = ops::DecayForm::kBounded;
         m.rule.lower_bound = -5;
       })},
      {"latent attention without its gate", "ling_3_a",
       InMixers<Latent>([](Latent& m) { m.head_gate = false; })},
      {"theta of rotation is 10000", "ling_3_a",
       InMixers<Latent>([](Latent& m) { m.rotary.theta = 1e4; })},
      {"YaRN is forgotten", "ling_3_b", InMixers<Latent>([](Latent& m) { m.rotary.yarn.reset(); })},
      {"the square of a magnitude that the config does not name", "ling_3_b",
       InMixers<Latent>([](Latent& m) { m.score_scale *= std::pow(m.rotary.scale, 2.0f); })},
      {"the router's scale is forgotten", "ling_3_a", InMoe([](MoeFfn& m) { m.router.scale = 1; })},
      {"groups of the router are ignored", "ling_3_a",
       InMoe([](MoeFfn& m) { m.router.groups = m.router.groups_kept = 1; })},
      {"limits of the activation where there are none", "ling_3_a",
       InMoe([](MoeFfn& m) { m.limit = 0.5f; })},
  };
}

std::vector<Mistake> DeepseekMistakes() {
  return {
      {"YaRN begins beyond the original context only", "deepseek_v3_a",
       InMixers<Latent>([](Latent& m) { m.rotary.yarn.reset(); })},
      {"the square of mscale is forgotten", "deepseek_v3_a", InMixers<Latent>([](Latent& m) {
         m.score_scale = 1.0f / std::sqrt(static_cast<float>(m.key_dim + m.shared_dim));
       })},
      {"the shared key is rotated by halves", "deepseek_v3_a",
       InMixers<Latent>([](Latent& m) { m.rotary.interleaved = false; })},
      {"groups of the router are ignored", "deepseek_v3_a",
       InMoe([](MoeFfn& m) { m.router.groups = m.router.groups_kept = 1; })},
      {"the router's scale is forgotten", "deepseek_v3_b",
       InMoe([](MoeFfn& m) { m.router.scale = 1; })},
      {"router weights are not renormalised", "deepseek_v3_a",
       InMoe([](MoeFfn& m) { m.router.renormalise = false; })},
      {"the dense first layer is sparse", "deepseek_v3_a",
       [](ModelSpec& s) { s.layers[0].ffn = s.layers.back().ffn; }},
      {"scores are scaled by the latent width", "deepseek_v3_b", InMixers<Latent>([](Latent& m) {
         m.score_scale = 1.0f / std::sqrt(static_cast<float>(m.latent_dim + m.shared_dim));
       })},
  };
}

// The largest difference from the golden; nothing if the loader refuses the spec.
std::optional<double> DifferenceWith(const Mistake& mistake) {
  Result<ModelSpec> spec = ReadModelSpec(GoldenDirectory(mistake.set));
  CHECK(spec, "{}", spec.error().message);
  if (mistake.plant) mistake.plant(*spec);
  GoldenModel model(2, BestIsa(DetectCpu()), Compute::kF32, DType::kF32);
  if (!model.Load(mistake.set, *std::move(spec))) return std::nullopt;
  double worst = 0;
  for (const Golden& golden : ReadGoldens(mistake.set)) {
    const std::vector<float> logits = model.Logits(golden.ids, {});
    const auto width = static_cast<size_t>(model.vocabulary());
    worst = std::max(worst, LargestDifference(golden, logits, width));
  }
  return worst;
}

void ExpectAllAreFound(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    const std::optional<double> right = DifferenceWith({mistake.what, mistake.set, nullptr});
    ASSERT_TRUE(right) << mistake.set;
    EXPECT_LE(*right, 1e-4) << mistake.set;
    const std::optional<double> wrong = DifferenceWith(mistake);
    fmt::print("{:<14}  {:<50}  {}\n", mistake.set, mistake.what,
               wrong ? fmt::format("off by {:.3g}", *wrong) : "refused by the loader");
    EXPECT_GE(wrong.value_or(INFINITY), kMissedBy) << mistake.set << ": " << mistake.what;
  }
}

TEST(Mistakes, OfQwenAreFound) { ExpectAllAreFound(QwenMistakes()); }
TEST(Mistakes, OfKimiAreFound) { ExpectAllAreFound(KimiMistakes()); }
TEST(Mistakes, OfLingAreFound) { ExpectAllAreFound(LingMistakes()); }
TEST(Mistakes, OfDeepseekAreFound) { ExpectAllAreFound(DeepseekMistakes()); }

}  // namespace
}  // namespace braid
