// The router's own metrics. Network thread, but for Text.
#pragma once

#include <array>
#include <map>
#include <string>

#include "base/metrics.h"
#include "router/placement/placer.h"

namespace braid {

class RouterMetrics {
 public:
  RouterMetrics();

  // How an engine failed a request, or refused it.
  enum class Failure : uint8_t { kConnect, kBroken, kLost, kRefused, kCount };
  struct Engine {
    prometheus::Gauge* ready = nullptr;
    prometheus::Gauge* requests = nullptr;  // in flight
    prometheus::Counter* sent = nullptr;
    std::array<prometheus::Counter*, static_cast<size_t>(Failure::kCount)> failures = {};
  };
  // The same for the same name, until it is forgotten.
  Engine& ForEngine(const std::string& name);
  // Takes an engine's metrics back: engines that register come and go under new names.
  void Forget(const std::string& name);

  void CountPlacement(const Placer::Choice& choice);
  void CountRetry() { retries_.Increment(); }
  void CountBrokenStream() { broken_streams_.Increment(); }
  void CountRejection() { rejections_.Increment(); }
  void ObserveFirstByte(int64_t us) { first_byte_.Observe(static_cast<double>(us) / 1e6); }

  std::string Text() const { return registry_.Text(); }

 private:
  MetricsRegistry registry_;
  std::map<std::string, Engine> engines_;
  std::array<prometheus::Counter*, static_cast<size_t>(Placer::Reason::kCount)> placements_ = {};
  prometheus::Counter& retries_;
  prometheus::Counter& broken_streams_;
  prometheus::Counter& rejections_;
  prometheus::Counter& reused_tokens_;
  prometheus::Counter& computed_tokens_;
  prometheus::Histogram& first_byte_;
};

}  // namespace braid
