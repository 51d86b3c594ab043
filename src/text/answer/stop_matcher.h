// Finds stop strings in a stream of text and holds back what could still become one. Linear in the
// text (times the number of stop strings), whatever the strings. One per stream, one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class StopMatcher {
 public:
  struct Piece {
    std::string text;      // free to send on; ends before the stop string
    bool stopped = false;  // a stop string was completed; all later input is dropped
    size_t which = 0;      // its index, if stopped
  };

  // `stops` must not contain an empty string. With none, every text passes at once.
  // The stop that is complete first wins; of those complete at the same byte, the longest.
  explicit StopMatcher(std::vector<std::string> stops);

  // `may_stop` false: what is completed in `text` does not count; what begins there still does.
  Piece Push(std::string_view text, bool may_stop = true);

  // The end of the stream: text that was held back is passed on.
  Piece Flush();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // border[i]: longest proper border of the first i + 1 bytes
    size_t matched = 0;          // bytes of `text` that the input ends with
  };
  std::vector<Pattern> patterns_;
  std::string held_;  // input not yet released; begins where the longest partial match begins
  bool stopped_ = false;
  size_t which_ = 0;
};

}  // namespace braid
