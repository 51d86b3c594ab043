// The closed formulas of a forecast that are no part of a model's cost: what ranks send each other,
// and what time costs. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace braid {

// What a rank receives when `ranks` of them gather rows of `width` elements of which each has its
// share.
inline double GatherBytes(double tokens, double width, double element_bytes, int32_t ranks) {
  return tokens * width * element_bytes * (ranks - 1) / ranks;
}

// A row per token and chosen expert, as a rank sends it: `scale_group` elements share a scale of 4
// bytes; 0: no scales. Rows for experts of the rank itself are included.
inline double RoutedBytes(double tokens, double top_k, double hidden, double element_bytes,
                          double scale_group = 0) {
  const double scales = scale_group > 0 ? 4 * hidden / scale_group : 0;
  return tokens * top_k * (hidden * element_bytes + scales);
}

// The most nodes of `node` devices that one of the groups of `size` consecutive ones of all
// `devices` lies on. Groups that do not divide a node straddle two.
inline int32_t NodesOfGroup(int32_t devices, int32_t size, int32_t node) {
  int32_t nodes = 1;
  // After `node` groups the places within nodes repeat.
  const int64_t groups = std::min(devices / size, node);
  for (int64_t first = 0; first < groups * size; first += size) {
    nodes = std::max(nodes, static_cast<int32_t>((first + size - 1) / node - first / node + 1));
  }
  return nodes;
}

// The chance that `top_k` different ones of `all` experts miss `here` of them.
inline double ChanceOfNone(double all, double here, int32_t top_k) {
  double none = 1;
  for (int32_t i = 0; i < top_k; ++i) none *= std::fmax(0, all - here - i) / (all - i);
  return none;
}

// Mean number of nodes that a token goes to: `top_k` experts of `kept` of `groups` groups, all
// chosen uniformly, on `nodes` that have whole groups or, where nodes do not divide the groups, an
// equal part of all experts.
inline double NodesOfToken(int32_t experts, int32_t top_k, int32_t groups, int32_t kept,
                           int32_t nodes) {
  if (groups <= 1 || groups % nodes != 0) {
    return nodes * (1 - ChanceOfNone(experts, static_cast<double>(experts) / nodes, top_k));
  }
  const int32_t of_node = groups / nodes, size = experts / groups;
  // By how many of the node's groups are kept.
  double none = 0;
  for (int32_t j = 0; j <= std::min(of_node, kept); ++j) {
    if (kept - j > groups - of_node) continue;
    const auto choose = [](int32_t n, int32_t k) {
      double ways = 1;
      for (int32_t i = 0; i < k; ++i) ways *= static_cast<double>(n - i) / (i + 1);
      return ways;
    };
    const double chance =
        choose(of_node, j) * choose(groups - of_node, kept - j) / choose(groups, kept);
    none += chance * ChanceOfNone(kept * size, j * size, top_k);
  }
  return nodes * (1 - none);
}

// Links that a byte crosses to a random node of a torus, its own node included: a quarter of an
// even ring, (n^2 - 1) / 4n of an odd one.
inline double MeanHops(std::span<const int32_t> rings) {
  double hops = 0;
  for (const int32_t n : rings) hops += n % 2 == 0 ? n / 4.0 : (n * n - 1) / (4.0 * n);
  return hops;
}

// Seconds of a part whose arithmetic and memory traffic overlap.
inline double LimitSeconds(double flops, double flops_per_second, double bytes,
                           double bytes_per_second) {
  return std::fmax(flops / flops_per_second, bytes / bytes_per_second);
}

inline double DollarsPerMillion(double dollars_per_hour, double tokens_per_second) {
  return dollars_per_hour / 3600 / tokens_per_second * 1e6;
}

// The tp = dp that holds least memory of one matrix [hidden, width] and of the hidden state of all
// groups, which captured graphs hold `copies` times more.
inline double LeastMemoryRanks(double width, double tokens, double copies) {
  return std::sqrt(width / ((1 + copies) * tokens));
}

}  // namespace braid
