// What is derived from a ModelSpec by visiting its layers.
#include "model/spec.h"

#include <algorithm>

#include "base/math.h"

namespace braid {
namespace {

constexpr int64_t kSliceAlignment = 64;

WeightSpec NormWeight(const std::string& name, int64_t n) {
  return {
      .name = name, .use = WeightUse::kVector, .n = n, .sources = {{{name + ".weight", {n}, {}}}}};
}

WeightSpec MatrixWeight(const std::string& name, int64_t n, int64_t k, Shard shard) {
  return {
      .name = name, .n = n, .k = k, .shard = shard, .sources = {{{name + ".weight", {n, k}, {}}}}};
}

LayerWeightSpecs LayerWeightsOf(const LayerSpec& layer, int64_t hidden) {
  const LayerPlace place{hidden, layer.prefix};
  auto weights_of = [&](const auto& kind) { return WeightsOf(kind, place); };
  return {.input_norm = NormWeight(layer.prefix + "input_layernorm", hidden),
          .mixer = std::visit(weights_of, layer.mixer),
          .post_norm = NormWeight(layer.prefix + "post_attention_layernorm", hidden),
          .ffn = std::visit(weights_of, layer.ffn)};
}

std::string_view GroupName(GroupKind kind) {
  return kind == GroupKind::kFull ? "attention" : "state";
}

// The group of that kind, made on first use.
size_t GroupIndex(std::vector<GroupGeometry>& groups, GroupKind kind) {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == kind) return g;
  }
  groups.push_back({.name = std::string(GroupName(kind)), .kind = kind});
  return groups.size() - 1;
}

int64_t Elements(const WeightSpec& weight) { return weight.count * weight.n * weight.k; }

// Elements of a layer's feed-forward weights that one token's pass reads.
int64_t ActiveElements(const WeightSpec& weight, const Ffn& ffn) {
  const MoeFfn* moe = std::get_if<MoeFfn>(&ffn);
  if (moe == nullptr || weight.shard != Shard::kExperts) return Elements(weight);
  return Elements(weight) / moe->experts * moe->top_k;
}

}  // namespace

void ExpandLatentAttention(ModelSpec& spec, int32_t tokens_min) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* mixer = std::get_if<LatentAttention>(&layer.mixer)) {
      mixer->expanded_tokens_min = tokens_min;
    }
  }
}

ModelWeightSpecs WeightsOf(const ModelSpec& spec) {
  ModelWeightSpecs weights;
  weights.embedding = MatrixWeight(spec.embedding, spec.vocabulary, spec.hidden, Shard::kRows);
  weights.embedding.quantisable = Quantisable::kHead;
  for (const LayerSpec& layer : spec.layers) {
    weights.layers.push_back(LayerWeightsOf(layer, spec.hidden));
  }
  weights.final_norm = NormWeight("@norm", spec.hidden);
  if (!spec.tied_head) {
    weights.head = MatrixWeight("lm_head", spec.vocabulary, spec.hidden, Shard::kRows);
    weights.head->quantisable = Quantisable::kHead;
  }
  return weights;
}

std::vector<WeightSpec> DraftWeightsOf(const ModelSpec& spec) {
  if (!spec.draft) return {};
  const std::string& prefix = spec.draft->prefix;
  const int64_t hidden = spec.hidden;
  std::vector<WeightSpec> weights = {
      NormWeight(prefix + spec.draft->embedding_norm, hidden),
      NormWeight(prefix + spec.draft->hidden_norm, hidden),
      MatrixWeight(prefix + spec.draft->projection, hidden, 2 * hidden, Shard::kRows),
      NormWeight(prefix + spec.draft->final_norm, hidden),
  };
  for (const LayerSpec& layer : spec.draft->layers) {
    LayerWeightSpecs specs = LayerWeightsOf(layer, hidden);
    weights.push_back(std::move(specs.input_norm));
    std::ranges::move(specs.mixer, std::back_inserter(weights));
    weights.push_back(std::move(specs.post_norm));
    std::ranges::move(specs.ffn, std::back_inserter(weights));
  }
  return weights;
}

CachePlan CachePlanOf(const ModelSpec& spec, DType kv_dtype) {
  CachePlan plan;
  for (const LayerSpec& layer : spec.layers) {
    const CacheNeed need =
        std::visit([&](const auto& mixer) { return CacheOf(mixer, kv_dtype); }, layer.mixer);
    const size_t group = GroupIndex(plan.groups, need.kind);
    int64_t& bytes = plan.groups[group].block_bytes;
    plan.slices.push_back({.group = static_cast<int32_t>(group), .byte_offset = bytes});
    bytes += RoundUp(need.block_bytes, kSliceAlignment);
  }
  return plan;
}

std::vector<Cost> CostsOf(const ModelSpec& spec, const StepShape& shape, int64_t logits_rows) {
  const double hidden = spec.hidden, head = hidden * spec.vocabulary;
  const double tokens = static_cast<double>(shape.tokens);
  const double rows = static_cast<double>(logits_rows);
  std::vector<Cost> costs = {
      {.flops = 2 * rows * head,
       .bytes = shape.bytes_per_head_weight * ((rows > 0 ? head : 0.0) + tokens * hidden)}};
  for (const LayerSpec& layer : spec.layers) {
    auto add = [&](const auto& kind) {
      for (const Cost& cost : CostsOf(kind, spec.hidden, shape)) costs.push_back(cost);
    };
    std::visit(add, layer.mixer);
    std::visit(add, layer.ffn);
  }
  return costs;
}

ParameterCount ParametersOf(const ModelSpec& spec) {
  const int64_t table = int64_t{spec.vocabulary} * spec.hidden;
  ParameterCount count{
      .total = table + spec.hidden, .active = table + spec.hidden, .embedding = table};
  if (!spec.tied_head) count.total += table;
  for (const LayerSpec& layer : spec.layers) {
    const LayerWeightSpecs weights = LayerWeightsOf(layer, spec.hidden);
    int64_t always = 2 * int64_t{spec.hidden};
    for (const WeightSpec& weight : weights.mixer) always += Elements(weight);
    count.total += always;
    count.active += always;
    for (const WeightSpec& weight : weights.ffn) {
      count.total += Elements(weight);
      count.active += ActiveElements(weight, layer.ffn);
    }
  }
  return count;
}

}  // namespace braid
