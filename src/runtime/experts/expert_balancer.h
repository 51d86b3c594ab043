// Decides when experts move (experts/balance.h), on the rank that leads: every so many steps, if
// the ranks' balance is below a threshold, a thread of its own computes a placement from what
// tokens chose since the last time, and posts it as an event, which all ranks carry out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/balance.h"
#include "scheduler/event.h"

namespace braid {

struct BalancerOptions {
  int32_t every_steps = 1000;
  double below = 0.9;  // mean over fullest rank
  BalanceRules rules;
};

struct BalancerFigures {
  int64_t decisions = 0, moves = 0;
  double predicted = 0;  // balance under the last placement that was wanted; 0: none
};

// What lies in the slots of a group of ranks.
struct BalancedExperts {
  ExpertShape shape;
  std::vector<int32_t> layers;  // of the model: those with experts
  int32_t groups = 1;           // that have all experts each
};

class ExpertBalancer {
 public:
  ExpertBalancer(BalancedExperts experts, const BalancerOptions& options);
  ~ExpertBalancer();

  // Engine thread: so many steps' counts, [layer][expert]. Where the experts lie is asked for only
  // when it is time. Nothing is decided while they move.
  struct Window {
    std::span<const int64_t> counts;
    int32_t steps = 0;
    bool moving = false;
  };
  template <class PlacementOf>
  void Add(const Window& window, EventSink& events, PlacementOf placement_of) {
    if (Count(window)) Ask(placement_of(), events);
  }
  // Engine thread: of a step, so many tokens of all ranks; before the window that has it.
  void AddStep(int64_t tokens);
  // No event is posted after it returns.
  void Stop();

  BalancerFigures figures() const;  // any thread

 private:
  bool Count(const Window& window);
  void Ask(std::vector<LayerSlots> placement, EventSink& events);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
