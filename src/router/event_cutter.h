// Cuts a stream of server-sent events where an event ends, so that a stream that breaks off ends
// with a whole event and another one can follow: the error. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace braid {

class EventCutter {
 public:
  // An event that is longer than this is passed on in parts.
  static constexpr size_t kHeldBytesMax = 64 << 10;

  // What may be sent now: whole events. The view is valid until the next call.
  std::string_view Take(std::string_view piece);
  // What is left at the stream's end.
  std::string_view Rest();
  // Part of an event was sent and its end was not: nothing can follow.
  bool torn() const { return torn_; }

 private:
  std::string held_, given_;
  bool torn_ = false;
};

// Whether there is nothing but comments in these events: ": ping".
bool OnlyComments(std::string_view events);

}  // namespace braid
