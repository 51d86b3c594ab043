// The facts, section by section.
#include "model/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/block.h"
#include "base/math.h"
#include "base/quantities.h"
#include "model/loading/weight_choice.h"
#include "model/mixers/linear_attention.h"

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
                m.q_lora_rank > 0 ? fmt::format(", queries through {}", m.q_lora_rank) : "",
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
  if (!spec.quantization.method.empty()) {
    section.facts.push_back(Plain("quantization", spec.quantization.method));
  }
  AppendKinds(spec, "mixer", [](const LayerSpec& l) { return MixerText(l.mixer); }, section);
  AppendKinds(spec, "ffn", [](const LayerSpec& l) { return FfnText(l.ffn); }, section);
  return section;
}

int64_t DraftParametersOf(const ModelSpec& spec) {
  if (!spec.draft || !spec.draft->declared) return 0;
  int64_t total = 0;
  for (const WeightSpec& weight : DraftWeightsOf(spec)) total += weight.count * weight.n * weight.k;
  return total;
}

FactSection ParameterSection(const ModelSpec& spec) {
  const ParameterCount count = ParametersOf(spec);
  return {"parameters",
          {Count("total", count.total), Count("active_per_token", count.active),
           Count("embedding", count.embedding), Count("draft_head", DraftParametersOf(spec))}};
}

// All parameters in one format, as tables of models count: int4 in groups of 32 with a 2-byte
// scale.
FactSection SizeSection(const ModelSpec& spec) {
  const int64_t total = ParametersOf(spec).total;
  return {"sizes",
          {Bytes("all_bf16", 2 * total), Bytes("all_fp8", total),
           Bytes("all_int4_groups_of_32", total / 2 + CeilDiv(total, 32) * 2)}};
}

// "as stored: 20.6 GiB in memory, 1.03 times the bytes stored", or which formats make it more.
std::string RunsText(const LoadReport& report) {
  const Expansion expansion = ExpansionOf(report);
  const std::vector<std::string>& formats = expansion.formats;
  std::string text = fmt::format("{}: {} in memory, {:.2f} times the bytes stored",
                                 formats.empty() ? "as stored" : "partly expanded",
                                 ByteText(expansion.packed), expansion.times());
  if (!formats.empty()) text += fmt::format(" ({})", fmt::join(formats, "; "));
  return text;
}

// Bytes of the packed weights by part.
FactSection WeightSection(const ModelSpec& spec, const LoadReport* report,
                          const WeightChoice& choice) {
  std::map<std::string_view, int64_t> parts;
  if (report) {
    for (const WeightStorage& weight : report->weights) parts[weight.part] += weight.packed_bytes;
  } else {
    for (const WeightSpec& weight : WeightsOf(spec)) {
      const Weight layout = LayoutOf(weight, ops::WeightFormat::kBF16, choice);
      parts[weight.part] += PackedBytes(weight, layout);
    }
  }
  FactSection section{"weights", {}};
  if (report == nullptr) section.facts.push_back(Plain("as_if_stored_as", "bf16"));
  int64_t total = 0;
  for (const auto& [part, part_bytes] : parts) {
    section.facts.push_back(Bytes(std::string(part), part_bytes));
    total += part_bytes;
  }
  section.facts.push_back(Bytes("total", total));
  if (report) section.facts.push_back(Plain("run", RunsText(*report)));
  return section;
}

// How the weights are stored and how they run, one line for every pair of both.
FactSection FormatSection(const LoadReport& report) {
  struct Sum {
    int64_t weights = 0;
    int64_t stored = 0;
    int64_t packed = 0;
  };
  std::map<std::string, Sum> sums;
  for (const WeightStorage& weight : report.weights) {
    Sum& sum = sums[fmt::format("{}, runs as {}", weight.stored_as, ops::NameOf(weight.runs_as))];
    ++sum.weights;
    sum.stored += weight.stored_bytes;
    sum.packed += weight.packed_bytes;
  }
  FactSection section{"formats", {}};
  for (const auto& [name, sum] : sums) {
    section.facts.push_back({name,
                             fmt::format("{} weights, {} stored, {} in memory", sum.weights,
                                         ByteText(sum.stored), ByteText(sum.packed)),
                             json::object{{"weights", sum.weights},
                                          {"stored_bytes", sum.stored},
                                          {"packed_bytes", sum.packed}}});
  }
  return section;
}

// The state as tables of models count it: fp32 matrices of the recurrences, and the inputs of the
// convolutions in bf16. What the cache keeps per block is more (rows of the chunk in progress).
void AppendStateSizes(const ModelSpec& spec, FactSection& section) {
  int64_t recurrent = 0, convolution = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* mixer = std::get_if<LinearAttention>(&layer.mixer);
    if (mixer == nullptr) continue;
    recurrent += int64_t{4} * mixer->value_heads * mixer->key_dim * mixer->value_dim;
    convolution += int64_t{2} * (mixer->conv_width - 1) * RowsOf(*mixer).conv;
  }
  section.facts.push_back(Bytes("recurrent_state_bytes", recurrent));
  section.facts.push_back(Bytes("convolution_state_bytes_bf16", convolution));
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
    AppendStateSizes(spec, section);
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
  std::vector<FactSection> sections = {ModelSection(spec), ParameterSection(spec)};
  if (report == nullptr) sections.push_back(SizeSection(spec));
  sections.push_back(WeightSection(spec, report, choice));
  if (report) sections.push_back(FormatSection(*report));
  sections.push_back(CacheSection(spec));
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
