// What an engine says of itself to a router, again and again: PUT /engines/NAME with a JSON object.
// Each time it gets a lease; an engine that lets it run out is no longer the router's. The same
// message with "leaves" ends it at once. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "router/router_config.h"

namespace braid {

inline constexpr int32_t kRegistrationVersion = 1;
inline constexpr size_t kRegistrationBytesMax = 16 << 10;

struct Registration {
  EngineAddress address;  // without a key
  // Which process it is: of two at the same address the one with the larger number came later.
  int64_t generation = 0;
  std::string program;      // the engine's version, to show
  std::string fingerprint;  // of the model: lines of "name: value", equal for all engines
  bool prefills = false;    // it computes prompts for decode engines and takes no requests
  std::string handoff;      // then: HOST:PORT at which decode engines come for pages
  bool leaves = false;

  bool operator==(const Registration&) const = default;
};

// `name` is that of the path. kInvalid with the name of the wrong field.
Result<Registration> ParseRegistration(std::string_view name, std::string_view body);
std::string EncodeRegistration(const Registration& registration);

// The router's answer.
struct RegistrationLease {
  int32_t lease_ms = 0;
  std::vector<std::string> prefills;  // HOST:PORT of each registered prefill engine
};
Result<RegistrationLease> ParseLease(std::string_view body);
std::string EncodeLease(const RegistrationLease& lease);

}  // namespace braid
