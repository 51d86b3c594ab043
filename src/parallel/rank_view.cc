// A rank's part of every kind of layer and of every weight.
#include "parallel/rank_view.h"

#include <variant>

#include "base/check.h"

namespace braid {
namespace {

int32_t Count(RowRange range) { return static_cast<int32_t>(range.count); }

void Keep(const Share& tensor, FullAttention& m) {
  m.heads = Count(tensor.Of(m.heads));
  m.kv_heads = Count(tensor.OfShared(m.kv_heads));
}
void Keep(const Share& tensor, LatentAttention& m) { m.heads = Count(tensor.Of(m.heads)); }
void Keep(const Share& tensor, LinearAttention& m) {
  const RowRange heads = tensor.Of(m.value_heads);
  if (!m.constant_decay.empty()) {
    const auto first = m.constant_decay.begin() + heads.begin;
    m.constant_decay = std::vector<float>(first, first + heads.count);
  }
  m.value_heads = Count(heads);
  m.key_heads = Count(tensor.OfShared(m.key_heads));
  m.norm_groups = Count(tensor.Of(m.norm_groups));
}
void Keep(const Share& tensor, DenseFfn& f) { f.width = Count(tensor.Of(f.width)); }
void Keep(const Share& tensor, MoeFfn& f) { f.shared_width = Count(tensor.Of(f.shared_width)); }

void KeepLayers(const Share& tensor, std::vector<LayerSpec>& layers) {
  for (LayerSpec& layer : layers) {
    std::visit([&](auto& kind) { Keep(tensor, kind); }, layer.mixer);
    std::visit([&](auto& kind) { Keep(tensor, kind); }, layer.ffn);
  }
}

RowRange UnitsOf(const RankView& view, const RowUnits& units) {
  switch (units.unit) {
    case ShardUnit::kHead:
    case ShardUnit::kGroup:
    case ShardUnit::kRow:
      return view.tensor().Of(units.count);
    case ShardUnit::kKeyHead:
      return view.tensor().OfShared(units.count);
    case ShardUnit::kExpert:
      return view.experts().Of(units.count);
    case ShardUnit::kWhole:
      return {0, units.count};
  }
  CHECK(false, "no such unit");
}

}  // namespace

std::vector<RowRange> RankView::RowsOf(const WeightSpec& weight) const {
  if (weight.units.empty()) return {{0, weight.count * weight.n}};
  std::vector<RowRange> rows;
  int64_t first = 0;
  for (const RowUnits& units : weight.units) {
    const RowRange held = UnitsOf(*this, units);
    rows.push_back({first + held.begin * units.rows, held.count * units.rows});
    first += units.count * units.rows;
  }
  return rows;
}

Result<RankView> ViewOf(const ModelSpec& spec, const Mesh& mesh, int32_t rank) {
  RETURN_IF_ERROR(CheckMesh(spec, mesh));
  CHECK(rank >= 0 && rank < mesh.ranks(), "rank {} of {}", rank, mesh.ranks());
  RankView view{.mesh = mesh, .rank = rank, .spec = spec};
  KeepLayers(view.tensor(), view.spec.layers);
  if (view.spec.draft) KeepLayers(view.tensor(), view.spec.draft->layers);
  return view;
}

}  // namespace braid
