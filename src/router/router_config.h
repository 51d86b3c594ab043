// What `braid router` is configured with: its engines, and how it chooses among them. A JSON file,
// which is read again on SIGHUP and POST /reload.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace braid {

struct EngineAddress {
  std::string name;  // in metrics, errors and GET /engines; unique
  std::string host;
  uint16_t port = 80;
  std::string key;  // for the router's own questions about load; empty: the engine has no keys

  std::string authority() const;  // "10.0.0.1:8000", for Host and messages
  bool operator==(const EngineAddress&) const = default;
};

enum class Policy : uint8_t { kPrefix, kRoundRobin, kLeastLoad };

struct RouterConfig {
  std::vector<EngineAddress> engines;
  Policy policy = Policy::kPrefix;
  int32_t probe_ms = 1000;    // between two questions to an engine
  int32_t lease_ms = 5000;    // an engine that was silent for so long is lost
  int32_t connect_ms = 1000;  // until a connection must stand
  int32_t attempts = 3;       // engines that a request is tried at, before its first byte
  std::string session_header = "x-session-id";  // in small letters
};

// kInvalid with the path of the wrong value. `what` names the text in errors.
Result<RouterConfig> ParseRouterConfig(std::string_view text, std::string_view what);

// "prefix": as in the file.
std::string_view NameOf(Policy policy);

}  // namespace braid
