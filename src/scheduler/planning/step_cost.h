// What steps cost, learnt from steps that were measured: so much for the rows that decode, so much
// for every prompt token beside them. Integers, so that the same measurements give the same rations
// everywhere. Engine thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/block.h"

namespace braid {

class StepCost {
 public:
  void Learn(int64_t duration_us, int32_t prefill_tokens) {
    if (duration_us <= 0) return;
    if (prefill_tokens == 0) {
      decode_ns_ = Mean(decode_ns_, duration_us * 1000);
      return;
    }
    const int64_t beside = std::max<int64_t>(duration_us * 1000 - decode_ns_, 0);
    token_ns_ = std::max<int64_t>(Mean(token_ns_, beside / prefill_tokens), 1);
  }

  // How many prompt tokens, in whole blocks and one block at least, fit a step of `latency_us`
  // beside the rows that decode. Before the first measurement: one block.
  int32_t Ration(int64_t latency_us, int32_t budget) const {
    if (token_ns_ == 0) return std::min(budget, kBlockTokens);
    const int64_t tokens = (latency_us * 1000 - decode_ns_) / token_ns_;
    const int64_t whole = std::max<int64_t>(tokens / kBlockTokens, 1) * kBlockTokens;
    return static_cast<int32_t>(std::min<int64_t>(whole, budget));
  }

 private:
  // Of the last few measurements, later ones weighing more.
  static int64_t Mean(int64_t mean, int64_t value) {
    return mean == 0 ? value : (3 * mean + value) / 4;
  }

  int64_t decode_ns_ = 0;  // of a step in which nobody's prompt is read
  int64_t token_ns_ = 0;   // of a prompt token
};

}  // namespace braid
