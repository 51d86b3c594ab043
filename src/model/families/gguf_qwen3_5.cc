// Qwen3.5 and Qwen3-Next in GGUF files. Zero-centred norms are stored plus one; ssm_a is
// -exp(A_log). Qwen3.5's value heads of linear layers are tiled over the key heads instead of
// grouped by them; Qwen3-Next's b and a stay interleaved by key head.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "model/families/families.h"
#include "model/families/gguf.h"

namespace braid {
namespace {

void CopyLinear(GgufKeys& keys, json::object& config) {
  keys.Copy("ssm.group_count", "linear_num_key_heads", config);
  keys.Copy("ssm.time_step_rank", "linear_num_value_heads", config);
  keys.Copy("ssm.state_size", "linear_key_head_dim", config);
  keys.Copy("ssm.conv_kernel", "linear_conv_kernel_dim", config);
  const int64_t heads = keys.IntOr("ssm.time_step_rank", 0);
  const int64_t inner = keys.IntOr("ssm.inner_size", 0);
  if (heads > 0 && inner % heads == 0) config["linear_value_head_dim"] = inner / heads;
}

json::object Config(GgufKeys& keys) {
  json::object config = {{"hidden_act", "silu"}, {"attn_output_gate", true}};
  keys.Copy("embedding_length", "hidden_size", config);
  keys.Copy("context_length", "max_position_embeddings", config);
  keys.Copy("attention.head_count", "num_attention_heads", config);
  keys.Copy("attention.head_count_kv", "num_key_value_heads", config);
  keys.Copy("attention.key_length", "head_dim", config);
  keys.Copy("attention.layer_norm_rms_epsilon", "rms_norm_eps", config);
  keys.Copy("feed_forward_length", "intermediate_size", config);
  keys.Copy("expert_count", "num_experts", config);
  keys.Copy("expert_used_count", "num_experts_per_tok", config);
  keys.Copy("expert_feed_forward_length", "moe_intermediate_size", config);
  keys.Copy("expert_shared_feed_forward_length", "shared_expert_intermediate_size", config);
  keys.Copy("full_attention_interval", "full_attention_interval", config);
  CopyLinear(keys, config);
  keys.Ignore("attention.value_length");
  keys.Ignore("vocab_size");
  keys.Ignore("rope.dimension_sections");  // for text, mrope is plain RoPE
  const int64_t drafts = std::clamp<int64_t>(keys.IntOr("nextn_predict_layers", 0), 0, 8);
  const int64_t layers = std::max<int64_t>(0, keys.IntOr("block_count", 0)) - drafts;
  config["num_hidden_layers"] = layers;
  config["mtp_num_hidden_layers"] = drafts;
  // Where the file does not say how many channels of a head turn, all do, as in llama.cpp.
  const int64_t head_dim = std::max<int64_t>(keys.IntOr("attention.key_length", 1), 1);
  const int64_t rotated = keys.IntOr("rope.dimension_count", head_dim);
  config["rope_parameters"] = {
      {"rope_type", "default"},
      {"rope_theta", keys.NumberOr("rope.freq_base", 0)},
      {"partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(head_dim)}};
  if (const json::value recurrent = keys.Value("attention.recurrent_layers");
      recurrent.is_array()) {
    json::array kinds;
    for (const json::value& item : recurrent.get_array()) {
      if (static_cast<int64_t>(kinds.size()) == layers) break;
      kinds.push_back(item == json::value(true) ? "linear_attention" : "full_attention");
    }
    config["layer_types"] = std::move(kinds);
  }
  const GgufTensor* embedding = keys.Tensor("token_embd.weight");
  if (embedding && embedding->shape.size() == 2) config["vocab_size"] = embedding->shape[0];
  config["tie_word_embeddings"] = keys.Tensor("output.weight") == nullptr;
  return config;
}

void SayLinear(const LinearAttention& m, json::object& keys) {
  keys["ssm.conv_kernel"] = m.conv_width;
  keys["ssm.state_size"] = m.key_dim;
  keys["ssm.group_count"] = m.key_heads;
  keys["ssm.time_step_rank"] = m.value_heads;
  keys["ssm.inner_size"] = int64_t{m.value_heads} * m.value_dim;
}

// The distance of full attention's layers, if they have one.
std::optional<int64_t> IntervalOf(const std::vector<bool>& linear) {
  const auto interval = std::ranges::find(linear, false) - linear.begin() + 1;
  for (size_t i = 0; i < linear.size(); ++i) {
    if (linear[i] != ((static_cast<int64_t>(i) + 1) % interval != 0)) return {};
  }
  return interval;
}

// Full attention, which a model may lack, is said as of the draft head, which always has it.
Result<json::object> Metadata(const ModelSpec& spec) {
  const auto* moe = FirstFfn<MoeFfn>(spec);
  if (moe && !moe->router.renormalise) return NoGgufKeyFor("norm_topk_prob=false");
  if (moe && FirstFfn<DenseFfn>(spec)) {
    return NoGgufKeyFor("dense layers among layers of experts");
  }
  const auto& full = std::get<FullAttention>(spec.draft->layers.front().mixer);
  if (!full.output_gate) return NoGgufKeyFor("attn_output_gate=false");
  const int64_t drafts = DraftBlocks(spec);
  json::object keys = CommonGgufKeys(spec, drafts);
  if (moe) keys["expert_shared_feed_forward_length"] = moe->shared_width;
  keys["attention.head_count"] = full.heads;
  keys["attention.head_count_kv"] = full.kv_heads;
  keys["attention.key_length"] = full.head_dim;
  keys["attention.value_length"] = full.head_dim;
  keys["rope.freq_base"] = full.rotary.theta;
  keys["rope.dimension_count"] = full.rotary.dims;
  std::vector<bool> linear;
  for (const LayerSpec& layer : spec.layers) {
    linear.push_back(std::holds_alternative<LinearAttention>(layer.mixer));
  }
  if (const auto interval = IntervalOf(linear)) keys["full_attention_interval"] = *interval;
  linear.resize(linear.size() + static_cast<size_t>(drafts));
  json::array& recurrent = keys["attention.recurrent_layers"].emplace_array();
  for (const bool is : linear) recurrent.emplace_back(is);
  if (const auto* m = FirstMixer<LinearAttention>(spec)) SayLinear(*m, keys);
  if (drafts > 0) keys["nextn_predict_layers"] = drafts;
  return keys;
}

// Readers of Qwen3.5 files want the parts of a position in an image, which text has alike.
Result<json::object> MetadataWithSections(const ModelSpec& spec) {
  ASSIGN_OR_RETURN(json::object keys, Metadata(spec));
  keys["rope.dimension_sections"] = {11, 11, 10, 0};
  return keys;
}

// The place of value head j in a file: heads of one key head follow each other here, and where a
// file tiles them they stand key_heads apart there. Fused layouts are not tiled.
int64_t TiledHead(const LinearAttention& m, int64_t j) {
  const int64_t ratio = m.value_heads / m.key_heads;
  return m.layout == DeltaLayout::kFused ? j : j % ratio * m.key_heads + j / ratio;
}

// Rows of all value heads in the model's order, `dim` rows each, from row `begin` on.
std::vector<GgufRows> HeadRows(const LinearAttention& m, const std::string& tensor, int64_t begin,
                               int64_t dim) {
  std::vector<GgufRows> rows;
  for (int64_t j = 0; j < m.value_heads; ++j) {
    rows.push_back({tensor, begin + TiledHead(m, j) * dim, dim});
  }
  return rows;
}

std::vector<GgufView::Columns> HeadColumns(const LinearAttention& m, int64_t dim) {
  std::vector<GgufView::Columns> columns;
  for (int64_t j = 0; j < m.value_heads; ++j) columns.push_back({TiledHead(m, j) * dim, dim});
  return columns;
}

// b and a of the value heads of one key head follow each other.
void MapFusedGates(const LinearAttention& m, int64_t hidden, const std::string& base,
                   const std::string& from, GgufNames& names) {
  const int64_t ratio = m.value_heads / m.key_heads;
  std::vector<GgufRows> b, a;
  for (int64_t h = 0; h < m.key_heads; ++h) {
    b.push_back({from + "ssm_ba.weight", 2 * ratio * h, ratio});
    a.push_back({from + "ssm_ba.weight", 2 * ratio * h + ratio, ratio});
  }
  names.Rows(base + "in_proj_b.weight", {m.value_heads, hidden}, b);
  names.Rows(base + "in_proj_a.weight", {m.value_heads, hidden}, a);
}

void MapLinear(const LinearAttention& m, int64_t hidden, const std::string& to,
               const std::string& from, GgufNames& names) {
  const std::string base = to + "linear_attn.";
  const int64_t keys = int64_t{2} * m.key_heads * m.key_dim, dv = m.value_dim;
  const int64_t values = m.value_heads * dv;
  const auto with_values = [&](const std::string& tensor) {
    std::vector<GgufRows> rows = {{tensor, 0, keys}};
    for (GgufRows& head : HeadRows(m, tensor, keys, dv)) rows.push_back(std::move(head));
    return rows;
  };
  names.Rows(base + "in_proj_qkv.weight", {keys + values, hidden},
             with_values(from + "attn_qkv.weight"));
  names.Rows(base + "in_proj_z.weight", {values, hidden},
             HeadRows(m, from + "attn_gate.weight", 0, dv));
  if (m.layout == DeltaLayout::kFused) {
    MapFusedGates(m, hidden, base, from, names);
  } else {
    names.Rows(base + "in_proj_b.weight", {m.value_heads, hidden},
               HeadRows(m, from + "ssm_beta.weight", 0, 1));
    names.Rows(base + "in_proj_a.weight", {m.value_heads, hidden},
               HeadRows(m, from + "ssm_alpha.weight", 0, 1));
  }
  names.Rows(base + "conv1d.weight", {keys + values, 1, m.conv_width},
             with_values(from + "ssm_conv1d.weight"));
  names.Whole(base + "A_log", from + "ssm_a");
  names.Columns(HeadColumns(m, 1));
  names.LogOfNegative();
  names.Whole(base + "dt_bias", from + "ssm_dt.bias");
  names.Columns(HeadColumns(m, 1));
  names.Whole(base + "norm.weight", from + "ssm_norm.weight");
  names.Whole(base + "out_proj.weight", from + "ssm_out.weight");
  names.Columns(HeadColumns(m, dv));
}

void MapMoe(const MoeFfn& moe, int64_t hidden, const std::string& to, const std::string& from,
            GgufNames& names) {
  const std::string base = to + "mlp.";
  MapExperts(moe, hidden, base, from, names);
  names.Whole(base + "shared_expert_gate.weight", from + "ffn_gate_inp_shexp.weight");
  for (const char* part : {"gate", "up", "down"}) {
    names.Whole(fmt::format("{}shared_expert.{}_proj.weight", base, part),
                fmt::format("{}ffn_{}_shexp.weight", from, part));
  }
}

void MapLayer(const LayerSpec& layer, int64_t hidden, const std::string& to,
              const std::string& from, GgufNames& names) {
  names.Whole(to + "input_layernorm.weight", from + "attn_norm.weight");
  names.Whole(to + "post_attention_layernorm.weight", from + "post_attention_norm.weight");
  if (const auto* linear = std::get_if<LinearAttention>(&layer.mixer)) {
    MapLinear(*linear, hidden, to, from, names);
  } else {
    MapFullAttention(to, from, names);
  }
  if (const auto* moe = std::get_if<MoeFfn>(&layer.ffn)) {
    MapMoe(*moe, hidden, to, from, names);
  } else {
    MapDense(to, from, names);
  }
}

void Map(ModelSpec& spec, GgufNames& names) {
  spec.norm.offset = 0;
  names.Whole("model.embed_tokens.weight", "token_embd.weight");
  names.Whole("model.norm.weight", "output_norm.weight");
  names.Whole("lm_head.weight", "output.weight");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    MapLayer(spec.layers[i], spec.hidden, fmt::format("model.layers.{}.", i),
             fmt::format("blk.{}.", i), names);
    auto* linear = std::get_if<LinearAttention>(&spec.layers[i].mixer);
    if (linear) linear->layout = DeltaLayout::kSeparate;  // what the names make of a fused one
  }
  const auto behind = static_cast<int64_t>(spec.layers.size());
  if (MapDraftHead(spec, behind, names)) {
    const LayerSpec& layer = spec.draft->layers.front();
    MapLayer(layer, spec.hidden, layer.prefix, fmt::format("blk.{}.", behind), names);
  }
}

}  // namespace

GgufFamily Qwen3_5Gguf() {
  return {
      .architectures = {{"qwen35", "Qwen3_5ForCausalLM"}, {"qwen35moe", "Qwen3_5MoeForCausalLM"}},
      .config = Config,
      .map = Map,
      .metadata = MetadataWithSections};
}

GgufFamily Qwen3NextGguf() {
  return {.architectures = {{"qwen3next", "Qwen3NextForCausalLM"}},
          .config = Config,
          .map = Map,
          .metadata = Metadata};
}

}  // namespace braid
