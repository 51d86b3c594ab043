// See the header.
#include "cli/bench/rebalance_steps.h"

#include <algorithm>

#include "cli/bench/statistics.h"

namespace braid {

RebalanceStep StepOf(const GroupStep& step, int32_t experts_group, int32_t exchanges) {
  RebalanceStep out{.moving = step.moving,
                    .step_ms = static_cast<double>(step.cpu_ns) * 1e-6,
                    .moves_ms = static_cast<double>(step.beside_ns) * 1e-6,
                    .wall_ms = static_cast<double>(step.wall_ns) * 1e-6};
  int32_t at = 0;
  for (const StepPart& part : step.parts) {
    if (part.group != experts_group || ++at % exchanges != 0) continue;
    out.experts_ms += static_cast<double>(part.cpu_ns) * 1e-6;
  }
  return out;
}

RebalanceFigures FiguresOf(std::span<const RebalanceStep> steps, double cost_ratio) {
  RebalanceFigures figures;
  std::vector<double> step[2], experts[2], still, still_wall, moving, moving_wall;
  for (const RebalanceStep& s : steps) {
    if (s.moving) {
      moving.push_back(s.step_ms + s.moves_ms);
      moving_wall.push_back(s.wall_ms);
      continue;
    }
    step[s.placed].push_back(s.step_ms);
    experts[s.placed].push_back(s.experts_ms);
    still.push_back(s.step_ms);
    still_wall.push_back(s.wall_ms);
  }
  figures.in_order = std::ssize(step[0]);
  figures.placed = std::ssize(step[1]);
  figures.moving = std::ssize(moving);
  for (size_t i = 0; i < 2; ++i) {
    figures.step_ms[i] = Median(step[i]);
    figures.experts_ms[i] = Median(experts[i]);
  }
  figures.predicted_experts_ms = figures.experts_ms[0] * cost_ratio;
  figures.predicted_step_ms =
      figures.step_ms[0] - figures.experts_ms[0] + figures.predicted_experts_ms;
  if (figures.in_order > 0 && figures.placed > 0) {
    figures.gain = figures.step_ms[0] / figures.step_ms[1];
    figures.predicted_gain = figures.step_ms[0] / figures.predicted_step_ms;
    figures.over_prediction = figures.step_ms[1] / figures.predicted_step_ms;
  }
  const auto longest = [](const std::vector<double>& of, const std::vector<double>& usual) {
    return of.empty() || usual.empty() ? 0 : std::ranges::max(of) / Median(usual);
  };
  figures.longest_moving = longest(moving, still);
  figures.longest_still = longest(still, still);
  figures.longest_moving_wall = longest(moving_wall, still_wall);
  figures.longest_still_wall = longest(still_wall, still_wall);
  figures.wall_ms = Median(still_wall);
  return figures;
}

}  // namespace braid
