// How many drafts pay: one more makes a step longer, and with some chance its output. It pays where
// that brings more tokens in the time than the step brings without it; where steps should be short,
// an eighth more, because with less answers grow hardly faster, but in larger lumps. So with few
// sequences and a good drafter rows are deep, and where every token costs as much as the last,
// there are none. Integers. Engine thread.
#pragma once

#include <cstdint>

#include "scheduler/life_cycle/acceptance.h"
#include "scheduler/planning/step_cost.h"

namespace braid {

class DraftTrade {
 public:
  // A step in which so many rows bring a token each.
  DraftTrade() = default;
  DraftTrade(const DecodeLine& cost, int32_t rows, bool short_steps)
      : tokens_(int64_t{std::max(rows, 1)} * kWhole),
        ns_(cost.Ns(std::max(rows, 1))),
        slope_ns_(cost.slope_ns()),
        cost_eighths_(short_steps ? 9 : 8) {}

  // How many drafts of a row pay, at most `most`; the step has them from now on.
  int32_t Take(const Acceptance& acceptance, int32_t most) {
    int64_t gain = kWhole;
    int32_t depth = 0;
    for (; depth < most; ++depth) {
      gain = gain * acceptance.chance(static_cast<size_t>(depth)) / kWhole;
      if (gain * ns_ * 8 <= slope_ns_ * tokens_ * cost_eighths_) break;
      tokens_ += gain;
      ns_ += slope_ns_;
    }
    return depth;
  }

  int64_t tokens() const { return tokens_; }  // that the step brings, in units of 1 / kWhole
  int64_t ns() const { return ns_; }

 private:
  int64_t tokens_ = kWhole;
  int64_t ns_ = 1;
  int64_t slope_ns_ = 0;
  int64_t cost_eighths_ = 8;  // that a draft has to bring
};

}  // namespace braid
