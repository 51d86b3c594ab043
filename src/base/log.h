// Logging: one line per event to stderr, fmt syntax. LogWarning etc. are thread-safe and never
// block on a slow sink for longer than one write.
#pragma once

#include <fmt/core.h>

#include <cstdint>

namespace braid {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// Sets level and pattern once at start; `json` writes one object a line.
void InitLog(LogLevel level, bool json);

// Writes a line if the level is on. Not a template: spdlog's own would be compiled for each caller,
// with all of fmt (2.6 of 21 MB of all objects).
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args);

template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kInfo, format, fmt::make_format_args(args...));
}
template <class... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kWarning, format, fmt::make_format_args(args...));
}
template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kError, format, fmt::make_format_args(args...));
}
template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kDebug, format, fmt::make_format_args(args...));
}

}  // namespace braid
