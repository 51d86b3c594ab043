// A rank's part of every kind of layer and of every weight.
#include "parallel/rank_view.h"

#include <utility>
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

// Of the experts in the rank's slots, neighbours together.
std::vector<RowRange> ExpertsOf(const RankView& view, const WeightSpec& weight,
                                const RowUnits& units) {
  const LayerSlots slots = view.SlotsOf(weight.layer, units.count);
  const RowRange own = view.experts().Of(std::ssize(slots));
  std::vector<RowRange> experts;
  for (int64_t slot = own.begin; slot < own.begin + own.count; ++slot) {
    const int64_t expert = slots[static_cast<size_t>(slot)];
    if (experts.empty() || experts.back().begin + experts.back().count != expert) {
      experts.push_back({expert, 0});
    }
    ++experts.back().count;
  }
  return experts;
}

std::vector<RowRange> UnitsOf(const RankView& view, const WeightSpec& weight,
                              const RowUnits& units) {
  switch (units.unit) {
    case ShardUnit::kHead:
    case ShardUnit::kGroup:
    case ShardUnit::kRow:
      return {view.tensor().Of(units.count)};
    case ShardUnit::kKeyHead:
      return {view.tensor().OfShared(units.count)};
    case ShardUnit::kExpert:
      return ExpertsOf(view, weight, units);
    case ShardUnit::kWhole:
      return {{0, units.count}};
  }
  CHECK(false, "no such unit");
}

}  // namespace

LayerSlots RankView::SlotsOf(int32_t layer, int64_t experts) const {
  const auto at = static_cast<size_t>(layer);
  if (layer >= 0 && at < placement.size() && !placement[at].empty()) return placement[at];
  return InOrder(mesh.SlotsOf(experts));
}

std::vector<RowRange> RankView::RowsOf(const WeightSpec& weight) const {
  if (weight.units.empty()) return {{0, weight.count * weight.n}};
  std::vector<RowRange> rows;
  int64_t first = 0;
  for (const RowUnits& units : weight.units) {
    for (const RowRange& held : UnitsOf(*this, weight, units)) {
      rows.push_back({first + held.begin * units.rows, held.count * units.rows});
    }
    first += units.count * units.rows;
  }
  return rows;
}

Result<RankView> ViewOf(const ModelSpec& spec, const Mesh& mesh, int32_t rank,
                        std::vector<LayerSlots> placement) {
  RETURN_IF_ERROR(CheckMesh(spec, mesh));
  CHECK(rank >= 0 && rank < mesh.ranks(), "rank {} of {}", rank, mesh.ranks());
  RankView view{.mesh = mesh, .rank = rank, .spec = spec, .placement = std::move(placement)};
  KeepLayers(view.tensor(), view.spec.layers);
  if (view.spec.draft) KeepLayers(view.tensor(), view.spec.draft->layers);
  return view;
}

}  // namespace braid
