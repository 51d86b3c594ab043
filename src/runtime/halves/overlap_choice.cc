// See the header.
#include "runtime/halves/overlap_choice.h"

#include <algorithm>
#include <cmath>

#include "base/block.h"
#include "base/clock.h"

namespace braid {
namespace {

int64_t WaitedNs(const ops::Ranks& ranks) {
  if (ranks.all == nullptr) return 0;
  return ranks.tensor->traffic().wait_ns + ranks.experts->traffic().wait_ns;
}

}  // namespace

void OverlapRule::Add(int32_t tokens, double seconds, double waited_seconds) {
  constexpr int32_t kFew = 16, kMany = 64;
  constexpr double kNew = 0.25;  // weight of a step's numbers
  const double computed = std::max(0.0, seconds - waited_seconds);
  if (tokens > 0 && tokens <= kFew) {
    weights_ += weights_ == 0 ? computed : kNew * (computed - weights_);
  }
  if (tokens < kMany) return;
  const double each = std::max(0.0, computed - weights_) / tokens, wait = waited_seconds / tokens;
  computed_ += known_ ? kNew * (each - computed_) : each;
  waited_ += known_ ? kNew * (wait - waited_) : wait;
  known_ = true;
}

int32_t OverlapRule::tokens_least() const {
  constexpr double kPays = 0.95;
  constexpr int32_t kLeast = 2 * kBlockTokens, kMost = 1 << 24;
  const double gained = kPays * waited_ - (1 - kPays) * computed_;  // a token
  if (!known_ || gained <= 0) return 0;
  const double tokens = (2 - kPays) * weights_ / gained;
  return tokens < kMost ? std::max(kLeast, static_cast<int32_t>(std::ceil(tokens))) : 0;
}

bool OverlapChoice::Cuts(int32_t tokens) {
  // Now and then one that is not cut shows what it takes.
  constexpr int64_t kEvery = 64;
  if (overlap_ == Overlap::kOn) return tokens > 1;
  if (overlap_ == Overlap::kOff || agreed_ == 0 || tokens < agreed_) return false;
  return ++cuts_ % kEvery != 0;
}

OverlapChoice::Measured::Measured(OverlapChoice& choice, const ops::Ranks& ranks, int32_t tokens)
    : choice_(choice),
      ranks_(ranks),
      tokens_(tokens),
      start_ns_(MonotonicNs()),
      waited_ns_(WaitedNs(ranks)) {}

OverlapChoice::Measured::~Measured() {
  if (choice_.overlap_ != Overlap::kAuto || ranks_.all == nullptr || !ranks_.status.ok()) return;
  constexpr double kSecond = 1e9;
  choice_.rule_.Add(tokens_, static_cast<double>(MonotonicNs() - start_ns_) / kSecond,
                    static_cast<double>(WaitedNs(ranks_) - waited_ns_) / kSecond);
}

}  // namespace braid
