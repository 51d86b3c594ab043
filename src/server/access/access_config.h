// What of a server's configuration decides who may call it: `braid serve` and `braid router` share
// it, and what reads it (browser_guard.h, gate.h).
#pragma once

#include <string>
#include <vector>

#include "server/http/options.h"

namespace braid {

struct AccessConfig {
  HttpOptions http = {};
  int32_t login_failures_per_second = 10;      // of one address; 0: any number
  std::vector<std::string> cors_origins = {};  // pages of these may use the API; "*": of any
  std::vector<std::string> allowed_hosts =
      {};  // allowed in Host, in addition to loopback names; "*": any
};

}  // namespace braid
