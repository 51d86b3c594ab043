// From logits to a token: log-probabilities, penalties, filters, the draw. Every draw is a function
// of (seed, position), so a request's tokens do not depend on what else runs.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "ops/op.h"

namespace braid::ops {

// log(sum exp(logits)) and the maximum; `finite` is false when any logit is NaN or +infinity.
struct LogitStats {
  float maximum = 0.0f;
  double log_sum = 0.0;
  bool finite = true;
};
LogitStats StatsOf(const OpContext& context, std::span<const float> logits);

inline float LogprobOf(float logit, const LogitStats& stats) {
  return static_cast<float>(double{logit} - stats.maximum - stats.log_sum);
}

// The `count` largest, best first, ties by smaller id.
std::vector<std::pair<TokenId, float>> TopLogprobs(const OpContext& context,
                                                   std::span<const float> logits,
                                                   const LogitStats& stats, int32_t count);

// The largest logit's id, ties by smaller id.
TokenId ArgMax(const OpContext& context, std::span<const float> logits);

struct Penalties {
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
  bool any() const { return repetition != 1.0f || presence != 0.0f || frequency != 0.0f; }
};
// Repetition divides positive and multiplies negative logits of tokens in prompt or output (Keskar
// et al. 2019); presence and frequency are subtracted for output tokens. `counts` is all zero, one
// per logit, and all zero again afterwards.
void ApplyPenalties(const Penalties& penalties, std::span<const TokenId> prompt,
                    std::span<const TokenId> output, std::span<int32_t> counts,
                    std::span<float> logits);

struct SampleParams {
  float temperature = 1.0f;  // > 0
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
};
// Memory that a member of the pool keeps between draws.
struct SampleScratch {
  // Reserve the vocabulary's size in both.
  std::vector<std::pair<float, TokenId>> candidates, order;
  std::vector<float> maxima, sums;  // of blocks of the vocabulary
};
// Temperature, then min-p, top-k and top-p; of equal tokens those with the smaller ids are kept.
// The draw, with `uniform` in [0, 1), goes through what is kept in the order of ids, so that it
// means the same on every device (ops/vulkan/sample.h). The logits are finite or minus infinity,
// one at least is finite.
TokenId Sample(const OpContext& context, const SampleParams& params, std::span<const float> logits,
               double uniform, SampleScratch& scratch);

}  // namespace braid::ops
