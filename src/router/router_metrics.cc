// Registering. The names follow those of the engines.
#include "router/router_metrics.h"

namespace braid {
namespace {

constexpr std::string_view kFailures[] = {"connect", "broken", "lost", "refused"};

// Those that each engine has.
using Named = MetricsRegistry::Named;
constexpr Named kReady{"braid:router_engine_ready", "1 if new requests may go to the engine."};
constexpr Named kRequests{"braid:router_engine_requests",
                          "Requests that the engine works on for us."};
constexpr Named kSent{"braid:router_requests_total", "Requests sent to the engine."};
constexpr Named kEngineFailures{"braid:router_engine_failures_total",
                                "Requests that the engine did not serve."};

}  // namespace

RouterMetrics::RouterMetrics()
    : retries_(registry_.AddCounter("braid:router_retries_total",
                                    "Requests that were sent to another engine.")),
      broken_streams_(registry_.AddCounter("braid:router_broken_streams_total",
                                           "Answers that broke off after their first byte.")),
      rejections_(registry_.AddCounter("braid:router_rejections_total",
                                       "Requests that the router itself answered with an error.")),
      reused_tokens_(registry_.AddCounter("braid:router_prompt_tokens_total",
                                          "Prompt tokens, estimated, by what their engine does.",
                                          {{"kind", "reused"}})),
      computed_tokens_(registry_.AddCounter("braid:router_prompt_tokens_total",
                                            "Prompt tokens, estimated, by what their engine does.",
                                            {{"kind", "computed"}})),
      first_byte_(registry_.AddHistogram(
          "braid:router_first_byte_seconds", "Time to the first byte of an answer.",
          {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300})) {
  for (size_t i = 0; i < placements_.size(); ++i) {
    const std::string reason(NameOf(static_cast<Placer::Reason>(i)));
    placements_[i] =
        &registry_.AddCounter("braid:router_placements_total",
                              "Requests by what decided on their engine.", {{"reason", reason}});
  }
}

RouterMetrics::Engine& RouterMetrics::ForEngine(const std::string& name) {
  const auto [at, added] = engines_.try_emplace(name);
  Engine& engine = at->second;
  if (!added) return engine;
  const MetricsRegistry::Labels labels{{"engine", name}};
  engine.ready = &registry_.AddGauge(kReady.name, kReady.help, labels);
  engine.requests = &registry_.AddGauge(kRequests.name, kRequests.help, labels);
  engine.sent = &registry_.AddCounter(kSent.name, kSent.help, labels);
  for (size_t i = 0; i < engine.failures.size(); ++i) {
    MetricsRegistry::Labels kind = labels;
    kind["kind"] = kFailures[i];
    engine.failures[i] = &registry_.AddCounter(kEngineFailures.name, kEngineFailures.help, kind);
  }
  return engine;
}

void RouterMetrics::Forget(const std::string& name) {
  const auto at = engines_.find(name);
  if (at == engines_.end()) return;
  const Engine& engine = at->second;
  registry_.Remove(kReady, *engine.ready);
  registry_.Remove(kRequests, *engine.requests);
  registry_.Remove(kSent, *engine.sent);
  for (prometheus::Counter* failures : engine.failures) {
    registry_.Remove(kEngineFailures, *failures);
  }
  engines_.erase(at);
}

void RouterMetrics::CountPlacement(const Placer::Choice& choice) {
  placements_[static_cast<size_t>(choice.reason)]->Increment();
  reused_tokens_.Increment(static_cast<double>(choice.reused_tokens));
  computed_tokens_.Increment(static_cast<double>(choice.computed_tokens));
}

}  // namespace braid
