// The limits on what a client may send and cause, as one table: shown by /server_info, and walked
// by a test that sends each value at its limit, one above it, and absurd ones.
#pragma once

#include "server/service.h"

namespace braid {

struct LimitRow {
  std::string_view id;    // "L-22"; several rows may share one
  std::string_view what;  // "messages"
  int64_t value = 0;      // the largest that is taken
  int status = 400;       // what more than that is answered with; 0: nobody is refused for it
};

// The values that hold on this server.
std::vector<LimitRow> LimitTable(const Service& service);
json::array LimitsJson(const Service& service);

}  // namespace braid
