// Layer by layer: the layouts are those of ops/attention.h and ops/linear_attention.h.
#include "parallel/page_layout.h"

#include <variant>

#include "base/check.h"
#include "parallel/rank_view.h"

namespace braid {
namespace {

using Runs = std::vector<PageRun>;

// A run of `units` of equal size, of which the rank holds some.
struct Units {
  int64_t whole = 0, own = 0;  // where the first of all, and the first of the rank's, lies
  int64_t bytes = 0;           // of one
};

void Add(const RowRange& held, const Units& units, Runs& runs) {
  runs.push_back({.whole = units.whole + held.begin * units.bytes,
                  .own = units.own,
                  .bytes = held.count * units.bytes});
}

// A kv head's keys, values and scales lie together.
void AddMixer(const FullAttention& m, const FullAttention&, const Share& share,
              const CacheNeed& whole, Runs& runs) {
  Add(share.OfShared(m.kv_heads), {.bytes = whole.block_bytes / m.kv_heads}, runs);
}

// Every rank has the latent vectors.
void AddMixer(const LatentAttention&, const LatentAttention&, const Share&, const CacheNeed& whole,
              Runs& runs) {
  runs.push_back({0, 0, whole.block_bytes});
}

ops::LinearAttentionShape ShapeOf(const LinearAttention& m) {
  return {.key_heads = m.key_heads,
          .value_heads = m.value_heads,
          .key_dim = m.key_dim,
          .value_dim = m.value_dim,
          .conv_width = m.conv_width,
          .channel_decay = m.channel_decay,
          .drafts_max = m.drafts_max,
          .state_dtype = m.state_dtype};
}

void AddMixer(const LinearAttention& m, const LinearAttention& own_m, const Share& share,
              const CacheNeed&, Runs& runs) {
  constexpr int64_t kFloat = sizeof(float);
  const ops::LinearAttentionShape all = ShapeOf(m), own = ShapeOf(own_m);
  const RowRange keys = share.OfShared(m.key_heads), values = share.Of(m.value_heads);
  Add(values, {.bytes = all.head_bytes()}, runs);
  Add(values,
      {.whole = all.decay_offset(),
       .own = own.decay_offset(),
       .bytes = kBlockTokens * all.decay_width() * kFloat},
      runs);
  for (int64_t row = 0; row < all.window_rows(); ++row) {
    int64_t whole_at = all.window_offset() + row * all.conv_channels() * kFloat;
    int64_t own_at = own.window_offset() + row * own.conv_channels() * kFloat;
    const auto channels = [&](const RowRange& held, int64_t heads, int64_t dim) {
      Add(held, {.whole = whole_at, .own = own_at, .bytes = dim * kFloat}, runs);
      whole_at += heads * dim * kFloat;
      own_at += held.count * dim * kFloat;
    };
    channels(keys, m.key_heads, m.key_dim);  // queries
    channels(keys, m.key_heads, m.key_dim);
    channels(values, m.value_heads, m.value_dim);
  }
}

class RankLayout {
 public:
  RankLayout(const ModelSpec& spec, const RankView& view, DType kv_dtype)
      : spec_(spec),
        view_(view),
        kv_dtype_(kv_dtype),
        whole_(CachePlanOf(spec, kv_dtype)),
        own_(CachePlanOf(view.spec, kv_dtype)) {
    pages_.runs.resize(whole_.groups.size());
  }

  RankPages Build() {
    AddLayers(spec_.layers, view_.spec.layers, whole_.slices, own_.slices);
    if (!spec_.draft || !spec_.draft->used) return std::move(pages_);
    AddLayers(spec_.draft->layers, view_.spec.draft->layers, whole_.draft.layers,
              own_.draft.layers);
    // Every rank has the whole state of the last token.
    const ops::CacheSlice& last = whole_.draft.last_state;
    pages_.runs[static_cast<size_t>(last.group)].push_back(
        {last.byte_offset, own_.draft.last_state.byte_offset,
         int64_t{spec_.hidden} * static_cast<int64_t>(sizeof(float))});
    return std::move(pages_);
  }

 private:
  void AddLayers(const std::vector<LayerSpec>& all, const std::vector<LayerSpec>& own,
                 const std::vector<ops::CacheSlice>& all_slices,
                 const std::vector<ops::CacheSlice>& own_slices) {
    for (size_t i = 0; i < all.size(); ++i) {
      Runs& runs = pages_.runs[static_cast<size_t>(all_slices[i].group)];
      const size_t first = runs.size();
      std::visit(
          [&](const auto& mixer) {
            using Kind = std::decay_t<decltype(mixer)>;
            AddMixer(mixer, std::get<Kind>(own[i].mixer), view_.tensor(), CacheOf(mixer, kv_dtype_),
                     runs);
          },
          all[i].mixer);
      for (size_t r = first; r < runs.size(); ++r) {
        runs[r].whole += all_slices[i].byte_offset;
        runs[r].own += own_slices[i].byte_offset;
      }
    }
  }

  const ModelSpec& spec_;
  const RankView& view_;
  const DType kv_dtype_;
  const CachePlan whole_, own_;
  RankPages pages_;
};

}  // namespace

PageLayout PageLayoutOf(const ModelSpec& spec, const Mesh& mesh, DType kv_dtype) {
  PageLayout layout;
  for (const GroupGeometry& group : CachePlanOf(spec, kv_dtype).groups) {
    layout.block_bytes.push_back(group.block_bytes);
  }
  for (int32_t rank = 0; rank < mesh.tp; ++rank) {
    const Result<RankView> view = ViewOf(spec, mesh, rank);
    CHECK(view.ok(), "{}", view.ok() ? "" : view.error().message);
    layout.ranks.push_back(RankLayout(spec, *view, kv_dtype).Build());
  }
  return layout;
}

}  // namespace braid
