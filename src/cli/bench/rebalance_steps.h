// The figures of `braid bench rebalance`, from what the ranks computed in each step. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/step_times.h"

namespace braid {

// A step of the group, in milliseconds.
struct RebalanceStep {
  bool placed = false;    // where the balancer wants the experts; else in order
  bool moving = false;    // some experts were on their way, or were swapped
  double step_ms = 0;     // what the slowest rank of each part computed
  double experts_ms = 0;  // of which for experts' rows
  double moves_ms = 0;    // what a rank's thread of moves computed beside the step
  double wall_ms = 0;     // on this machine, where ranks may share cores
};

// Tokens come to experts in `exchanges` of the group of experts, of which the last brings the rows
// back: what is computed before that is the experts' time.
RebalanceStep StepOf(const GroupStep& step, int32_t experts_group, int32_t exchanges);

struct RebalanceFigures {
  int64_t in_order = 0, placed = 0, moving = 0;  // steps
  // Medians; 0 without such steps.
  double step_ms[2] = {}, experts_ms[2] = {};  // in order, placed
  // Placed, if the experts' time changes as the balancer's cost does and nothing else changes.
  double predicted_step_ms = 0, predicted_experts_ms = 0;
  double gain = 0, predicted_gain = 0;
  double over_prediction = 0;  // the placed step over the predicted one
  // The longest step over the median of those in which nothing moves: of steps in which experts
  // move, with the work of moving on the same core; of the others; and of both by the wall clock.
  double longest_moving = 0, longest_still = 0;
  double longest_moving_wall = 0, longest_still_wall = 0;
  double wall_ms = 0;  // the median by the wall clock, of steps in which nothing moves
};
// `cost_ratio`: the balancer's cost of the placement over that of experts in order.
RebalanceFigures FiguresOf(std::span<const RebalanceStep> steps, double cost_ratio);

}  // namespace braid
