// See the header.
#include "base/quantities.h"

#include <fmt/core.h>

#include <span>

namespace braid {
namespace {

// Three digits and a unit.
std::string Scaled(double value, double step, std::span<const char* const> units) {
  size_t unit = 0;
  while (value >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}{}", value, units[0]);
  return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : value < 100 ? 1 : 0, units[unit]);
}

}  // namespace

std::string ByteText(int64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  return Scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string TimeText(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.2f} ms", seconds * 1e3)
                         : fmt::format("{:.1f} us", seconds * 1e6);
}

std::string CountText(int64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  return Scaled(static_cast<double>(count), 1000, kUnits);
}

}  // namespace braid
