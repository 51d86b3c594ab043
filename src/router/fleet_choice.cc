// Which engines may take a request, and the choice among them. A choice counts as sent at once.
// Network thread only.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/text/trim.h"
#include "router/fleet.h"

namespace braid {

using State = FleetEngine::State;

bool Fleet::MayTake(const FleetEngine& engine, int64_t now_us) const {
  const bool registered = !engine.registration ||
                          (!engine.registration->prefills && now_us < engine.registered_until_us);
  return engine.state == State::kReady && !engine.draining && !engine.removed && registered &&
         engine.breaker.Allows(now_us);
}

Fleet::Chosen Fleet::Choose(const PromptKeys& prompt, std::span<const int32_t> tried) {
  const int64_t now_us = MonotonicUs();
  std::vector<EngineLoad> loads;
  for (const auto& engine : engines_) {
    if (!MayTake(*engine, now_us) || std::ranges::count(tried, engine->number) > 0) continue;
    loads.push_back({.engine = engine->number,
                     .requests = std::ssize(engine->stays) + engine->others_requests,
                     .backlog_tokens = engine->backlog_tokens});
  }
  Chosen chosen{.choice = placer_.Choose(prompt, loads)};
  if (chosen.choice.engine < 0) return chosen;
  const auto at = std::ranges::find_if(
      engines_, [&](const auto& engine) { return engine->number == chosen.choice.engine; });
  chosen.engine = at->get();
  placer_.Sent(prompt, chosen.choice);
  metrics_.CountPlacement(chosen.choice);
  chosen.engine->metrics.sent->Increment();
  return chosen;
}

bool Fleet::HasOther(std::span<const int32_t> tried) const {
  const int64_t now_us = MonotonicUs();
  return std::ranges::any_of(engines_, [&](const auto& engine) {
    return MayTake(*engine, now_us) && std::ranges::count(tried, engine->number) == 0;
  });
}

bool Fleet::HasPaused() const {
  const int64_t now_us = MonotonicUs();
  return std::ranges::any_of(engines_, [&](const auto& engine) {
    return engine->state == State::kReady && !engine->draining && !engine->removed &&
           !engine->breaker.Allows(now_us);
  });
}

std::vector<int32_t> Fleet::Outside(std::string_view destinations) const {
  std::set<std::string_view> listed;
  while (!destinations.empty()) {
    const std::string_view one = destinations.substr(0, destinations.find(','));
    destinations.remove_prefix(std::min(destinations.size(), one.size() + 1));
    listed.insert(Trimmed(one));
  }
  std::vector<int32_t> outside;
  for (const auto& engine : engines_) {
    if (!listed.contains(engine->destination())) outside.push_back(engine->number);
  }
  return outside;
}

std::vector<std::string> Fleet::Others(std::span<const int32_t> tried) const {
  const int64_t now_us = MonotonicUs();
  std::vector<const FleetEngine*> others;
  for (const auto& engine : engines_) {
    if (MayTake(*engine, now_us) && std::ranges::count(tried, engine->number) == 0) {
      others.push_back(engine.get());
    }
  }
  std::ranges::stable_sort(others, {}, [](const FleetEngine* engine) {
    return std::ssize(engine->stays) + engine->others_requests;
  });
  std::vector<std::string> destinations;
  for (const FleetEngine* engine : others) destinations.push_back(engine->destination());
  return destinations;
}

std::string Fleet::WhyNone(std::span<const int32_t> excluded) const {
  const int64_t now_us = MonotonicUs();
  std::string why;
  for (const auto& engine : engines_) {
    if (engine->removed || std::ranges::count(excluded, engine->number) > 0) continue;
    std::string_view reason = engine->why;
    if (engine->registration && engine->registration->prefills) {
      reason = "it computes prompts for other engines only";
    } else if (engine->state == State::kReady) {
      reason = engine->draining                  ? "draining"
               : !engine->breaker.Allows(now_us) ? "its connections fail"
                                                 : "tried already";
    }
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", engine->address.name, reason);
  }
  return why;
}

bool Fleet::AnyReady() const {
  const int64_t now_us = MonotonicUs();
  return std::ranges::any_of(engines_,
                             [&](const auto& engine) { return MayTake(*engine, now_us); });
}

}  // namespace braid
