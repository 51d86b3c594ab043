// What is derived from a ModelSpec by visiting its layers.
#include "model/spec.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"

namespace braid {
namespace {

constexpr int64_t kSliceAlignment = 64;

WeightSpec NormWeight(const std::string& name, int64_t n) {
  return {
      .name = name, .use = WeightUse::kVector, .n = n, .sources = {{{name + ".weight", {n}, {}}}}};
}

// Embedding, head and projections beside the layers.
WeightSpec MatrixWeight(const std::string& name, int64_t n, int64_t k) {
  return {.name = name,
          .n = n,
          .k = k,
          .units = {{ShardUnit::kRow, n}},
          .sources = {{{name + ".weight", {n, k}, {}}}}};
}

template <class... K, class... W>
void ListKind(const std::variant<K...>& kind, const LayerPlace& place, std::variant<W...>& weights,
              WeightList& list) {
  std::visit(
      [&](const auto& k) {
        using Weights = typename std::decay_t<decltype(k)>::Weights;
        ListWeights(k, place, weights.template emplace<Weights>(), list);
      },
      kind);
}

void MarkPart(WeightList& list, size_t first, std::string_view part) {
  for (size_t i = first; i < list.size(); ++i) {
    const auto& units = list[i].spec.units;
    const bool experts = !units.empty() && units[0].unit == ShardUnit::kExpert;
    list[i].spec.part = experts ? "experts" : part;
  }
}

void ListLayer(const LayerSpec& layer, int64_t hidden, LayerWeights& weights, WeightList& list) {
  const LayerPlace place{hidden, layer.prefix};
  const bool linear = std::holds_alternative<LinearAttention>(layer.mixer);
  const size_t first = list.size();
  list.push_back({&weights.input_norm, NormWeight(layer.prefix + "input_layernorm", hidden)});
  MarkPart(list, first, "norms");
  ListKind(layer.mixer, place, weights.mixer, list);
  MarkPart(list, first + 1, linear ? "linear_attention" : "full_attention");
  const size_t norm = list.size();
  list.push_back(
      {&weights.post_norm, NormWeight(layer.prefix + "post_attention_layernorm", hidden)});
  MarkPart(list, norm, "norms");
  ListKind(layer.ffn, place, weights.ffn, list);
  MarkPart(list, norm + 1, "other_feed_forward");
}

void ListDraft(const DraftSpec& draft, int64_t hidden, DraftWeights& weights, WeightList& list) {
  const size_t first = list.size();
  const auto norm = [&](Weight& weight, const std::string& name) {
    list.push_back({&weight, NormWeight(draft.prefix + name, hidden)});
  };
  norm(weights.embedding_norm, draft.embedding_norm);
  norm(weights.hidden_norm, draft.hidden_norm);
  norm(weights.final_norm, draft.final_norm);
  list.push_back(
      {&weights.projection, MatrixWeight(draft.prefix + draft.projection, hidden, 2 * hidden)});
  weights.layers.resize(draft.layers.size());
  for (size_t i = 0; i < draft.layers.size(); ++i) {
    ListLayer(draft.layers[i], hidden, weights.layers[i], list);
  }
  for (size_t i = first; i < list.size(); ++i) list[i].spec.part = "draft_head";
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
  if (moe == nullptr || weight.part != "experts") return Elements(weight);
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

void PlanState(ModelSpec& spec, int32_t drafts_max, DType state_dtype) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* mixer = std::get_if<LinearAttention>(&layer.mixer)) {
      mixer->drafts_max = drafts_max;
      mixer->state_dtype = state_dtype;
    }
  }
}

bool HasDraftHead(const ModelSpec& spec) {
  return spec.draft && spec.draft->layers.size() == 1 &&
         !std::holds_alternative<LinearAttention>(spec.draft->layers[0].mixer);
}

void UseDraftHead(ModelSpec& spec) {
  CHECK(HasDraftHead(spec));
  spec.draft->used = true;
}

WeightList ListWeights(const ModelSpec& spec, ModelWeights& weights) {
  WeightList list;
  list.push_back({&weights.embedding, MatrixWeight(spec.embedding, spec.vocabulary, spec.hidden)});
  list.back().spec.quantisable = Quantisable::kHead;
  MarkPart(list, 0, "embedding");
  weights.layers.resize(spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const size_t first = list.size();
    ListLayer(spec.layers[i], spec.hidden, weights.layers[i], list);
    for (size_t w = first; w < list.size(); ++w) list[w].spec.layer = static_cast<int32_t>(i);
  }
  if (spec.draft && spec.draft->used) {
    ListDraft(*spec.draft, spec.hidden, weights.draft, list);
  }
  list.push_back({&weights.final_norm, NormWeight("@norm", spec.hidden)});
  MarkPart(list, list.size() - 1, "norms");
  if (spec.tied_head) return list;
  list.push_back({&weights.head, MatrixWeight("lm_head", spec.vocabulary, spec.hidden)});
  list.back().spec.quantisable = Quantisable::kHead;
  MarkPart(list, list.size() - 1, "head");
  return list;
}

std::vector<WeightSpec> WeightsOf(const ModelSpec& spec) {
  ModelWeights unfilled;
  std::vector<WeightSpec> specs;
  for (WeightEntry& entry : ListWeights(spec, unfilled)) specs.push_back(std::move(entry.spec));
  return specs;
}

std::vector<WeightSpec> DraftWeightsOf(const ModelSpec& spec) {
  if (!spec.draft) return {};
  DraftWeights unfilled;
  WeightList list;
  ListDraft(*spec.draft, spec.hidden, unfilled, list);
  std::vector<WeightSpec> weights;
  for (WeightEntry& entry : list) weights.push_back(std::move(entry.spec));
  return weights;
}

CachePlan CachePlanOf(const ModelSpec& spec, DType kv_dtype) {
  CachePlan plan;
  const auto need_of = [&](const LayerSpec& layer) {
    return std::visit([&](const auto& mixer) { return CacheOf(mixer, kv_dtype); }, layer.mixer);
  };
  const auto take = [&](GroupKind kind, int64_t bytes) {
    const size_t group = GroupIndex(plan.groups, kind);
    const ops::CacheSlice slice{static_cast<int32_t>(group), plan.groups[group].block_bytes};
    plan.groups[group].block_bytes += RoundUp(bytes, kSliceAlignment);
    return slice;
  };
  for (const LayerSpec& layer : spec.layers) GroupIndex(plan.groups, need_of(layer).kind);
  if (spec.draft && spec.draft->used) {
    for (const LayerSpec& layer : spec.draft->layers) {
      plan.draft.layers.push_back(take(GroupKind::kFull, need_of(layer).block_bytes));
      plan.draft.layers.back().skip_first = true;
    }
    plan.draft.last_state = take(GroupKind::kFull, int64_t{spec.hidden} * sizeof(float));
    plan.draft.bytes = plan.groups[static_cast<size_t>(plan.draft.last_state.group)].block_bytes;
  }
  for (const LayerSpec& layer : spec.layers) {
    const CacheNeed need = need_of(layer);
    plan.slices.push_back(take(need.kind, need.block_bytes));
  }
  return plan;
}

std::vector<Cost> CostsOf(const ModelSpec& spec, const StepShape& shape, int64_t logits_rows) {
  const double hidden = spec.hidden, head = hidden * spec.vocabulary;
  const double tokens = static_cast<double>(shape.tokens);
  const double rows = static_cast<double>(logits_rows);
  const double table = shape.bytes_per_head_weight * ((rows > 0 ? head : 0.0) + tokens * hidden);
  std::vector<Cost> costs = {
      {.flops = 2 * rows * head, .bytes = table, .weight_bytes = table, .part = "embedding, head"}};
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
    LayerWeights unfilled;
    WeightList list;
    ListLayer(layer, spec.hidden, unfilled, list);
    for (const WeightEntry& entry : list) {
      count.total += Elements(entry.spec);
      count.active += ActiveElements(entry.spec, layer.ffn);
    }
  }
  return count;
}

}  // namespace braid
