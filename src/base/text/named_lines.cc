// Lines are compared in their order.
#include "base/text/named_lines.h"

#include <algorithm>

namespace braid {
namespace {

std::string_view TakeLine(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}
std::string_view NameIn(std::string_view line) { return line.substr(0, line.find(": ")); }
std::string_view ValueIn(std::string_view line) {
  const size_t colon = line.find(": ");
  return colon == std::string_view::npos ? "nothing" : line.substr(colon + 2);
}
bool Has(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    if (NameIn(TakeLine(text)) == name) return true;
  }
  return false;
}

}  // namespace

std::optional<LineDifference> FirstDifference(std::string_view first, std::string_view second) {
  while (!first.empty() || !second.empty()) {
    const std::string_view a = TakeLine(first), b = TakeLine(second);
    if (a == b) continue;
    if (NameIn(a) == NameIn(b)) return LineDifference{NameIn(a), ValueIn(a), ValueIn(b)};
    // One of them has a line more: the second, if the first one's is further on there.
    const bool more = a.empty() || (!b.empty() && Has(second, NameIn(a)));
    if (more) return LineDifference{NameIn(b), ValueIn({}), ValueIn(b)};
    return LineDifference{NameIn(a), ValueIn(a), ValueIn({})};
  }
  return {};
}

}  // namespace braid
