// The limits on what a client may send and cause, as one table: shown by /server_info and in
// docs/api.md, and walked by a test that sends each value at its limit, one above it, and absurd
// ones. The values come from where they are enforced.
#pragma once

#include "server/service.h"

namespace braid {

struct LimitRow {
  std::string_view name;  // "messages": unique
  std::string_view what;  // "messages of a conversation"
  int64_t value = 0;      // the largest that is taken
  int status = 400;       // what more than that is answered with; 0: nobody is refused for it
  // What the value depends on, for documents; empty: it is the same on every server by default.
  std::string_view depends = {};
};

// The values that hold on a server with these settings.
std::vector<LimitRow> LimitTable(const ServerConfig& server, const ModelCard& card,
                                 const SchedulerConfig& scheduler);

// "limits" of /server_info: [{"name", "what", "value", "status"}].
json::array LimitsJson(const Service& service);

}  // namespace braid
