// The facts, section by section.
#include "model/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/block.h"
#include "model/memory_plan.h"
#include "model/quantities.h"

namespace braid {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

Fact Plain(std::string key, std::string text) {
  json::value value = json::string(text);
  return {std::move(key), std::move(text), std::move(value)};
}
Fact Number(std::string key, int64_t value) {
  return {std::move(key), std::to_string(value), value};
}
Fact Bytes(std::string key, int64_t value) { return {std::move(key), ByteText(value), value}; }
Fact Count(std::string key, int64_t value) { return {std::move(key), CountText(value), value}; }

std::string MixerText(const Mixer& mixer) {
  return std::visit(
      Overloaded{
          [](const FullAttention& m) {
            return fmt::format(
                "full attention, {} heads on {} of keys and values, {} wide, {} channels "
                "rotated (theta {}){}{}",
                m.heads, m.kv_heads, m.head_dim, m.rotary.dims, m.rotary.theta,
                m.qk_norm ? ", q and k normalised" : "", m.output_gate ? ", gated output" : "");
          },
          [](const LatentAttention& m) {
            return fmt::format(
                "latent attention, {} heads, latent {} wide, keys {} and {} shared ({} rotated, "
                "theta "
                "{}), values {} wide{}{}",
                m.heads, m.latent_dim, m.key_dim, m.shared_dim, m.rotary.dims, m.rotary.theta,
                m.value_dim,
                m.query_rank > 0 ? fmt::format(", queries through {}", m.query_rank) : "",
                m.head_gate ? ", gated heads" : "");
          },
          [](const LinearAttention& m) {
            const char* kind = m.rule.add        ? "constant decay"
                               : m.channel_decay ? "delta rule, a decay per channel"
                                                 : "gated delta rule";
            return fmt::format(
                "linear attention ({}), {} key heads {} wide, {} value heads {} wide{}", kind,
                m.key_heads, m.key_dim, m.value_heads, m.value_dim,
                m.conv_width > 1 ? fmt::format(", convolution over {}", m.conv_width) : "");
          },
      },
      mixer);
}

std::string FfnText(const Ffn& ffn) {
  return std::visit(Overloaded{
                        [](const DenseFfn& f) { return fmt::format("dense, {} wide", f.width); },
                        [](const MoeFfn& f) {
                          std::string text = fmt::format(
                              "{} experts {} wide, {} a token{}", f.experts, f.width, f.top_k,
                              f.router.renormalise ? "" : ", weights not renormalised");
                          if (f.shared_width > 0) {
                            text += fmt::format(", shared expert {} wide{}", f.shared_width,
                                                f.shared_gate ? " (gated)" : "");
                          }
                          return text;
                        },
                    },
                    ffn);
}

// "0-2, 4-6": the layers at which a description holds.
std::string LayerRanges(const std::vector<size_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", layers[i]);
    if (last > i) text += fmt::format("-{}", layers[last]);
    i = last + 1;
  }
  return text;
}

// Equal descriptions together, in the order of their first layer.
template <class TextOf>
void AppendKinds(const ModelSpec& spec, std::string_view key, TextOf text_of,
                 FactSection& section) {
  std::vector<std::pair<std::string, std::vector<size_t>>> kinds;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    std::string text = text_of(spec.layers[i]);
    auto at = std::ranges::find(kinds, text, [](const auto& kind) { return kind.first; });
    if (at == kinds.end()) at = kinds.insert(kinds.end(), {std::move(text), {}});
    at->second.push_back(i);
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    section.facts.push_back(Plain(fmt::format("{}_{}", key, i + 1),
                                  fmt::format("{} layers ({}): {}", kinds[i].second.size(),
                                              LayerRanges(kinds[i].second), kinds[i].first)));
  }
}

FactSection ModelSection(const ModelSpec& spec) {
  FactSection section{
      "model",
      {Plain("family", spec.family), Plain("architecture", spec.architecture),
       Number("layers", static_cast<int64_t>(spec.layers.size())), Number("hidden", spec.hidden),
       Number("vocabulary", spec.vocabulary), Number("context_tokens_max", spec.context_tokens_max),
       Plain("head", spec.tied_head ? "the embedding" : "lm_head")}};
  AppendKinds(spec, "mixer", [](const LayerSpec& l) { return MixerText(l.mixer); }, section);
  AppendKinds(spec, "ffn", [](const LayerSpec& l) { return FfnText(l.ffn); }, section);
  return section;
}

FactSection ParameterSection(const ModelSpec& spec) {
  const ParameterCount count = ParametersOf(spec);
  return {"parameters",
          {Count("total", count.total), Count("active_per_token", count.active),
           Count("embedding", count.embedding)}};
}

// Bytes of the packed weights by part.
FactSection WeightSection(const ModelSpec& spec, DType dtype, const WeightChoice& choice) {
  const ModelWeightSpecs weights = WeightsOf(spec);
  std::map<std::string_view, int64_t> parts;
  parts["embedding"] += PackedBytes(weights.embedding, dtype, choice);
  if (weights.head) parts["head"] += PackedBytes(*weights.head, dtype, choice);
  parts["norms"] += PackedBytes(weights.final_norm, dtype, choice);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeightSpecs& layer = weights.layers[i];
    const bool full = !std::holds_alternative<LinearAttention>(spec.layers[i].mixer);
    parts["norms"] +=
        PackedBytes(layer.input_norm, dtype, choice) + PackedBytes(layer.post_norm, dtype, choice);
    for (const WeightSpec& weight : layer.mixer) {
      parts[full ? "full_attention" : "linear_attention"] += PackedBytes(weight, dtype, choice);
    }
    for (const WeightSpec& weight : layer.ffn) {
      parts[weight.shard == Shard::kExperts ? "experts" : "other_feed_forward"] +=
          PackedBytes(weight, dtype, choice);
    }
  }
  FactSection section{"weights", {Plain("stored_as", std::string(NameOf(dtype)))}};
  int64_t total = 0;
  for (const auto& [part, bytes] : parts) {
    section.facts.push_back(Bytes(std::string(part), bytes));
    total += bytes;
  }
  section.facts.push_back(Bytes("total", total));
  for (const auto& [format, bytes] : WeightBytesOf(spec, dtype, choice)) {
    section.facts.push_back(Bytes(fmt::format("in_{}", format), bytes));
  }
  return section;
}

FactSection CacheSection(const ModelSpec& spec) {
  FactSection section{"cache", {}};
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const GroupGeometry& group : CachePlanOf(spec, dtype).groups) {
      if (group.kind != GroupKind::kFull) continue;
      section.facts.push_back(Bytes(fmt::format("kv_bytes_per_token_{}", NameOf(dtype)),
                                    group.block_bytes / kBlockTokens));
    }
  }
  for (const GroupGeometry& group : CachePlanOf(spec, DType::kF32).groups) {
    if (group.kind != GroupKind::kState) continue;
    section.facts.push_back(Bytes("state_bytes_per_block", group.block_bytes));
    section.facts.push_back(Bytes("state_bytes_per_sequence", 2 * group.block_bytes));
  }
  return section;
}

FactSection CheckpointSection(const Checkpoint& checkpoint, const LoadReport* report) {
  FactSection section{"checkpoint",
                      {Plain("directory", checkpoint.directory()),
                       Number("tensors", static_cast<int64_t>(checkpoint.tensors().size())),
                       Bytes("bytes", checkpoint.total_bytes())}};
  if (report == nullptr) return section;
  auto append = [&](const char* key, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    section.facts.push_back(
        {key, fmt::format("{}", fmt::join(lines, "; ")), json::array(lines.begin(), lines.end())});
  };
  append("skipped", report->skipped);
  append("draft", report->draft);
  append("notes", report->notes);
  return section;
}

}  // namespace

std::vector<FactSection> DescribeModel(const ModelSpec& spec, const Checkpoint* checkpoint,
                                       const LoadReport* report, const WeightChoice& choice) {
  const ModelSpec fitted = checkpoint ? FitToCheckpoint(spec, *checkpoint) : spec;
  std::vector<FactSection> sections = {ModelSection(fitted), ParameterSection(fitted)};
  sections.push_back(
      WeightSection(fitted, checkpoint ? MainTypeOf(*checkpoint) : DType::kBF16, choice));
  sections.push_back(CacheSection(fitted));
  if (checkpoint) sections.push_back(CheckpointSection(*checkpoint, report));
  return sections;
}

std::string FactsAsText(const std::vector<FactSection>& sections) {
  size_t width = 0;
  for (const FactSection& section : sections) {
    for (const Fact& fact : section.facts) width = std::max(width, fact.key.size());
  }
  std::string text;
  for (const FactSection& section : sections) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section.name);
    for (const Fact& fact : section.facts) {
      std::string key = fact.key;
      std::ranges::replace(key, '_', ' ');
      text += fmt::format("  {:<{}}  {}\n", key, width, fact.text);
    }
  }
  return text;
}

json::object FactsAsJson(const std::vector<FactSection>& sections) {
  json::object object;
  for (const FactSection& section : sections) {
    json::object& facts = object[section.name].emplace_object();
    for (const Fact& fact : section.facts) facts[fact.key] = fact.value;
  }
  return object;
}

}  // namespace braid
