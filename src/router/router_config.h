// What `braid router` is configured with: its engines, and how it chooses among them. A JSON file,
// which is read again on SIGHUP and POST /reload. Engines may also register (registration/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kv_events/subscriber.h"
#include "router/placement/placer.h"

namespace braid {

inline constexpr size_t kEnginesMax = 256;

struct EngineAddress {
  std::string name;  // in metrics, errors and GET /engines; unique
  std::string host;
  uint16_t port = 80;
  std::string key;  // for the router's own questions about load; empty: the engine has no keys
  kv::EventSource events = {};  // of what its cache holds; empty: it does not say

  std::string authority() const;  // "10.0.0.1:8000", for Host and messages
  bool operator==(const EngineAddress&) const = default;
};

struct RouterConfig {
  std::vector<EngineAddress> engines;
  bool registration = false;  // others may register
  std::string engine_key;     // as EngineAddress::key, for engines that registered
  Policy policy = Policy::kPrefix;
  int32_t probe_ms = 1000;    // between two questions to an engine
  int32_t lease_ms = 5000;    // an engine that was silent for so long is lost
  int32_t connect_ms = 1000;  // until a connection must stand
  int32_t attempts = 3;       // engines that a request is tried at, before its first byte
  std::string session_header = "x-session-id";  // in small letters
};

// kInvalid with the path of the wrong value. `what` names the text in errors.
Result<RouterConfig> ParseRouterConfig(std::string_view text, std::string_view what);

// 1 to 64 letters, digits, -, _ and dots.
bool IsEngineName(std::string_view name);
// "http://HOST:PORT" into host and port. `path` names the text in errors.
Status ReadEngineUrl(std::string_view url, const std::string& path, EngineAddress* engine);
// "tcp://HOST:PORT", the address of an engine's KV events.
Status ReadEventsUrl(std::string_view url, const std::string& path, std::string* address);

}  // namespace braid
