// Sampling in plain loops; the sums over the vocabulary use the device's kernels.
#include "ops/sample.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/dispatch.h"

namespace braid::ops {
namespace {

// First sizes of the sorted head of the candidates when only top-p limits them.
constexpr size_t kHeadStart = 256;

bool Before(const std::pair<float, TokenId>& a, const std::pair<float, TokenId>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// The candidates' weights relative to the largest: exp((logit - maximum) / temperature).
void FillCandidates(const SampleParams& params, std::span<const float> logits,
                    std::vector<std::pair<float, TokenId>>& candidates) {
  const float maximum = *std::max_element(logits.begin(), logits.end());
  candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const float weight = std::exp((logits[i] - maximum) / params.temperature);
    if (weight >= params.min_p && weight > 0.0f) {
      candidates.emplace_back(weight, static_cast<TokenId>(i));
    }
  }
}

double SumOf(const std::vector<std::pair<float, TokenId>>& candidates) {
  double sum = 0;
  for (const auto& candidate : candidates) sum += candidate.first;
  return sum;
}

// Keeps the fewest largest whose weights reach `share` of the sum; sorts only as far as needed.
void KeepTopP(double share, std::vector<std::pair<float, TokenId>>& candidates) {
  const double target = share * SumOf(candidates);
  double reached = 0;
  size_t sorted = 0;
  while (sorted < candidates.size()) {
    const size_t end = std::min(candidates.size(), std::max(kHeadStart, 4 * sorted));
    auto from = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
    auto to = candidates.begin() + static_cast<std::ptrdiff_t>(end);
    std::partial_sort(from, to, candidates.end(), Before);
    for (; sorted < end; ++sorted) {
      reached += candidates[sorted].first;
      if (reached >= target) {
        candidates.resize(sorted + 1);
        return;
      }
    }
  }
}

}  // namespace

LogitStats StatsOf(const OpContext& context, std::span<const float> logits) {
  LogitStats stats;
  const int64_t count = std::ssize(logits);
  if (const auto* kernels = cpu::KernelsFor(context.device)) {
    stats.maximum = kernels->max(logits.data(), count);
    stats.log_sum = std::log(double{kernels->sum_exp(logits.data(), count, stats.maximum)});
  } else {
    stats.maximum = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(double{logit} - stats.maximum);
    stats.log_sum = std::log(sum);
  }
  stats.finite = std::isfinite(stats.maximum) && std::isfinite(stats.log_sum);
  return stats;
}

std::vector<std::pair<TokenId, float>> TopLogprobs(std::span<const float> logits,
                                                   const LogitStats& stats, int32_t count) {
  std::vector<std::pair<float, TokenId>> best;
  const size_t size = std::min(logits.size(), static_cast<size_t>(std::max(count, 0)));
  best.reserve(size + 1);
  for (size_t i = 0; size > 0 && i < logits.size(); ++i) {
    const std::pair<float, TokenId> entry(logits[i], static_cast<TokenId>(i));
    if (best.size() == size && !Before(entry, best.back())) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), entry, Before), entry);
    if (best.size() > size) best.pop_back();
  }
  std::vector<std::pair<TokenId, float>> out;
  out.reserve(best.size());
  for (const auto& [logit, id] : best) out.emplace_back(id, LogprobOf(logit, stats));
  return out;
}

TokenId ArgMax(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
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

TokenId Sample(const SampleParams& params, std::span<const float> logits, double uniform,
               std::vector<std::pair<float, TokenId>>& candidates) {
  FillCandidates(params, logits, candidates);
  const size_t k = static_cast<size_t>(std::max(params.top_k, 0));
  if (k > 0 && k < candidates.size()) {
    auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
    std::partial_sort(candidates.begin(), end, candidates.end(), Before);
    candidates.resize(k);
  }
  if (params.top_p < 1.0f) KeepTopP(params.top_p, candidates);
  double left = uniform * SumOf(candidates);
  for (const auto& [weight, id] : candidates) {
    left -= weight;
    if (left < 0) return id;
  }
  return candidates.back().second;
}

}  // namespace braid::ops
