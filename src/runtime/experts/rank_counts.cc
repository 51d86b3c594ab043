// See the header.
#include "runtime/experts/rank_counts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace braid {
namespace {

void Add(const RankRows& some, RankRows& sum) {
  if (sum.rows.empty()) {
    sum = some;
    return;
  }
  for (size_t l = 0; l < some.rows.size(); ++l) {
    for (size_t r = 0; r < some.rows[l].size(); ++r) sum.rows[l][r] += some.rows[l][r];
  }
}

}  // namespace

double RankRows::Balance() const {
  int64_t sum = 0, fullest = 0;
  for (const std::vector<int64_t>& layer : rows) {
    sum += std::accumulate(layer.begin(), layer.end(), int64_t{0});
    fullest += std::ranges::max(layer) * std::ssize(layer);
  }
  return fullest > 0 ? static_cast<double>(sum) / static_cast<double>(fullest) : 1;
}

RankCounts::RankCounts(ExpertRecorder& recorder, const ops::Ranks& ranks)
    : recorder_(recorder), ranks_(ranks), layers_(recorder.header().layers.size()) {}

void RankCounts::SetChoices(size_t index, const ExpertShape& shape, std::vector<int32_t> choices) {
  AddRows(index);  // until now they went where the layer's experts lay
  Layer& layer = layers_[index];
  const auto own = choices.begin() + ranks_.experts->rank() * shape.experts;
  layer.shape = shape;
  layer.choices.assign(own, own + shape.experts);
  layer.sent.resize(static_cast<size_t>(shape.ranks));
  layer.counted.resize(static_cast<size_t>(shape.experts));
}

// What the layer has counted since the last call.
void RankCounts::AddRows(size_t index) {
  Layer& layer = layers_[index];
  const std::span<const int64_t> open = recorder_.Open(index);
  for (size_t e = 0; e < layer.choices.size(); ++e) {
    const auto to = static_cast<size_t>(layer.shape.RankOf(layer.choices[e]));
    layer.sent[to] += open[e] - std::exchange(layer.counted[e], open[e]);
  }
}

Result<bool> RankCounts::EndPass(int64_t tokens) {
  if (!recorder_.completes_window()) {
    recorder_.EndPass(tokens);
    return false;
  }
  Communicator& all = *ranks_.all;
  const auto count = static_cast<size_t>(all.size());
  const bool first = all.rank() == 0;
  own_.clear();
  recorder_.AppendOpen(own_);
  const size_t counted = own_.size();
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    CHECK(!layer.choices.empty(), "layer {} has no choices", l);
    AddRows(l);
    own_.insert(own_.end(), layer.sent.begin(), layer.sent.end());
    std::ranges::fill(layer.sent, 0);
    std::ranges::fill(layer.counted, 0);
  }
  all_.resize(first ? own_.size() * count : 0);
  std::vector<Bytes> send(count);
  std::vector<MutableBytes> receive(count);
  send[0] = std::as_bytes(std::span(own_));
  for (size_t rank = 0; first && rank < count; ++rank) {
    receive[rank] =
        std::as_writable_bytes(std::span(all_).subspan(rank * own_.size(), own_.size()));
  }
  RETURN_IF_ERROR(all.AllToAllV(send, receive));
  recorder_.ForgetOpen();
  if (first) {
    RankRows window{recorder_.header().layers, {}};
    window.rows.assign(layers_.size(), std::vector<int64_t>(count));
    sum_.assign(counted, 0);
    for (size_t rank = 0; rank < count; ++rank) {
      const auto told = std::span<const int64_t>(all_).subspan(rank * own_.size(), own_.size());
      for (size_t i = 0; i < counted; ++i) sum_[i] += told[i];
      CountRows(rank, told.subspan(counted), window);
    }
    recorder_.AddOpen(sum_);
    CompleteWindows(std::move(window));
  }
  recorder_.EndPass(tokens);
  return first;
}

// Ranks share experts with those of their own group of neighbours.
void RankCounts::CountRows(size_t rank, std::span<const int64_t> sent, RankRows& window) const {
  size_t at = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const size_t ranks = layers_[l].sent.size(), group = rank - rank % ranks;
    for (size_t r = 0; r < ranks; ++r) window.rows[l][group + r] += sent[at++];
  }
}

// As the recorder does: each complete window is added to the next longer one.
void RankCounts::CompleteWindows(RankRows shortest) {
  constexpr auto& kWindows = ExpertRecorder::kWindows;
  open_[0] = {std::move(shortest), kWindows[0]};
  for (size_t w = 0; w < kWindows.size() && open_[w].steps == kWindows[w]; ++w) {
    OpenWindow complete = std::exchange(open_[w], {});
    if (w + 1 < kWindows.size()) {
      Add(complete.rows, open_[w + 1].rows);
      open_[w + 1].steps += complete.steps;
    }
    const std::lock_guard lock(mutex_);
    last_[w] = std::move(complete.rows);
  }
}

RankRows RankCounts::last(size_t window) const {
  const std::lock_guard lock(mutex_);
  return last_[window];
}

}  // namespace braid
