// Bias, penalties, masks, then greedy choice or one draw keyed by (seed, position).
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "ops/sample.h"

namespace braid {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Whether tokens that end the answer may not come yet.
bool StopsAreMasked(const Slot& slot, int32_t position) {
  return position - slot.prompt_count < slot.stop.new_tokens_min && !slot.stop.stop_tokens.empty();
}

}  // namespace

Sampler::Sampler(int32_t vocabulary, int32_t sampled_vocabulary, int members)
    : sampled_vocabulary_(sampled_vocabulary > 0 ? sampled_vocabulary : vocabulary),
      scratch_(static_cast<size_t>(members)) {
  for (Scratch& scratch : scratch_) {
    scratch.logits.resize(static_cast<size_t>(vocabulary));
    scratch.counts.resize(static_cast<size_t>(vocabulary));
    scratch.sample.candidates.reserve(static_cast<size_t>(vocabulary));
    scratch.sample.order.reserve(static_cast<size_t>(vocabulary));
  }
}

bool Sampler::Adjusts(const Slot& slot, int32_t position) {
  const SamplingParams& p = slot.sampling;
  return !p.logit_bias.empty() || p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f ||
         p.frequency_penalty != 0.0f || StopsAreMasked(slot, position);
}

TokenLogprob Sampler::Describe(const ops::OpContext& context, std::span<const float> logits,
                               int32_t top, TokenId next) {
  const ops::LogitStats stats = ops::StatsOf(context, logits);
  TokenLogprob out;
  out.token = next;
  if (next >= 0) out.logprob = ops::LogprobOf(logits[static_cast<size_t>(next)], stats);
  out.top = ops::TopLogprobs(context, logits, stats, top);
  return out;
}

std::span<const float> Sampler::Adjust(const Place& place, std::span<const float> logits,
                                       Scratch& scratch) {
  const Slot& slot = place.slot;
  std::copy(logits.begin(), logits.end(), scratch.logits.begin());
  std::span<float> adjusted(scratch.logits);
  const SamplingParams& p = slot.sampling;
  const ops::Penalties penalties{p.repetition_penalty, p.presence_penalty, p.frequency_penalty};
  if (penalties.any()) {
    ops::ApplyPenalties(penalties, slot.prompt(), slot.output(place.position), scratch.counts,
                        adjusted);
  }
  for (const auto& [token, bias] : p.logit_bias) adjusted[static_cast<size_t>(token)] += bias;
  return adjusted;
}

void Sampler::Constrain(const uint32_t* allowed, std::span<float> logits) const {
  for (size_t i = 0; i < static_cast<size_t>(sampled_vocabulary_); ++i) {
    if ((allowed[i / 32] >> (i % 32) & 1) == 0) logits[i] = kNever;
  }
}

TokenId Sampler::Pick(const ops::OpContext& context, const Place& place,
                      std::span<const float> logits) {
  const Slot& slot = place.slot;
  const SamplingParams& p = slot.sampling;
  Scratch& scratch = scratch_[static_cast<size_t>(place.member)];
  const bool masked = StopsAreMasked(slot, place.position);
  const bool adjusted = Adjusts(slot, place.position) || place.allowed != nullptr;
  std::span<const float> view = adjusted ? Adjust(place, logits, scratch) : logits;
  for (TokenId token : slot.stop.stop_tokens) {
    if (masked) scratch.logits[static_cast<size_t>(token)] = kNever;
  }
  if (place.allowed != nullptr) Constrain(place.allowed, scratch.logits);
  view = view.first(static_cast<size_t>(sampled_vocabulary_));
  const TokenId best = ops::ArgMax(context, view);
  if (!std::isfinite(view[static_cast<size_t>(best)])) return -1;
  if (p.temperature == 0.0f) return best;
  const double uniform = RandomUniform(p.seed, static_cast<uint64_t>(place.position));
  return ops::Sample(context, {p.temperature, p.top_k, p.top_p, p.min_p}, view, uniform,
                     scratch.sample);
}

TokenId Sampler::Draw(const ops::OpContext& context, const Place& place,
                      std::span<const float> logits) {
  if (!ops::StatsOf(context, logits).finite) return -1;
  return place.forced >= 0 ? place.forced : Pick(context, place, logits);
}

void Sampler::Choose(const ops::OpContext& context, const Place& place,
                     std::span<const float> logits, Choice& choice) {
  const ops::LogitStats stats = ops::StatsOf(context, logits);
  if (!stats.finite) {
    choice.error = kNotFinite;
    return;
  }
  const TokenId token = place.forced >= 0 ? place.forced : Pick(context, place, logits);
  if (token < 0) {
    choice.error = "no token may come next by the request's grammar and its other limits";
    choice.error_code = ErrorCode::kInvalid;
    return;
  }
  choice.token = token;
  if (place.slot.logprobs < 0) return;
  choice.logprob.token = token;
  choice.logprob.logprob = ops::LogprobOf(logits[static_cast<size_t>(token)], stats);
  choice.logprob.top = ops::TopLogprobs(context, logits, stats, place.slot.logprobs);
}

}  // namespace braid
