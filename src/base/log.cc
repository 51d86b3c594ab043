// Set-up of the process-wide log sink (stderr).
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace braid {

void InitLog(LogLevel level, bool json) {
  auto logger = spdlog::get("braid");
  if (!logger) logger = spdlog::stderr_color_mt("braid");
  spdlog::set_default_logger(logger);
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err,
                                                   spdlog::level::off};
  spdlog::set_level(kLevels[static_cast<size_t>(level)]);
  spdlog::set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%v"})"
                           : "%H:%M:%S %^%L%$ %v");
}

}  // namespace braid
