// See the header.
#include "runtime/experts/rank_counts.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace braid {

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
  layers_[index] = {shape, std::move(choices)};
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
    sum_.assign(own_.size(), 0);
    for (size_t rank = 0; rank < count; ++rank) {
      const auto counts = std::span<const int64_t>(all_).subspan(rank * own_.size(), own_.size());
      for (size_t i = 0; i < counts.size(); ++i) sum_[i] += counts[i];
      CountRows(rank, counts, window);
    }
    recorder_.AddOpen(sum_);
    std::lock_guard lock(mutex_);
    last_ = std::move(window);
  }
  recorder_.EndPass(tokens);
  return first;
}

// Ranks share experts with those of their own group of neighbours.
void RankCounts::CountRows(size_t rank, std::span<const int64_t> counts, RankRows& window) const {
  size_t at = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const auto& [shape, choices] = layers_[l];
    CHECK(!choices.empty(), "layer {} has no choices", l);
    const size_t of_group = rank % static_cast<size_t>(shape.ranks), group = rank - of_group;
    const auto experts = static_cast<size_t>(shape.experts);
    for (size_t e = 0; e < experts; ++e, ++at) {
      const int32_t slot = choices[of_group * experts + e];
      window.rows[l][group + static_cast<size_t>(shape.RankOf(slot))] += counts[at];
    }
  }
}

RankRows RankCounts::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace braid
