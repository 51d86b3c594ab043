// Draws the bar on standard error when it is a terminal.
#include "base/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace braid {

bool StderrIsTerminal() { return ::isatty(STDERR_FILENO) == 1; }
bool StdoutIsTerminal() { return ::isatty(STDOUT_FILENO) == 1; }

ProgressBar::ProgressBar(std::string what, double delay_seconds)
    : what_(std::move(what)),
      start_us_(MonotonicUs()),
      delay_us_(static_cast<int64_t>(delay_seconds * 1e6)),
      terminal_(StderrIsTerminal()) {}

ProgressBar::~ProgressBar() {
  if (shown_us_ != 0) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::Show(double fraction, const std::string& detail) {
  constexpr int64_t kEveryUs = 100'000;
  const int64_t now_us = MonotonicUs();
  if (!terminal_ || now_us - start_us_ < delay_us_ || now_us - shown_us_ < kEveryUs) return;
  shown_us_ = now_us;
  constexpr int kWidth = 30;
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  const double elapsed = static_cast<double>(now_us - start_us_) * 1e-6;
  const std::string left =
      fraction > 0.02 ? fmt::format(", {:.0f} s left", elapsed / fraction * (1 - fraction)) : "";
  fmt::print(stderr, "\r{} [{:=<{}}{: <{}}] {:3.0f} %{}{}\033[K", what_, "", full, "",
             kWidth - full, fraction * 100, left, detail.empty() ? "" : "  " + detail);
  std::fflush(stderr);
}

}  // namespace braid
