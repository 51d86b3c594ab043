// The last stage of a step: what a row's logits say, as the request wants to know it.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/op.h"
#include "ops/sample.h"
#include "runtime/slots.h"
#include "scheduler/event.h"

namespace braid {

// The token that comes after some others, as a request wants to know it.
struct Choice {
  TokenId token = -1;
  TokenLogprob logprob;  // filled when the request asked for logprobs
  std::string error;     // non-empty: there is no token, for this reason
  ErrorCode error_code = ErrorCode::kInternal;
};

class Sampler {
 public:
  // Tokens at and past `sampled_vocabulary` are never chosen. One scratch per pool member.
  Sampler(int32_t vocabulary, int32_t sampled_vocabulary, int members);

  static constexpr const char* kNotFinite = "the model's logits are not finite for this request";

  // Whether bias, penalties or masks but those of grammars change the logits of the token after the
  // slot's first `position` tokens.
  static bool Adjusts(const Slot& slot, int32_t position);

  // The distribution after `position`, with `next` the token that really follows or -1.
  static TokenLogprob Describe(const ops::OpContext& context, std::span<const float> logits,
                               int32_t top, TokenId next);

  int32_t sampled_vocabulary() const { return sampled_vocabulary_; }

  // The token after the slot's first `position` tokens is wanted, on pool member `member`. Tokens
  // at and past `position` have no say.
  struct Place {
    const Slot& slot;
    int32_t position = 0;
    int member = 0;
    TokenId forced = -1;                // >= 0: this one and no other
    const uint32_t* allowed = nullptr;  // bit i % 32 of [i / 32]: token i may be chosen; null: any
  };
  // What Choose would take, or -1 where that has an error.
  TokenId Draw(const ops::OpContext& context, const Place& place, std::span<const float> logits);
  // The token, and its log-probability when asked for; or an error when the logits are not finite.
  void Choose(const ops::OpContext& context, const Place& place, std::span<const float> logits,
              Choice& choice);

 private:
  struct Scratch {
    std::vector<float> logits;
    std::vector<int32_t> counts;
    ops::SampleScratch sample;
  };
  // The choice itself; -1 if no token may come.
  TokenId Pick(const ops::OpContext& context, const Place& place, std::span<const float> logits);
  // A copy of the logits with bias, penalties and masks applied.
  std::span<const float> Adjust(const Place& place, std::span<const float> logits,
                                Scratch& scratch);
  // Masks the tokens that are not allowed.
  void Constrain(const uint32_t* allowed, std::span<float> logits) const;

  int32_t sampled_vocabulary_;
  std::vector<Scratch> scratch_;
};

}  // namespace braid
