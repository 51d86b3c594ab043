// A progress bar on stderr, on a terminal only; otherwise silent. One thread.
#pragma once

#include <cstdint>
#include <string>

namespace braid {

bool StderrIsTerminal();
bool StdoutIsTerminal();

class ProgressBar {
 public:
  // Shown at once on a terminal when `delay_seconds` is 0, else after so many seconds.
  ProgressBar(std::string what, double delay_seconds);
  ~ProgressBar();  // wipes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `fraction` in [0, 1]; `detail` stands behind the bar.
  void Show(double fraction, const std::string& detail = {});

 private:
  std::string what_;
  int64_t start_us_;
  int64_t shown_us_ = 0;
  int64_t delay_us_;
  bool terminal_;
};

}  // namespace braid
