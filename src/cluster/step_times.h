// How long steps of rows last by the clocks of a forecast. Nearly equal steps are computed once.
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "forecast/forecast.h"
#include "scheduler/plan.h"

namespace braid {

class StepTimes {
 public:
  // With `overlap`, communication is hidden behind computation.
  StepTimes(std::vector<StepClock> clocks, bool overlap)
      : clocks_(std::move(clocks)), overlap_(overlap) {}

  // Of the steps from now on, by all clocks.
  void SetExpertBalance(double balance);
  // Of a group's rows in a step. Windows number the balances: each has one.
  double SecondsOf(std::span<const Row> rows, size_t window, size_t clock);

 private:
  std::vector<StepClock> clocks_;
  bool overlap_;
  std::unordered_map<uint64_t, double> seconds_;
};

}  // namespace braid
