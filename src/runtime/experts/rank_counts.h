// The loads of experts on several ranks: each rank counts its own tokens, and which ranks it sends
// their rows to, also while experts move. Every few steps the first rank gets what all have
// counted, and adds it to longer windows. Engine thread, but for `last`.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "experts/expert_map.h"
#include "experts/recorder.h"
#include "ops/ranks.h"

namespace braid {

// Of some steps.
struct RankRows {
  std::vector<int32_t> layers;             // of the model: those with experts
  std::vector<std::vector<int64_t>> rows;  // [layer][rank]: experts' rows that the rank computed

  // Mean over fullest rank, summed over layers; 1 without rows.
  double Balance() const;
};

class RankCounts {
 public:
  RankCounts(ExpertRecorder& recorder, const ops::Ranks& ranks);

  // A layer's slots among the ranks that share experts, from now on. The index is that of the
  // recorder's layers.
  void SetChoices(size_t index, const ExpertShape& shape, std::vector<int32_t> choices);

  // Every rank calls it at the end of each pass of so many tokens of all ranks. True on the first
  // rank when a window is complete: then `sum` has the counts of all ranks.
  Result<bool> EndPass(int64_t tokens);
  std::span<const int64_t> sum() const { return sum_; }  // [layer][expert]

  // Any thread; on the first rank: of the last complete window of ExpertRecorder::kWindows[window]
  // steps. No layers before the first.
  RankRows last(size_t window) const;

 private:
  void AddRows(size_t index);
  void CountRows(size_t rank, std::span<const int64_t> sent, RankRows& window) const;
  void CompleteWindows(RankRows shortest);

  ExpertRecorder& recorder_;
  const ops::Ranks& ranks_;
  struct Layer {
    ExpertShape shape;
    std::vector<int32_t> choices;  // this rank's, of ReplicaChoices
    std::vector<int64_t> sent;     // to each rank of the group, in the open window
    std::vector<int64_t> counted;  // of each expert, the rows that `sent` has
  };
  std::vector<Layer> layers_;
  std::vector<int64_t> own_, all_, sum_;  // counts of experts; in the first two then rows sent
  // On the first rank: of each window, the shorter ones since the last that is complete.
  struct OpenWindow {
    RankRows rows;
    int32_t steps = 0;
  };
  std::array<OpenWindow, ExpertRecorder::kWindows.size()> open_;
  mutable std::mutex mutex_;
  std::array<RankRows, ExpertRecorder::kWindows.size()> last_;
};

}  // namespace braid
