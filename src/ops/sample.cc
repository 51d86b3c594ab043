// Sampling without a sort of the vocabulary: its logits are looked at in blocks, by the device's
// kernels, and only blocks whose largest can matter are looked at one by one.
#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ops/cpu/dispatch.h"

namespace braid::ops {
namespace {

using Candidates = std::vector<std::pair<float, TokenId>>;

// Logits of one block; its maximum and its sum cost a few nanoseconds.
constexpr size_t kBlock = 256;
constexpr float kNever = -std::numeric_limits<float>::infinity();

bool Before(const std::pair<float, TokenId>& a, const std::pair<float, TokenId>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

float MaxOf(const cpu::KernelTable* kernels, std::span<const float> x) {
  if (kernels) return kernels->max(x.data(), std::ssize(x));
  return *std::max_element(x.begin(), x.end());
}

// sum of exp((x - maximum) * scale)
double SumExp(const cpu::KernelTable* kernels, std::span<const float> x, float maximum,
              float scale) {
  if (kernels) return kernels->sum_exp(x.data(), std::ssize(x), maximum, scale);
  double sum = 0;
  for (float logit : x) sum += std::exp(double{logit - maximum} * scale);
  return sum;
}

size_t Blocks(std::span<const float> logits) { return (logits.size() + kBlock - 1) / kBlock; }
std::span<const float> BlockOf(std::span<const float> logits, size_t block) {
  return logits.subspan(block * kBlock, std::min(kBlock, logits.size() - block * kBlock));
}

// A distribution over ids: weights exp((logit - maximum) * scale), the largest is 1.
struct Weighted {
  std::span<const float> logits;
  std::span<const float> maxima;  // of the blocks
  float maximum;
  float scale;  // 1 / temperature
  float WeightOf(float logit) const { return std::exp((logit - maximum) * scale); }
};

// The ids with at least this logit and this weight, in ascending order, with their weights.
void Collect(const Weighted& w, float logit_min, float weight_min, Candidates& candidates) {
  candidates.clear();
  for (size_t b = 0; b < w.maxima.size(); ++b) {
    if (w.maxima[b] < logit_min) continue;
    const std::span<const float> block = BlockOf(w.logits, b);
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] < logit_min) continue;
      const float weight = w.WeightOf(block[i]);
      if (weight >= weight_min && weight > 0.0f) {
        candidates.emplace_back(weight, static_cast<TokenId>(b * kBlock + i));
      }
    }
  }
}

double SumOf(const Candidates& candidates) {
  double sum = 0;
  for (const auto& candidate : candidates) sum += candidate.first;
  return sum;
}

// A logit that at least k ids reach: the k-th largest of the blocks' maxima.
float ReachedBy(size_t k, std::span<const float> maxima, std::vector<float>& scratch) {
  if (k > maxima.size()) return kNever;
  scratch.assign(maxima.begin(), maxima.end());
  const auto kth = scratch.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(scratch.begin(), kth, scratch.end(), std::greater<>());
  return *kth;
}

// Drops what comes behind `last`.
void KeepThrough(const std::pair<float, TokenId>& last, Candidates& candidates) {
  std::erase_if(candidates, [&](const auto& candidate) { return Before(last, candidate); });
}

// Keeps the k largest.
void KeepLargest(size_t k, Candidates& candidates, Candidates& order) {
  if (k >= candidates.size()) return;
  order = candidates;
  const auto kth = order.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(order.begin(), kth, order.end(), Before);
  KeepThrough(*kth, candidates);
}

// Keeps the fewest largest whose weights reach the target, in linear time: halves the range that
// the last of them lies in.
void KeepUpTo(double target, Candidates& candidates, Candidates& order) {
  order = candidates;
  auto begin = order.begin(), end = order.end();
  double reached = 0;
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, Before);
    double sum = 0;
    for (auto at = begin; at != middle; ++at) sum += at->first;
    if (reached + sum >= target) {
      end = middle;
    } else {
      reached += sum;
      begin = middle;
    }
  }
  KeepThrough(*begin, candidates);
}

// Top-p over all ids: those with the largest weights, in a few widening steps, until they reach the
// share of the sum.
void CollectTopP(const Weighted& w, double target, SampleScratch& scratch) {
  for (float nats : {4.0f, 10.0f, -kNever}) {
    Collect(w, w.maximum - nats / w.scale, 0.0f, scratch.candidates);
    if (SumOf(scratch.candidates) >= target) break;
  }
  KeepUpTo(target, scratch.candidates, scratch.order);
}

TokenId Draw(double uniform, const Candidates& candidates) {
  double left = uniform * SumOf(candidates);
  for (const auto& [weight, id] : candidates) {
    left -= weight;
    if (left < 0) return id;
  }
  return candidates.back().second;
}

// A draw from all ids: its block first.
TokenId DrawFromAll(const Weighted& w, std::span<const float> sums, double uniform,
                    Candidates& candidates) {
  double left = 0;
  for (float sum : sums) left += sum;
  left *= uniform;
  size_t b = 0;
  for (; b + 1 < sums.size() && left >= sums[b]; ++b) left -= sums[b];
  // The last block may be left with nothing but zeros by the rounding of the sums.
  while (sums[b] <= 0.0f) --b;
  candidates.clear();
  const std::span<const float> block = BlockOf(w.logits, b);
  for (size_t i = 0; i < block.size(); ++i) {
    const float weight = w.WeightOf(block[i]);
    if (weight > 0.0f) candidates.emplace_back(weight, static_cast<TokenId>(b * kBlock + i));
  }
  return Draw(std::min(left / sums[b], 1.0), candidates);
}

}  // namespace

LogitStats StatsOf(const OpContext& context, std::span<const float> logits) {
  const auto* kernels = cpu::KernelsFor(context.device);
  LogitStats stats;
  stats.maximum = MaxOf(kernels, logits);
  stats.log_sum = std::log(SumExp(kernels, logits, stats.maximum, 1.0f));
  stats.finite = std::isfinite(stats.maximum) && std::isfinite(stats.log_sum);
  return stats;
}

std::vector<std::pair<TokenId, float>> TopLogprobs(const OpContext& context,
                                                   std::span<const float> logits,
                                                   const LogitStats& stats, int32_t count) {
  const auto* kernels = cpu::KernelsFor(context.device);
  Candidates best;
  const size_t size = std::min(logits.size(), static_cast<size_t>(std::max(count, 0)));
  best.reserve(size + 1);
  for (size_t b = 0; size > 0 && b < Blocks(logits); ++b) {
    const std::span<const float> block = BlockOf(logits, b);
    // Later ids lose ties. What is not finite is compared one by one, alike on every machine.
    const bool full = stats.finite && best.size() == size;
    if (full && MaxOf(kernels, block) <= best.back().first) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      const std::pair<float, TokenId> entry(block[i], static_cast<TokenId>(b * kBlock + i));
      if (best.size() == size && !Before(entry, best.back())) continue;
      best.insert(std::upper_bound(best.begin(), best.end(), entry, Before), entry);
      if (best.size() > size) best.pop_back();
    }
  }
  std::vector<std::pair<TokenId, float>> out;
  out.reserve(best.size());
  for (const auto& [logit, id] : best) out.emplace_back(id, LogprobOf(logit, stats));
  return out;
}

TokenId ArgMax(const OpContext& context, std::span<const float> logits) {
  const auto* kernels = cpu::KernelsFor(context.device);
  size_t best = 0;
  float maximum = kNever;
  for (size_t b = 0; b < Blocks(logits); ++b) {
    const float largest = MaxOf(kernels, BlockOf(logits, b));
    if (b == 0 || largest > maximum) {
      maximum = largest;
      best = b;
    }
  }
  const std::span<const float> block = BlockOf(logits, best);
  const auto at = std::find(block.begin(), block.end(), maximum) - block.begin();
  return static_cast<TokenId>(best * kBlock + static_cast<size_t>(at));
}

void ApplyPenalties(const Penalties& penalties, std::span<const TokenId> prompt,
                    std::span<const TokenId> output, std::span<int32_t> counts,
                    std::span<float> logits) {
  for (TokenId token : output) ++counts[static_cast<size_t>(token)];
  auto repeat = [&](size_t t) {
    logits[t] = logits[t] > 0 ? logits[t] / penalties.repetition : logits[t] * penalties.repetition;
  };
  // A token is visited once: its count is cleared, -1 marks one that was seen in the prompt alone.
  for (TokenId token : output) {
    const size_t t = static_cast<size_t>(token);
    if (counts[t] <= 0) continue;
    repeat(t);
    logits[t] -= penalties.presence + penalties.frequency * static_cast<float>(counts[t]);
    counts[t] = -1;
  }
  for (TokenId token : prompt) {
    const size_t t = static_cast<size_t>(token);
    if (counts[t] != 0) continue;
    repeat(t);
    counts[t] = -1;
  }
  for (TokenId token : output) counts[static_cast<size_t>(token)] = 0;
  for (TokenId token : prompt) counts[static_cast<size_t>(token)] = 0;
}

TokenId Sample(const OpContext& context, const SampleParams& params, std::span<const float> logits,
               double uniform, SampleScratch& scratch) {
  const auto* kernels = cpu::KernelsFor(context.device);
  Candidates& candidates = scratch.candidates;
  scratch.maxima.resize(Blocks(logits));
  for (size_t b = 0; b < scratch.maxima.size(); ++b) {
    scratch.maxima[b] = MaxOf(kernels, BlockOf(logits, b));
  }
  const Weighted w{logits, scratch.maxima, MaxOf(kernels, scratch.maxima),
                   1.0f / params.temperature};
  const size_t k = static_cast<size_t>(std::max(params.top_k, 0));
  if (k == 0 && params.min_p <= 0.0f) {
    scratch.sums.resize(scratch.maxima.size());
    double sum = 0;
    for (size_t b = 0; b < scratch.sums.size(); ++b) {
      scratch.sums[b] = static_cast<float>(SumExp(kernels, BlockOf(logits, b), w.maximum, w.scale));
      sum += scratch.sums[b];
    }
    if (params.top_p >= 1.0f) return DrawFromAll(w, scratch.sums, uniform, candidates);
    CollectTopP(w, params.top_p * sum, scratch);
    return Draw(uniform, candidates);
  }
  const float reached = k > 0 ? ReachedBy(k, scratch.maxima, scratch.sums) : kNever;
  // A little lower than min-p says, for `Collect` compares the weights themselves.
  const float likely =
      params.min_p > 0.0f ? w.maximum + (std::log(params.min_p) - 0.1f) / w.scale : kNever;
  Collect(w, std::max(reached, likely), params.min_p, candidates);
  if (k > 0) KeepLargest(k, candidates, scratch.order);
  if (params.top_p < 1.0f) {
    KeepUpTo(params.top_p * SumOf(candidates), candidates, scratch.order);
  }
  return Draw(uniform, candidates);
}

}  // namespace braid::ops
