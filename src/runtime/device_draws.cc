// A sampled token that is forced, and the token that follows one of the prompt, are described as
// `next`; a distribution never has both.
#include "runtime/device_draws.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace braid {
namespace {

using ops::gpu::DeviceDraw;
using ops::gpu::DeviceDrawn;

// Of the most probable tokens, as either part of the request wants them.
int32_t TopOf(const Slot& slot, const BatchRows::Wanted& wanted) {
  return std::max(wanted.describe ? slot.prompt_logprobs : 0, wanted.sample ? slot.logprobs : 0);
}

TokenId Forced(const Slot& slot, const BatchRows::Wanted& wanted) {
  return wanted.sample ? slot.ForcedToken(wanted.position + 1) : TokenId{-1};
}

// By the request's rules, of the token at `position`; nothing is asked for.
DeviceDraw KeyedDraw(const SamplingParams& p, int32_t position) {
  return {.seed = p.seed,
          .position = position,
          .scale = p.temperature == 0.0f ? 0.0f : 1.0f / p.temperature,
          .top_k = p.top_k,
          .top_p = p.top_p,
          .min_p = p.min_p};
}

}  // namespace

TokenId FollowingToken(const Slot& slot, int32_t position) {
  const int32_t next = position + 1;
  return next < slot.prompt_count ? slot.tokens[static_cast<size_t>(next)] : TokenId{-1};
}

bool DeviceDraws(const Slot& slot, const BatchRows::Wanted& wanted) {
  if (TopOf(slot, wanted) > ops::gpu::kBestMax) return false;
  if (!wanted.sample) return true;
  const bool both = wanted.describe && FollowingToken(slot, wanted.position) >= 0;
  return !both && slot.grammar.empty() && !Sampler::Adjusts(slot, wanted.position + 1);
}

DeviceDraw DraftDrawOf(const Slot& slot, int32_t length) {
  DeviceDraw draw = KeyedDraw(slot.sampling, length);
  draw.next = slot.ForcedToken(length);
  if (draw.next < 0) draw.flags = DeviceDraw::kChoose;
  return draw;
}

DeviceDraw DrawOf(const Slot& slot, const BatchRows::Wanted& wanted) {
  if (!DeviceDraws(slot, wanted)) return {};
  DeviceDraw draw = KeyedDraw(slot.sampling, wanted.position + 1);
  const TokenId forced = Forced(slot, wanted);
  draw.next = forced;
  draw.flags = std::max(TopOf(slot, wanted), 0);
  if (wanted.describe && draw.next < 0) draw.next = FollowingToken(slot, wanted.position);
  if (wanted.sample && forced < 0) draw.flags |= DeviceDraw::kChoose;
  const bool described = wanted.describe || slot.logprobs >= 0;
  if (described || forced >= 0) draw.flags |= DeviceDraw::kDescribe;
  return draw;
}

TokenLogprob DescriptionOf(const DeviceDrawn& drawn, TokenId token, float logit, int32_t top) {
  TokenLogprob out;
  out.token = token;
  const ops::LogitStats stats{
      .maximum = drawn.most,
      .log_sum = drawn.finite ? std::log(std::ldexp(static_cast<double>(drawn.sum), -40))
                              : std::numeric_limits<double>::quiet_NaN()};
  if (token >= 0) out.logprob = ops::LogprobOf(logit, stats);
  for (int32_t i = 0; i < drawn.best_count; ++i) {
    out.top.emplace_back(drawn.best[i].id, drawn.best[i].logit);
  }
  std::ranges::sort(out.top, [](const auto& a, const auto& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  });
  out.top.resize(std::min(out.top.size(), static_cast<size_t>(std::max(top, 0))));
  for (auto& [id, value] : out.top) value = ops::LogprobOf(value, stats);
  return out;
}

void TakeChoice(const DeviceDrawn& drawn, const Slot& slot, const BatchRows::Wanted& wanted,
                Choice& choice) {
  if (drawn.finite == 0) {
    choice.error = Sampler::kNotFinite;
    return;
  }
  const TokenId forced = Forced(slot, wanted);
  choice.token = forced >= 0 ? forced : drawn.token;
  if (slot.logprobs < 0) return;
  const float logit = forced >= 0 ? drawn.next_logit : drawn.token_logit;
  choice.logprob = DescriptionOf(drawn, choice.token, logit, slot.logprobs);
}

}  // namespace braid
