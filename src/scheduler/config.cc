// See the header.
#include "scheduler/config.h"

#include <fmt/core.h>

namespace braid {

int64_t ValueOf(const SchedulerConfig& config, const Setting& setting) {
  return std::visit([&](auto member) { return static_cast<int64_t>(config.*member); },
                    setting.member);
}

Status CheckSettings(const SchedulerConfig& config) {
  for (const Setting& setting : kSettings) {
    const int64_t value = ValueOf(config, setting);
    if (value >= setting.least && value <= setting.most) continue;
    const bool less = value < setting.least;
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} is {}, must be at {} {}", setting.name, value,
                             less ? "least" : "most", less ? setting.least : setting.most),
                 setting.name};
  }
  return {};
}

}  // namespace braid
