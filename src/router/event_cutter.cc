// Lines end with LF or CR LF; engines write the one or the other throughout.
#include "router/event_cutter.h"

#include <algorithm>
#include <utility>

namespace braid {
namespace {

// How many bytes of these are whole events.
size_t WholeEvents(std::string_view bytes) {
  size_t end = 0;
  for (const std::string_view blank : {"\n\n", "\r\n\r\n"}) {
    const size_t at = bytes.rfind(blank);
    if (at != std::string_view::npos) end = std::max(end, at + blank.size());
  }
  return end;
}

}  // namespace

std::string_view EventCutter::Take(std::string_view piece) {
  if (held_.empty()) {
    const size_t whole = WholeEvents(piece);
    if (whole > 0) torn_ = false;
    held_ = piece.substr(whole);
    if (held_.size() <= kHeldBytesMax) return piece.substr(0, whole);
    held_.clear();
    torn_ = true;
    return piece;
  }
  held_.append(piece);
  given_ = std::exchange(held_, {});
  const size_t whole = WholeEvents(given_);
  if (whole > 0) torn_ = false;
  if (given_.size() - whole > kHeldBytesMax) {
    torn_ = true;
    return given_;
  }
  held_ = given_.substr(whole);
  return std::string_view(given_).substr(0, whole);
}

std::string_view EventCutter::Rest() {
  given_ = std::exchange(held_, {});
  return given_;
}

bool OnlyComments(std::string_view events) {
  while (!events.empty()) {
    const std::string_view line = events.substr(0, events.find('\n'));
    events.remove_prefix(std::min(events.size(), line.size() + 1));
    if (!line.empty() && line != "\r" && line.front() != ':') return false;
  }
  return true;
}

}  // namespace braid
