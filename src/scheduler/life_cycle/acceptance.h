// How often drafts of one source turn out right, by their place in the row: what the number of
// drafts in a row is chosen by. Integers, from events alone. Engine thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "scheduler/output.h"

namespace braid {

// Probabilities and expected tokens are in units of 1 / kWhole.
inline constexpr int32_t kWhole = 1024;

class Acceptance {
 public:
  explicit Acceptance(int32_t first_guess = kWhole / 2) { chance_.fill(first_guess); }

  // That the draft at `place` is right when those before it are.
  int32_t chance(size_t place) const { return chance_[std::min(place, kDraftPlaces - 1)]; }

  // A draft at `place`, after right ones, was right or not. The mean is over about the last
  // `weight` of them; before there are so many, over all of them, where the first guess counts as
  // kGuessWeight.
  void Note(size_t place, bool right, int32_t weight) {
    const size_t at = std::min(place, kDraftPlaces - 1);
    seen_[at] = std::min(seen_[at] + 1, weight);
    const int32_t target = right ? kWhole : 0;
    chance_[at] += (target - chance_[at]) / std::min(weight, kGuessWeight + seen_[at]);
  }

 private:
  static constexpr int32_t kGuessWeight = 3;

  std::array<int32_t, kDraftPlaces> chance_;
  std::array<int32_t, kDraftPlaces> seen_ = {};
};

using Acceptances = std::array<Acceptance, kDraftSources>;

}  // namespace braid
