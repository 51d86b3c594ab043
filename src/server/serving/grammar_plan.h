// From what a request wants of its answer's form to the grammar that the engine holds it to.
// Preparation threads.
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

// Checks the limits and writes the grammar down. `reasons`: some prompt opens the thinking, behind
// which the grammar then begins.
Result<PlannedGrammar, ApiError> PlanGrammar(const ServerContext& context,
                                             const ApiRequest& request, std::string_view tenant,
                                             bool reasons);

// The answer to a request whose grammar the library does not take.
ApiError GrammarRefusal(const std::string& path, const Error& error);

}  // namespace braid
