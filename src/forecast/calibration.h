// What the parts of steps took on a device, measured by `braid bench ops --json`: it replaces the
// formula for parts that were measured. For others the formula's time is divided by the share of
// the limits that the measurements reached. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace braid {

struct MeasuredPart {
  std::string part;    // of a step, as CostsOf names it
  std::string format;  // of its weights; empty: a part without weights, or the head
  double flops = 0, bytes = 0, seconds = 0;
};

// A part whose time is asked for, with the limits of both its bounds.
struct UnmeasuredPart {
  std::string_view part, format;
  double flops = 0, bytes = 0;
  double arithmetic_seconds = 0, memory_seconds = 0;
};

// Norms, convolutions and gated norms of all layers: what is done to rows between products. The
// formula leaves it out; a calibration that has measured it counts it.
inline constexpr std::string_view kRowWork = "norms, convolutions";
Cost RowWorkOf(const ModelSpec& spec, int64_t tokens);

class Calibration {
 public:
  Calibration() = default;
  // `memory_fraction` and `arithmetic_fraction`: reached of the limit by what it bounds. Parts with
  // the same operations and bytes are measurements of the same: their median counts.
  Calibration(std::vector<MeasuredPart> parts, double memory_fraction, double arithmetic_fraction);

  bool empty() const { return parts_.empty(); }
  bool has(std::string_view part) const;
  // Between measurements: the part's own limits,
  // which are its best measured rates, times how far measurements near it, by logarithms of
  // operations and bytes, stayed behind them.
  double Seconds(const UnmeasuredPart& part) const;

 private:
  std::vector<MeasuredPart> parts_;
  double memory_fraction_ = 1, arithmetic_fraction_ = 1;
};

}  // namespace braid
