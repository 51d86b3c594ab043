// Whether the experts should lie elsewhere, from what tokens chose lately: what time a new
// placement would save, counted in rows of an expert, and what it costs to move there. Layers are
// judged one by one, so that a layer whose load is even stays as it is, and then all together, so
// that steps are not disturbed for little. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/expert_map.h"

namespace braid {

struct BalanceRules {
  double wanted = 0.95;  // balance at which a new placement of a layer is content
  // A layer stays as it is if its slowest rank would not save at least this part of its time, and
  // all do if that holds of their times together: loads change, and experts must not move to and
  // fro.
  double gain_min = 0.05;
  // Reading an expert's weights takes as long as computing so many rows of it: where few tokens
  // choose it in a step, its rank reads it for them all the same, and so does every replica's.
  double rows_per_read = 16;
  // Moving an expert keeps its receiver as busy as so many rows would.
  double rows_per_move = 64;
};

struct BalanceDecision {
  std::vector<LayerSlots> next;          // of each layer
  bool moves = false;                    // it differs from the current placement
  double balance = 1, balance_next = 1;  // mean over fullest rank, summed over layers
  int64_t received = 0;                  // experts that ranks have to receive
};

// What the tokens of the window that just ended chose; the next one is taken to be like it.
struct BalanceWindow {
  std::span<const int64_t> counts;  // [layer][expert]
  // How many rows came in how many steps, which are taken to be alike: steps of prompts are longer
  // than steps of tokens one by one. None: all came in one step.
  struct Part {
    int64_t steps = 1;
    int64_t rows = 1;
  };
  std::span<const Part> parts = {};
  // In the model, which decides about the choice of replicas. None: counted from 0.
  std::span<const int32_t> layers = {};
  // Of ranks that have all experts together: each has an equal part of the counts.
  int32_t groups = 1;
};

// What the rank that takes longest is expected to take for a layer's experts in all steps, counted
// in rows of an expert; a slot takes as long as its rows, or as it takes to read it, whichever is
// longer. `loads`: rows of each slot in all steps (SlotLoads).
//
// Every step waits for its own slowest rank. The rows of a slot in a step vary as a Poisson
// variable does, a rank's time nearly as a normal one, and the longest of these is expected: of
// steps of few tokens it is well above the time of any rank in the mean, in whatever place experts
// lie.
double LongestRank(const ExpertShape& shape, std::span<const double> loads,
                   std::span<const BalanceWindow::Part> parts, double rows_per_read);

// By the replicas that ranks choose, if every rank of a group sends an equal part of its rows.
BalanceDecision Decide(const ExpertShape& shape, std::span<const LayerSlots> current,
                       const BalanceWindow& window, const BalanceRules& rules);

}  // namespace braid
