// The process-wide log sink (stderr). The sink drops a line that stderr does not accept at once, so
// that a pipe without a reader never blocks a thread that logs.
#include "base/log.h"

#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/text/cut_text.h"

namespace braid {
namespace {

// A writable pipe accepts this many bytes without blocking (PIPE_BUF).
constexpr size_t kLineBytesMax = 4096;

spdlog::level::level_enum LevelOf(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err,
                                                   spdlog::level::off};
  return kLevels[static_cast<size_t>(level)];
}

// A string of JSON of at most `bytes_max` bytes with the beginning of a text, of which a byte may
// take six as an escape.
std::string JsonTextWithin(std::string_view text, size_t bytes_max) {
  text = CutText(text, bytes_max);
  std::string out = json::serialize(json::string(text));
  while (out.size() > bytes_max && !text.empty()) {
    text = CutText(text, text.size() * bytes_max / out.size());
    out = json::serialize(json::string(text));
  }
  return out;
}

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StderrSink(bool json) : json_(json), colours_(!json && ::isatty(STDERR_FILENO) == 1) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    std::string line(text.data(), text.size());
    if (json_) {
      if (line.ends_with('\n')) line.pop_back();
      line += JsonTextWithin(std::string_view(message.payload.data(), message.payload.size()),
                             kLineBytesMax - std::min(kLineBytesMax, line.size() + 2)) +
              "}\n";
    } else if (colours_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\033[m");
      line.insert(message.color_range_start, ColourOf(message.level));
    }
    if (line.size() > kLineBytesMax) {
      line = std::string(CutText(line, kLineBytesMax - 1)) + '\n';
    }
    pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  void flush_() override {}

 private:
  static const char* ColourOf(spdlog::level::level_enum level) {
    return level >= spdlog::level::err    ? "\033[31m"
           : level == spdlog::level::warn ? "\033[33m"
                                          : "\033[32m";
  }

  const bool json_, colours_;
};

}  // namespace

void InitLog(LogLevel level, bool json) {
  auto logger = std::make_unique<spdlog::logger>("braid", std::make_unique<StderrSink>(json));
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(LevelOf(level));
  spdlog::set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":)"
                           : "%H:%M:%S %^%L%$ %v");
}

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (logger.should_log(LevelOf(level))) logger.log(LevelOf(level), fmt::vformat(format, args));
}

}  // namespace braid
