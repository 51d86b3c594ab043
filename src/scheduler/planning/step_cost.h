// What steps cost, learnt from steps that were measured: so much for the rows that decode, so much
// for every prompt token beside them. Integers, so that the same measurements give the same rations
// everywhere. Engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/block.h"

namespace braid {

// What a step without prompts costs by the number of its tokens, drafts included: a line through
// the last few measurements. As long as all have the same number of tokens, its slope is what it
// was.
class DecodeLine {
 public:
  void Learn(int64_t tokens, int64_t ns) {
    const int64_t x = tokens * kUnit;
    if (mean_ns_ == 0) {
      mean_x_ = x;
      mean_ns_ = std::max<int64_t>(ns, 1);
      slope_ns_ = mean_ns_ / (kPrior + tokens);
      return;
    }
    const int64_t dx = x - mean_x_;
    const int64_t dy = std::min(ns, 2 * mean_ns_) - mean_ns_;  // others took the machine away
    mean_x_ += dx / kWeight;
    mean_ns_ = std::max<int64_t>(mean_ns_ + dy / kWeight, 1);
    if (std::abs(dx) * 4 < 3 * kUnit) return;  // it says nothing of the slope
    square_ += (dx * dx - square_) / kWeight;
    product_ += (dx * dy - product_) / kWeight;
    slope_ns_ = std::clamp<int64_t>(product_ * kUnit / square_, 0, mean_ns_);
  }
  // Before the first measurement: in units of their own, as long as a token is cheap to add.
  int64_t Ns(int64_t tokens) const {
    if (mean_ns_ == 0) return kPrior + tokens;
    const int64_t ns = mean_ns_ + slope_ns_ * (tokens * kUnit - mean_x_) / kUnit;
    return std::max(ns, slope_ns_ * tokens + 1);
  }
  int64_t slope_ns() const { return mean_ns_ == 0 ? 1 : slope_ns_; }

 private:
  static constexpr int64_t kUnit = 256;   // of a token
  static constexpr int64_t kWeight = 16;  // of the past
  static constexpr int64_t kPrior = 8;    // a step of no tokens, in tokens, until it is measured

  int64_t mean_x_ = 0, mean_ns_ = 0;
  int64_t square_ = 0, product_ = 0;  // of deviations
  int64_t slope_ns_ = 0;
};

class StepCost {
 public:
  void Learn(int64_t duration_us, int32_t prefill_tokens, int32_t decode_tokens) {
    // A plan that only moves pages has no rows, and says nothing of what a step costs.
    if (duration_us <= 0 || prefill_tokens + decode_tokens == 0) return;
    if (prefill_tokens == 0) {
      decode_line_.Learn(decode_tokens, duration_us * 1000);
      decode_ns_ = Mean(decode_ns_, duration_us * 1000);
      return;
    }
    const int64_t beside = std::max<int64_t>(duration_us * 1000 - decode_ns_, 0);
    token_ns_ = std::max<int64_t>(Mean(token_ns_, beside / prefill_tokens), 1);
  }

  const DecodeLine& decode() const { return decode_line_; }

  // How many prompt tokens fit a step of `latency_us` beside the rows that decode: whole blocks, or
  // less than a block where not one fits, kRationLeast at least. One block before the first
  // measurement, and where steps are much longer than asked for whatever they compute, as blocks
  // cost less a token.
  int32_t Ration(int64_t latency_us, int32_t budget) const {
    const int64_t fit = token_ns_ == 0 ? 0 : (latency_us * 1000 - decode_ns_) / token_ns_;
    int64_t tokens = kBlockTokens;
    if (fit >= kBlockTokens) {
      tokens = fit / kBlockTokens * kBlockTokens;
    } else if (fit >= kRationLeast / 8) {
      tokens = std::max<int64_t>(fit, kRationLeast);
    }
    return static_cast<int32_t>(std::min<int64_t>(tokens, budget));
  }

 private:
  static constexpr int32_t kRationLeast = kBlockTokens / 4;

  // Of the last few measurements, later ones weighing more.
  static int64_t Mean(int64_t mean, int64_t value) {
    return mean == 0 ? value : (3 * mean + value) / 4;
  }

  DecodeLine decode_line_;
  int64_t decode_ns_ = 0;  // of a step in which nobody's prompt is read
  int64_t token_ns_ = 0;   // of a prompt token
};

}  // namespace braid
