// Which steps are worth cutting in halves, by what they took before. Engine thread.
#pragma once

#include <cstdint>

#include "ops/ranks.h"

namespace braid {

// From how many tokens of a step on two halves pay, by what steps took that were not cut. A step of
// T tokens computes for w + p T seconds, w for the weights that it reads, and waits for messages
// for c T. In halves the weights are read twice, and the longer of 2 w + p T and c T remains. That
// is to be less than 95 % of the sum.
class OverlapRule {
 public:
  // `tokens` of the fullest data-parallel rank.
  void Add(int32_t tokens, double seconds, double waited_seconds);
  // 0: with no number of tokens.
  int32_t tokens_least() const;

 private:
  double weights_ = 0;                // w
  double computed_ = 0, waited_ = 0;  // p and c
  bool known_ = false;                // p and c
};

enum class Overlap : uint8_t { kOff, kAuto, kOn };  // of those, kAuto: as the rule says

// Which steps are cut, the same ones on all ranks.
class OverlapChoice {
 public:
  explicit OverlapChoice(Overlap overlap) : overlap_(overlap) {}
  // Of a step whose fullest data-parallel rank has so many tokens; called once a step.
  bool Cuts(int32_t tokens);
  int32_t tokens_least() const { return rule_.tokens_least(); }
  // What the first rank's rule says, from the next step on.
  void Agree(int32_t tokens_least) { agreed_ = tokens_least; }

  // Measures a step that is not cut, from construction to destruction.
  class Measured {
   public:
    Measured(OverlapChoice& choice, const ops::Ranks& ranks, int32_t tokens);
    ~Measured();

   private:
    OverlapChoice& choice_;
    const ops::Ranks& ranks_;
    const int32_t tokens_;
    int64_t start_ns_, waited_ns_;
  };

 private:
  const Overlap overlap_;
  OverlapRule rule_;
  int32_t agreed_ = 0;
  int64_t cuts_ = 0;  // steps that were worth it
};

}  // namespace braid
