// A small matcher for the patterns of ignore lists, by backtracking with a budget: a pattern that
// would run for ever matches nothing. Steps nest, at most all that the budget has: 5 MB of stack.
// What all patterns of a checkpoint may take is the caller's to bound.
// (The budget of Boost.Regex cannot be set: it spends 49 ms on each module name for
// "(a*)*(a*)*…b".)
#include <algorithm>
#include <cctype>
#include <functional>

#include "model/checkpoint/formats/quantization.h"

namespace braid {
namespace {

constexpr int kStepsMax = 20'000;
constexpr size_t kBytesMax = 1024;
constexpr size_t kBytesPerStep = 16;  // of a pattern that are skipped in the time of a step
constexpr size_t kNone = std::string_view::npos;

class Matcher {
 public:
  // What must match after a part of the pattern, from a position of the text.
  using Rest = std::function<bool(size_t at)>;

  Matcher(std::string_view pattern, std::string_view text, int64_t& steps_left)
      : pattern_(pattern), text_(text), steps_left_(steps_left) {}

  bool Alternatives(size_t begin, size_t end, size_t at, const Rest& rest) {
    Skip(end - begin);
    int depth = 0;
    for (size_t q = begin; q < end; ++q) {
      const char c = pattern_[q];
      if (c == '\\') {
        ++q;
      } else if (c == '(' || c == ')') {
        depth += c == '(' ? 1 : -1;
      } else if (c == '|' && depth == 0) {
        if (Sequence(begin, q, at, rest)) return true;
        begin = q + 1;
      }
    }
    return Sequence(begin, end, at, rest);
  }

 private:
  // The end of the item that begins at p: a group, a class, an escape, a character.
  size_t ItemEnd(size_t p, size_t end) const {
    const char c = pattern_[p];
    if (c == '\\') return p + 2 <= end ? p + 2 : kNone;
    if (c == '[') {
      size_t q = p + 1;
      if (q < end && pattern_[q] == '^') ++q;
      q = pattern_.find(']', q + 1);
      return q < end ? q + 1 : kNone;
    }
    if (c != '(') return p + 1;
    int depth = 0;
    for (size_t q = p; q < end; ++q) {
      if (pattern_[q] == '\\') {
        ++q;
      } else if (pattern_[q] == '(') {
        ++depth;
      } else if (pattern_[q] == ')' && --depth == 0) {
        return q + 1;
      }
    }
    return kNone;
  }

  static bool InClass(char kind, char c) {
    const auto u = static_cast<unsigned char>(c);
    if (kind == 'd') return std::isdigit(u) != 0;
    if (kind == 'w') return std::isalnum(u) != 0 || c == '_';
    if (kind == 's') return std::isspace(u) != 0;
    return kind == c;
  }

  // One character against the item [p, end), which is not a group.
  bool Single(size_t p, size_t end, char c) const {
    const char kind = pattern_[p];
    if (kind == '.') return true;
    if (kind == '\\') return InClass(pattern_[p + 1], c);
    if (kind != '[') return kind == c;
    const bool negated = pattern_[p + 1] == '^';
    bool found = false;
    for (size_t q = p + (negated ? 2 : 1); q + 1 < end; ++q) {
      if (q + 3 < end && pattern_[q + 1] == '-') {
        found = found || (c >= pattern_[q] && c <= pattern_[q + 2]);
        q += 2;
      } else {
        found = found || pattern_[q] == c;
      }
    }
    return found != negated;
  }

  bool Once(size_t p, size_t item, size_t at, const Rest& rest) {
    if (pattern_[p] == '(') {
      const size_t skip = pattern_.substr(p).starts_with("(?:") ? 3 : 1;
      return Alternatives(p + skip, item - 1, at, rest);
    }
    Skip(item - p);
    return at < text_.size() && Single(p, item, text_[at]) && rest(at + 1);
  }

  bool MayStep() { return --steps_left_ >= 0 && ++steps_ <= kStepsMax; }
  void Skip(size_t bytes) { steps_left_ -= static_cast<int64_t>(bytes / kBytesPerStep); }

  bool Repeat(size_t p, size_t item, size_t at, const Rest& rest) {
    if (!MayStep()) return false;
    const Rest again = [&](size_t next) { return next > at && Repeat(p, item, next, rest); };
    return Once(p, item, at, again) || rest(at);
  }

  bool Sequence(size_t p, size_t end, size_t at, const Rest& rest) {
    if (!MayStep()) return false;
    if (p == end) return rest(at);
    if (pattern_[p] == '^') return at == 0 && Sequence(p + 1, end, at, rest);
    if (pattern_[p] == '$') return at == text_.size() && Sequence(p + 1, end, at, rest);
    const size_t item = ItemEnd(p, end);
    Skip(std::min(item, end) - p);
    if (item == kNone || item > end) return false;
    const char times = item < end ? pattern_[item] : '\0';
    const bool counted = times == '*' || times == '+' || times == '?';
    const Rest after = [&](size_t next) { return Sequence(item + counted, end, next, rest); };
    if (times == '*') return Repeat(p, item, at, after);
    if (times == '+') {
      return Once(p, item, at, [&](size_t next) { return Repeat(p, item, next, after); });
    }
    return Once(p, item, at, after) || (times == '?' && after(at));
  }

  std::string_view pattern_;
  std::string_view text_;
  int64_t& steps_left_;
  int steps_ = 0;
};

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view text, int64_t& steps_left) {
  if (pattern.size() > kBytesMax || text.size() > kBytesMax) return false;
  Matcher matcher(pattern, text, steps_left);
  return matcher.Alternatives(0, pattern.size(), 0, [](size_t) { return true; });
}

}  // namespace braid
