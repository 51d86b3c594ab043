// Turns the constraints of a request into the grammar that the engine enforces. Preparation
// threads.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "server/api/api_error.h"
#include "server/api/api_request.h"
#include "server/server.h"

namespace braid {

struct PlannedGrammar {
  std::string text;    // as Request::grammar; empty: anything goes
  std::string path;    // the field that asked for it
  TokenId after = -1;  // the end of thinking
};

// Checks the limits and writes the grammar. `reasons`: some prompt starts inside thinking; the
// grammar then begins after it.
Result<PlannedGrammar, ApiError> PlanGrammar(const ServerContext& context,
                                             const ApiRequest& request, std::string_view tenant,
                                             bool reasons);

// The error for a grammar that the library rejects.
ApiError GrammarRefusal(const std::string& path, const Error& error);

}  // namespace braid
