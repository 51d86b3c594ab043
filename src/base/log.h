// Logging: one line per event to stderr, fmt syntax. LogWarning etc. are thread-safe and never
// block on a slow sink for longer than one write.
#pragma once

#include <spdlog/spdlog.h>

namespace braid {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// Sets level and pattern once at start; `json` writes one object a line.
void InitLog(LogLevel level, bool json);

template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::info(format, std::forward<Args>(args)...);
}
template <class... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::warn(format, std::forward<Args>(args)...);
}
template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::error(format, std::forward<Args>(args)...);
}
template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  spdlog::debug(format, std::forward<Args>(args)...);
}

}  // namespace braid
