// The tensors of linear mixers in the layouts that checkpoints have (specs of the families), as one
// input projection [q; k; v; output gate], a small one [update gate; decay] that is never
// quantised, and the vectors beside them.
#include <string>
#include <utility>
#include <vector>

#include "model/mixers/linear_attention.h"

namespace braid {
namespace {

// Rows of one component (q, k, v, z, b or a) of a tensor that interleaves components per key head:
// in each of `heads` blocks of `block` rows, `count` rows from `offset`.
std::vector<RowRange> PerHead(int64_t heads, int64_t block, int64_t offset, int64_t count) {
  std::vector<RowRange> rows;
  for (int64_t h = 0; h < heads; ++h) rows.push_back({h * block + offset, count});
  return rows;
}

// Rows of the input projection and of the small one.
struct InPieces {
  std::vector<Piece> in, gates;
};

InPieces FusedPieces(const LinearAttention& m, const std::string& base, int64_t hidden) {
  const int64_t heads = m.key_heads, ratio = m.value_heads / m.key_heads;
  const int64_t dk = m.key_dim, dv = ratio * m.value_dim, block = 2 * dk + 2 * dv;
  const std::string qkvz = base + "in_proj_qkvz.weight", ba = base + "in_proj_ba.weight";
  const std::vector<int64_t> qkvz_shape = {heads * block, hidden};
  const std::vector<int64_t> ba_shape = {2 * int64_t{m.value_heads}, hidden};
  return {.in = {{qkvz, qkvz_shape, PerHead(heads, block, 0, dk)},
                 {qkvz, qkvz_shape, PerHead(heads, block, dk, dk)},
                 {qkvz, qkvz_shape, PerHead(heads, block, 2 * dk, dv)},
                 {qkvz, qkvz_shape, PerHead(heads, block, 2 * dk + dv, dv)}},
          .gates = {{ba, ba_shape, PerHead(heads, 2 * ratio, 0, ratio)},
                    {ba, ba_shape, PerHead(heads, 2 * ratio, ratio, ratio)}}};
}

// A tensor of several components, a piece for each: ranks divide every one of them.
void AppendComponents(const std::string& tensor, const std::vector<int64_t>& counts,
                      std::vector<int64_t> row_shape, std::vector<Piece>& pieces) {
  int64_t rows = 0, begin = 0;
  for (const int64_t count : counts) rows += count;
  row_shape.insert(row_shape.begin(), rows);
  for (const int64_t count : counts) {
    pieces.push_back({tensor, row_shape, {{begin, count}}});
    begin += count;
  }
}

// Whole tensors, one after the other.
InPieces WholePieces(const LinearAttention& m, const std::string& base, int64_t hidden) {
  const LinearRows rows = RowsOf(m);
  auto pieces = [&](std::vector<std::pair<const char*, int64_t>> parts) {
    std::vector<Piece> all;
    for (const auto& [name, count] : parts) {
      all.push_back({base + name + ".weight", {count, hidden}, {}});
    }
    return all;
  };
  const bool packed = m.layout == DeltaLayout::kPacked;
  std::vector<Piece> in;
  if (packed || m.layout == DeltaLayout::kSeparate) {
    AppendComponents(base + (packed ? "query_key_value.weight" : "in_proj_qkv.weight"),
                     {rows.key, rows.key, rows.value}, {hidden}, in);
    in.push_back(pieces({{packed ? "g_proj" : "in_proj_z", rows.gate}}).front());
  }
  switch (m.layout) {
    case DeltaLayout::kSeparate:
      return {.in = std::move(in),
              .gates = pieces({{"in_proj_b", rows.update}, {"in_proj_a", rows.decay}})};
    case DeltaLayout::kPerTensor:
      return {.in = pieces({{"q_proj", rows.key},
                            {"k_proj", rows.key},
                            {"v_proj", rows.value},
                            {m.gate_lora_rank > 0 ? "g_a_proj" : "g_proj", rows.gate}}),
              .gates = pieces({{"b_proj", rows.update},
                               {m.gate_lora_rank > 0 ? "f_a_proj" : "f_proj", rows.decay}})};
    default:
      return {.in = std::move(in), .gates = {}};
  }
}

// Names of the output projection and of the output norm, alternatives.
std::vector<std::string> OutNames(const LinearAttention& m) {
  switch (m.layout) {
    case DeltaLayout::kPerTensor:
      return {"o_proj", "dense"};  // a library's export renames it like its sibling's
    case DeltaLayout::kPacked:
      return {"dense"};
    default:
      return {"out_proj"};
  }
}
const char* NormName(const LinearAttention& m) {
  switch (m.layout) {
    case DeltaLayout::kPerTensor:
      return "o_norm.weight";
    case DeltaLayout::kPacked:
      return "g_norm.weight";
    default:
      return "norm.weight";
  }
}

// Of the projection [q; k; v].
std::vector<RowUnits> QkvUnits(const LinearAttention& m) {
  return {{ShardUnit::kKeyHead, m.key_heads, m.key_dim},
          {ShardUnit::kKeyHead, m.key_heads, m.key_dim},
          {ShardUnit::kHead, m.value_heads, m.value_dim}};
}

int64_t DecaysPerHead(const LinearAttention& m) { return m.channel_decay ? m.key_dim : 1; }

WeightSpec ConvWeight(const LinearAttention& m, const std::string& base) {
  const LinearRows rows = RowsOf(m);
  const int64_t width = m.conv_width;
  std::vector<Piece> pieces;
  if (m.layout != DeltaLayout::kPerTensor) {
    AppendComponents(base + "conv1d.weight", {rows.key, rows.key, rows.value}, {1, width}, pieces);
  } else {
    pieces = {{base + "q_conv1d.weight", {rows.key, 1, width}, {}},
              {base + "k_conv1d.weight", {rows.key, 1, width}, {}},
              {base + "v_conv1d.weight", {rows.value, 1, width}, {}}};
  }
  return {.name = base + "conv1d",
          .use = WeightUse::kVector,
          .n = rows.conv,
          .k = width,
          .units = QkvUnits(m),
          .transpose = true,
          .sources = {std::move(pieces)}};
}

WeightSpec InWeight(const LinearAttention& m, const std::string& base, int64_t hidden,
                    std::vector<Piece> pieces) {
  const LinearRows rows = RowsOf(m);
  std::vector<RowUnits> units = QkvUnits(m);
  units.push_back(m.gate_lora_rank > 0 ? RowUnits{ShardUnit::kWhole, 1, m.gate_lora_rank}
                                       : RowUnits{ShardUnit::kHead, m.value_heads, m.value_dim});
  return {.name = base + "in_proj",
          .n = rows.in(),
          .k = hidden,
          .units = std::move(units),
          .sources = {std::move(pieces)}};
}

WeightSpec GatesWeight(const LinearAttention& m, const std::string& base, int64_t hidden,
                       std::vector<Piece> pieces) {
  const LinearRows rows = RowsOf(m);
  std::vector<RowUnits> units;
  if (rows.update > 0) units.push_back({ShardUnit::kHead, m.value_heads});
  if (rows.decay > 0) {
    units.push_back(m.gate_lora_rank > 0
                        ? RowUnits{ShardUnit::kWhole, 1, m.gate_lora_rank}
                        : RowUnits{ShardUnit::kHead, m.value_heads, DecaysPerHead(m)});
  }
  return {.name = base + "gates",
          .n = rows.gates(),
          .k = hidden,
          .units = std::move(units),
          .quantisable = Quantisable::kNever,
          .sources = {std::move(pieces)}};
}

WeightSpec OutWeight(const LinearAttention& m, const std::string& base, int64_t hidden) {
  const int64_t values = RowsOf(m).value;
  WeightSpec out{
      .name = base + "out_proj", .n = hidden, .k = values, .units = {{ShardUnit::kRow, hidden}}};
  for (const std::string& name : OutNames(m)) {
    out.sources.push_back({{base + name + ".weight", {hidden, values}, {}}});
  }
  return out;
}

}  // namespace

LinearRows RowsOf(const LinearAttention& m) {
  LinearRows rows;
  rows.key = int64_t{m.key_heads} * m.key_dim;
  rows.value = int64_t{m.value_heads} * m.value_dim;
  rows.conv = 2 * rows.key + rows.value;
  rows.gate = m.gate_lora_rank > 0 ? m.gate_lora_rank : rows.value;
  rows.update = m.rule.add ? 0 : m.value_heads;
  if (m.rule.decay != ops::DecayForm::kConstant) {
    const int64_t all = int64_t{m.value_heads} * (m.channel_decay ? m.key_dim : 1);
    rows.decay = m.gate_lora_rank > 0 ? m.gate_lora_rank : all;
  }
  return rows;
}

void ListWeights(const LinearAttention& m, const LayerPlace& place, LinearAttentionWeights& w,
                 WeightList& list) {
  const std::string base = place.prefix + m.module;
  const LinearRows rows = RowsOf(m);
  const int64_t hidden = place.hidden, heads = m.value_heads;
  const bool fused = m.layout == DeltaLayout::kFused;
  InPieces pieces = fused ? FusedPieces(m, base, hidden) : WholePieces(m, base, hidden);
  auto vector = [&](Weight& weight, const char* name, int64_t n, std::vector<RowUnits> units) {
    list.push_back({&weight,
                    {.name = base + name,
                     .use = WeightUse::kVector,
                     .n = n,
                     .units = std::move(units),
                     .sources = {{{base + name, {n}, {}}}}}});
  };
  auto from_low_rank = [&](Weight& weight, const char* name, int64_t head_rows) {
    const int64_t n = heads * head_rows;
    list.push_back({&weight,
                    {.name = base + name,
                     .n = n,
                     .k = m.gate_lora_rank,
                     .units = {{ShardUnit::kHead, heads, head_rows}},
                     .sources = {{{base + name + ".weight", {n, m.gate_lora_rank}, {}}}}}});
  };
  list.push_back({&w.in, InWeight(m, base, hidden, std::move(pieces.in))});
  list.push_back({&w.out, OutWeight(m, base, hidden)});
  if (rows.gates() > 0) {
    list.push_back({&w.gates, GatesWeight(m, base, hidden, std::move(pieces.gates))});
  }
  if (m.conv_width > 1) list.push_back({&w.conv, ConvWeight(m, base)});
  if (m.rule.decay != ops::DecayForm::kConstant) {
    const int64_t decays = DecaysPerHead(m);
    vector(w.a_log, "A_log", heads, {{ShardUnit::kHead, heads}});
    vector(w.dt_bias, "dt_bias", heads * decays, {{ShardUnit::kHead, heads, decays}});
  }
  if (m.norm_groups > 0) {
    vector(w.norm, NormName(m), rows.value,
           {{ShardUnit::kGroup, m.norm_groups, rows.value / m.norm_groups}});
  } else {
    vector(w.norm, NormName(m), m.value_dim, {});
  }
  if (m.qk_norm) {
    vector(w.q_norm, "query_layernorm.weight", m.key_dim, {});
    vector(w.k_norm, "key_layernorm.weight", m.key_dim, {});
  }
  if (m.gate_lora_rank == 0) return;
  from_low_rank(w.gate_up, "g_b_proj", m.value_dim);
  from_low_rank(w.decay_up, "f_b_proj", DecaysPerHead(m));
  list.back().spec.quantisable = Quantisable::kNever;
}

}  // namespace braid
