// One Knuth-Morris-Pratt automaton per stop string. What is held back is the longest prefix of any
// stop string that the text so far ends with; since stop strings are UTF-8, cuts fall between
// characters.
#include "text/answer/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace braid {
namespace {

std::vector<size_t> Borders(std::string_view text) {
  std::vector<size_t> border(text.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = border[length - 1];
    if (text[i] == text[length]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    CHECK(!stop.empty());
    std::vector<size_t> border = Borders(stop);
    patterns_.push_back({.text = std::move(stop), .border = std::move(border)});
  }
}

StopMatcher::Piece StopMatcher::Push(std::string_view text, bool may_stop) {
  if (stopped_) return {.stopped = true, .which = which_};
  for (size_t i = 0; i < text.size(); ++i) {
    for (size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      size_t& matched = pattern.matched;
      while (matched > 0 && pattern.text[matched] != text[i]) matched = pattern.border[matched - 1];
      if (pattern.text[matched] == text[i]) ++matched;
      if (matched < pattern.text.size()) continue;
      if (!may_stop) {
        matched = pattern.border[matched - 1];
        continue;
      }
      if (!stopped_ || pattern.text.size() > patterns_[which_].text.size()) which_ = p;
      stopped_ = true;
    }
    if (!stopped_) continue;
    Piece piece{.text = std::move(held_), .stopped = true, .which = which_};
    piece.text += text.substr(0, i + 1);
    piece.text.resize(piece.text.size() - patterns_[which_].text.size());
    held_.clear();
    return piece;
  }
  size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.matched);
  held_ += text;
  Piece piece{.text = held_.substr(0, held_.size() - keep)};
  held_.erase(0, held_.size() - keep);
  return piece;
}

StopMatcher::Piece StopMatcher::Flush() {
  Piece piece{.text = std::move(held_), .stopped = stopped_, .which = which_};
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return piece;
}

}  // namespace braid
