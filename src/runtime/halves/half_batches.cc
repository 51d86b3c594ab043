// See the header.
#include "runtime/halves/half_batches.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <variant>

#include "base/block.h"
#include "base/check.h"
#include "base/math.h"

namespace braid {
namespace {

// The tables of a sequence that is cut at position `at`, which ends a block: the state there gets
// memory if it has none.
void GiveStateMemory(const CutRule& rule, int32_t at, int32_t end, ops::SequenceSpan& span,
                     CutBatch& cut) {
  const auto before = static_cast<size_t>(at / kBlockTokens - 1);
  const auto entries = static_cast<size_t>(end / kBlockTokens + 1);
  for (size_t g = 0; g < rule.cache->groups.size(); ++g) {
    if (rule.cache->groups[g].kind != GroupKind::kState) continue;
    if (span.tables[g] == nullptr || span.tables[g][before] != nullptr) continue;
    cut.tables[g].assign(span.tables[g], span.tables[g] + entries);
    cut.tables[g][before] = rule.scratch[g];
    span.tables[g] = cut.tables[g].data();
  }
}

// Whether the form of latent attention depends on where a sequence is cut.
bool ExpandsLatent(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
    const auto* latent = std::get_if<LatentAttention>(&layer.mixer);
    return latent != nullptr && latent->expanded_tokens_min > 0;
  });
}

// Where to cut a sequence of `span` from `least` of its tokens on, counted from its first; all of
// them: not inside it.
int32_t PlaceInside(const ops::SequenceSpan& span, int32_t least) {
  // Rows of less are not worth it, and so no row of drafts is cut.
  constexpr int32_t kCutTokensLeast = 2 * kBlockTokens;
  if (span.token_count < kCutTokensLeast) return span.token_count;
  const int32_t at =
      static_cast<int32_t>(RoundUp(span.start + least, int64_t{kBlockTokens})) - span.start;
  return std::min(at, span.token_count);
}

}  // namespace

void CutInHalves(const ops::SequenceIndex& all, const CutRule& rule, CutBatch& cut) {
  for (std::vector<ops::SequenceSpan>& spans : cut.spans) spans.clear();
  const int32_t middle = (all.tokens + 1) / 2;
  cut.tokens = {};
  for (int32_t i = 0; i < all.count; ++i) {
    ops::SequenceSpan span = all.spans[i];
    const int32_t least = middle - span.token_begin;  // of its tokens, in the first half
    int32_t first = least <= 0 ? 0 : span.token_count;
    if (rule.inside && least > 0 && least < span.token_count) first = PlaceInside(span, least);
    if (first > 0 && first < span.token_count) {
      GiveStateMemory(rule, span.start + first, span.start + span.token_count, span, cut);
    }
    if (first > 0) {
      ops::SequenceSpan part = span;
      part.token_count = first;
      cut.spans[0].push_back(part);
      cut.tokens[0] += first;
    }
    if (first < span.token_count) {
      ops::SequenceSpan part = span;
      part.token_begin = cut.tokens[1];
      part.token_count = span.token_count - first;
      part.start = span.start + first;
      cut.spans[1].push_back(part);
      cut.tokens[1] += part.token_count;
    }
  }
}

struct HalfBatches::State {
  // The first half says how far it has come in the layers, the second does not overtake it.
  struct Leads final : LayerWatch {
    explicit Leads(Turns& t) : turns(t) {}
    void BeforeMixer(int32_t) override {}
    void AfterMixer(int32_t layer) override { turns.Reach(layer + 1); }
    Turns& turns;
  };
  struct Follows final : LayerWatch {
    explicit Follows(Turns& t) : turns(t) {}
    void BeforeMixer(int32_t layer) override { turns.Await(layer + 1); }
    void AfterMixer(int32_t) override {}
    Turns& turns;
  };

  ThreadPool& pool;
  Turns turns;
  Leads leads{turns};
  Follows follows{turns};
  std::array<ops::Ranks, 2> ranks;
  std::vector<std::unique_ptr<Communicator>> groups;  // those of `ranks`
  Workspace workspace;
  Buffer scratch;
  CutRule rule;
  CutBatch cut;

  std::mutex mutex;
  std::condition_variable changed;
  const std::function<void()>* second = nullptr;  // what its thread is to do
  bool stop = false;
  std::thread thread;

  explicit State(const Parts& parts)
      : pool(parts.pool), ranks(parts.groups), workspace(parts.workspace_bytes) {
    for (ops::Ranks& of_half : ranks) {
      for (Communicator** group : {&of_half.tensor, &of_half.experts}) {
        groups.push_back(GivingTurns(**group, turns));
        *group = groups.back().get();
      }
    }
    rule.cache = &parts.cache;
    rule.inside = !ExpandsLatent(parts.spec);
    int64_t bytes = 0;
    const auto place = [&](const GroupGeometry& group) {
      const int64_t at = bytes;
      if (group.kind == GroupKind::kState) bytes += RoundUp(group.block_bytes, 64);
      return at;
    };
    std::vector<int64_t> places;
    for (const GroupGeometry& group : parts.cache.groups) places.push_back(place(group));
    scratch = Buffer(bytes);
    for (size_t g = 0; g < places.size(); ++g) rule.scratch[g] = scratch.data() + places[g];
    thread = std::thread([this] { Serve(); });
  }

  void Serve() {
    ::pthread_setname_np(::pthread_self(), "braid-half");
    pool.BindCaller();
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stop || second != nullptr; });
      if (stop) return;
      lock.unlock();
      (*second)();
      lock.lock();
      second = nullptr;
      changed.notify_all();
    }
  }
};

HalfBatches::HalfBatches(const Parts& parts) : state_(std::make_unique<State>(parts)) {}

HalfBatches::~HalfBatches() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Status HalfBatches::Run(const ops::OpContext& context, const ops::SequenceIndex& all,
                        const std::function<void(const Half&)>& forward) {
  State& s = *state_;
  CutInHalves(all, s.rule, s.cut);
  for (ops::Ranks& ranks : s.ranks) {
    ranks.parcel_rows = context.ranks->parcel_rows;
    ranks.sums = context.ranks->sums;
    ranks.status = context.ranks->status;
  }
  ops::OpContext first = context, second = context;
  first.ranks = &s.ranks[0];
  second.ranks = &s.ranks[1];
  second.workspace = &s.workspace;
  s.turns.Reset();
  const std::function<void()> rest = [&] {
    s.turns.Take();
    forward({second, s.cut.half(1), s.cut.tokens[0], s.follows});
    s.turns.Give();
  };
  s.turns.Take();
  {
    std::lock_guard lock(s.mutex);
    s.second = &rest;
  }
  s.changed.notify_all();
  forward({first, s.cut.half(0), 0, s.leads});
  s.turns.Give();
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait(lock, [&] { return s.second == nullptr; });
  }
  return s.ranks[0].status.ok() ? s.ranks[1].status : s.ranks[0].status;
}

int64_t HalfBatches::workspace_bytes() const {
  return state_->workspace.capacity() + state_->scratch.bytes();
}

}  // namespace braid
