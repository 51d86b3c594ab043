// See the header. An expert is chosen if its score, the sigmoid of a normal logit, is above a
// threshold that is nearly the same for all tokens: so its bias is a quantile of that score.
#include "model/writing/skewed_routers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <variant>

#include "base/rng.h"
#include "model/writing/random_weights.h"

namespace braid {

// Independent choices, each with the chance of at least one event of a Poisson process, of which
// top_k are expected.
std::vector<double> ChosenShares(int32_t experts, int32_t top_k, double skew) {
  std::vector<double> shares(static_cast<size_t>(experts));
  double low = 0, high = 1;
  const auto set = [&](double rate) {
    for (size_t i = 0; i < shares.size(); ++i) {
      shares[i] = 1 - std::exp(-rate * std::pow(static_cast<double>(i) + 1, -skew));
    }
    return std::accumulate(shares.begin(), shares.end(), 0.0);
  };
  const double wanted = std::min<double>(top_k, 0.999 * experts);
  while (set(high) < wanted) high *= 2;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (set(middle) < wanted ? low : high) = middle;
  }
  set(high);
  return shares;
}

std::vector<float> BiasOfShares(const std::vector<double>& shares, double spread) {
  std::vector<float> bias;
  for (const double share : shares) {
    const double logit = spread * NormalQuantile(1 - std::clamp(share, 1e-6, 1 - 1e-6));
    bias.push_back(static_cast<float>(-1 / (1 + std::exp(-logit))));
  }
  return bias;
}

Result<std::map<std::string, std::vector<float>>> SkewedBiases(const ModelSpec& spec, double skew,
                                                               uint64_t seed) {
  std::map<std::string, std::vector<float>> biases;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    const MoeFfn* moe = std::get_if<MoeFfn>(&layer.ffn);
    if (moe == nullptr) continue;
    if (moe->names.bias.empty() || moe->router.score != ops::RouterScore::kSigmoid ||
        moe->router.groups > 1) {
      return Error{ErrorCode::kInvalid,
                   "--expert-skew needs routers with sigmoid scores, a selection bias and one "
                   "group of experts: choose a family with a bias, and n_group=1,topk_group=1 "
                   "where its shape has groups",
                   "expert_skew"};
    }
    const std::string module = layer.prefix + moe->names.module;
    const TensorPlan router{.name = module + "gate.weight", .shape = {moe->experts, spec.hidden}};
    const double spread = DrawOf(router, spec).deviation * std::sqrt(spec.hidden);
    std::vector<float> bias = BiasOfShares(ChosenShares(moe->experts, moe->top_k, skew), spread);
    Rng rng(MixBits(seed + 1) + i);
    for (size_t e = bias.size(); e > 1; --e) std::swap(bias[e - 1], bias[rng.Below(e)]);
    std::string name = module + moe->names.bias.front();
    if (name.starts_with('@')) name = spec.prefixes.back() + name.substr(1);
    biases.emplace(std::move(name), std::move(bias));
  }
  if (!biases.empty()) return biases;
  return Error{ErrorCode::kInvalid, "--expert-skew needs a model that has experts", "expert_skew"};
}

}  // namespace braid
