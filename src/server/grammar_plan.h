// From what a request wants of its answer's form to the grammar that the engine holds it to.
// Preparation threads.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "server/api_error.h"
#include "server/api_request.h"
#include "server/service.h"

namespace braid {

struct PlannedGrammar {
  std::string text;    // as Request::grammar; empty: anything goes
  TokenId after = -1;  // the end of thinking
};

// Checks the limits, compiles for this tenant, and refuses what cannot be compiled. `reasons`: some
// prompt opens the thinking, behind which the grammar then begins.
OrRefusal<PlannedGrammar> PlanGrammar(Service& service, const ApiRequest& request,
                                      std::string_view tenant, bool reasons);

}  // namespace braid
