// Which model a server serves.
#pragma once

#include <string>

#include "cli/http_client.h"

namespace braid {

// The first name that GET /models of an OpenAI-compatible server lists.
Result<std::string> FirstModel(const std::string& base_url, const std::string& api_key);

}  // namespace braid
