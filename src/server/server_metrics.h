// What /metrics shows. Names are vLLM's with the prefix braid:, so that dashboards and autoscalers
// written for it work; the engine's own numbers are copied in when the page is asked for.
#pragma once

#include <array>
#include <string>

#include "base/metrics.h"
#include "scheduler/driver.h"

namespace braid {

class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model_name);

  void CountFinish(FinishReason reason);
  std::string Text(const DriverStats& stats);

 private:
  MetricsRegistry::Labels With(const std::string& label, std::string_view value) const;
  void AddLabelled();

  // Declared before the references into it.
  MetricsRegistry registry_;
  MetricsRegistry::Labels labels_;

 public:
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token_latency;
  prometheus::Histogram& e2e_latency;
  prometheus::Counter& rejections;

 private:
  prometheus::Gauge& running_;
  prometheus::Gauge& waiting_;
  prometheus::Gauge& cache_usage_;
  prometheus::Counter& prefix_queries_;
  prometheus::Counter& prefix_hits_;
  prometheus::Counter& preemptions_;
  prometheus::Counter& evictions_keys_;
  prometheus::Counter& evictions_states_;
  prometheus::Counter& audits_;
  prometheus::Counter& repairs_;
  prometheus::Counter& steps_;
  prometheus::Counter& prefill_rows_;
  prometheus::Gauge& step_seconds_;
  std::array<prometheus::Counter*, 4> finished_;  // all but kSent, which no API asks for
  std::array<prometheus::Gauge*, 3> pages_;       // used, cached, free
  std::array<prometheus::Counter*, kReuseStops> reuse_stops_;
  std::array<prometheus::Counter*, kReuseStops> lost_tokens_;
};

// "stop", "length", "abort", "error".
std::string_view FinishName(FinishReason reason);

}  // namespace braid
