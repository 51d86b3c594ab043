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
                            {m.gate_rank > 0 ? "g_a_proj" : "g_proj", rows.gate}}),
              .gates = pieces({{"b_proj", rows.update},
                               {m.gate_rank > 0 ? "f_a_proj" : "f_proj", rows.decay}})};
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
          .shard = Shard::kRows,
          .transpose = true,
          .sources = {std::move(pieces)}};
}

}  // namespace

LinearRows RowsOf(const LinearAttention& m) {
  LinearRows rows;
  rows.key = int64_t{m.key_heads} * m.key_dim;
  rows.value = int64_t{m.value_heads} * m.value_dim;
  rows.conv = 2 * rows.key + rows.value;
  rows.gate = m.gate_rank > 0 ? m.gate_rank : rows.value;
  rows.update = m.rule.add ? 0 : m.value_heads;
  if (m.rule.decay != ops::DecayForm::kConstant) {
    const int64_t all = int64_t{m.value_heads} * (m.channel_decay ? m.key_dim : 1);
    rows.decay = m.gate_rank > 0 ? m.gate_rank : all;
  }
  return rows;
}

LinearSlots SlotsOf(const LinearAttention& m) {
  LinearSlots slots;
  size_t next = 2;
  if (RowsOf(m).gates() > 0) slots.gates = next++;
  if (m.conv_width > 1) slots.conv = next++;
  if (m.rule.decay != ops::DecayForm::kConstant) {
    slots.a_log = next++;
    slots.dt_bias = next++;
  }
  slots.norm = next++;
  if (m.qk_norm) {
    slots.q_norm = next++;
    slots.k_norm = next++;
  }
  if (m.gate_rank > 0) {
    slots.gate_up = next++;
    slots.decay_up = next++;
  }
  return slots;
}

std::vector<WeightSpec> WeightsOf(const LinearAttention& m, const LayerPlace& place) {
  const std::string base = place.prefix + m.module;
  const LinearRows rows = RowsOf(m);
  const LinearSlots slots = SlotsOf(m);
  auto vector = [&](const char* name, int64_t n) {
    return WeightSpec{.name = base + name,
                      .use = WeightUse::kVector,
                      .n = n,
                      .sources = {{{base + name, {n}, {}}}}};
  };
  auto from_rank = [&](const char* name, int64_t n) {
    return WeightSpec{.name = base + name,
                      .n = n,
                      .k = m.gate_rank,
                      .shard = Shard::kRows,
                      .sources = {{{base + name + ".weight", {n, m.gate_rank}, {}}}}};
  };
  const bool fused = m.layout == DeltaLayout::kFused;
  InPieces pieces = fused ? FusedPieces(m, base, place.hidden) : WholePieces(m, base, place.hidden);
  std::vector<WeightSpec> specs = {
      {.name = base + "in_proj",
       .n = rows.in(),
       .k = place.hidden,
       .shard = Shard::kRows,
       .sources = {std::move(pieces.in)}},
      {.name = base + "out_proj", .n = place.hidden, .k = rows.value, .shard = Shard::kColumns}};
  for (const std::string& name : OutNames(m)) {
    specs[slots.out].sources.push_back({{base + name + ".weight", {place.hidden, rows.value}, {}}});
  }
  if (slots.gates) {
    specs.push_back({.name = base + "gates",
                     .n = rows.gates(),
                     .k = place.hidden,
                     .shard = Shard::kRows,
                     .quantisable = Quantisable::kNever,
                     .sources = {std::move(pieces.gates)}});
  }
  const int64_t decays = int64_t{m.value_heads} * (m.channel_decay ? m.key_dim : 1);
  if (slots.conv) specs.push_back(ConvWeight(m, base));
  if (slots.a_log) specs.push_back(vector("A_log", m.value_heads));
  if (slots.dt_bias) specs.push_back(vector("dt_bias", decays));
  specs.push_back(vector(NormName(m), m.norm_groups > 0 ? rows.value : m.value_dim));
  if (slots.q_norm) specs.push_back(vector("query_layernorm.weight", m.key_dim));
  if (slots.k_norm) specs.push_back(vector("key_layernorm.weight", m.key_dim));
  if (slots.gate_up) specs.push_back(from_rank("g_b_proj", rows.value));
  if (slots.decay_up) {
    specs.push_back(from_rank("f_b_proj", decays));
    specs.back().quantisable = Quantisable::kNever;
  }
  return specs;
}

}  // namespace braid
