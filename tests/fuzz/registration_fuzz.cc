// What an engine says to a router, and the router's answer: what is accepted is written again so
// that it is read as the same, and no part of it can end a line of a request.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "router/registration/registration.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string_view name = input.substr(0, line);
  const std::string_view body = input.substr(std::min(line + 1, input.size()));
  if (const auto registration = ParseRegistration(name, body)) {
    const auto again = ParseRegistration(name, EncodeRegistration(*registration));
    CHECK(again && *again == *registration);
    const std::string texts = registration->address.host + registration->handoff +
                              registration->program + registration->address.events.events;
    CHECK(texts.find_first_of("\r\n") == std::string::npos);
  }
  if (const auto lease = ParseLease(body)) {
    const auto again = ParseLease(EncodeLease(*lease));
    CHECK(again && again->lease_ms == lease->lease_ms && again->prefills == lease->prefills);
  }
  return 0;
}
