// Measured points are few, tens for each part: they are searched one by one.
#include "forecast/calibration.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace braid {
namespace {

double Distance(const MeasuredPart& point, double flops, double bytes) {
  const auto along = [](double a, double b) {
    return std::log(std::max(a, 1.0)) - std::log(std::max(b, 1.0));
  };
  return std::hypot(along(point.flops, flops), along(point.bytes, bytes));
}

}  // namespace

Cost RowWorkOf(const ModelSpec& spec, int64_t tokens) {
  double floats = 4.0 * spec.hidden;  // read and written for a token; here by the last norm
  for (const LayerSpec& layer : spec.layers) {
    floats += 2 * 4.0 * spec.hidden;
    const LinearAttention* m = std::get_if<LinearAttention>(&layer.mixer);
    if (m == nullptr) continue;
    const double values = static_cast<double>(m->value_heads) * m->value_dim;
    const double channels = 2.0 * m->key_heads * m->key_dim + values;
    floats += (m->conv_width > 1 ? 2 * channels : 0) + 3 * values;
  }
  return {.bytes = 4 * floats * static_cast<double>(tokens), .part = kRowWork};
}

bool Calibration::has(std::string_view part) const {
  return std::ranges::any_of(parts_, [&](const MeasuredPart& p) { return p.part == part; });
}

Calibration::Calibration(std::vector<MeasuredPart> parts, double memory_fraction,
                         double arithmetic_fraction)
    : memory_fraction_(memory_fraction), arithmetic_fraction_(arithmetic_fraction) {
  const auto key = [](const MeasuredPart& p) {
    return std::tie(p.part, p.format, p.flops, p.bytes);
  };
  std::ranges::sort(parts, [&](const MeasuredPart& a, const MeasuredPart& b) {
    return std::tuple_cat(key(a), std::tie(a.seconds)) <
           std::tuple_cat(key(b), std::tie(b.seconds));
  });
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    while (end < parts.size() && key(parts[end]) == key(parts[begin])) ++end;
    parts_.push_back(parts[begin + (end - begin) / 2]);
  }
}

double Calibration::Seconds(const UnmeasuredPart& part) const {
  double flops_rate = 0, bytes_rate = 0;
  const auto is_of = [&](const MeasuredPart& p) {
    return p.part == part.part && p.format == part.format;
  };
  for (const MeasuredPart& p : parts_) {
    if (!is_of(p)) continue;
    flops_rate = std::max(flops_rate, p.flops / p.seconds);
    bytes_rate = std::max(bytes_rate, p.bytes / p.seconds);
  }
  if (bytes_rate <= 0) {
    return std::max(part.arithmetic_seconds / arithmetic_fraction_,
                    part.memory_seconds / memory_fraction_);
  }
  const auto limit = [&](double f, double b) {
    return std::max(flops_rate > 0 ? f / flops_rate : 0, b / bytes_rate);
  };
  double behind = 0, weights = 0;
  for (const MeasuredPart& p : parts_) {
    if (!is_of(p)) continue;
    // The power lets the nearest decide; a point that is met decides alone.
    const double weight = std::pow(std::max(Distance(p, part.flops, part.bytes), 1e-4), -4);
    behind += weight * std::log(p.seconds / limit(p.flops, p.bytes));
    weights += weight;
  }
  return limit(part.flops, part.bytes) * std::exp(behind / weights);
}

}  // namespace braid
