// The limits on what a client may send and cause, as one table: shown by /server_info and in
// docs/api.md, and walked by a test that sends each value at its limit, one above it, and absurd
// ones. A row's value comes from the constant or the setting that is enforced.
#pragma once

#include "server/service.h"

namespace braid {

// The values that hold on a server with these settings.
std::vector<limits::Limit> LimitTable(const ServerConfig& server, const ModelCard& card,
                                      const SchedulerConfig& scheduler);

// "bytes of the request target".
std::string LimitText(const limits::Limit& row);

// "limits" of /server_info: [{"name", "what", "value", "status"}].
json::array LimitsJson(const Service& service);

}  // namespace braid
