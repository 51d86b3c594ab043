// Bounds on what a client may ask to be compiled: checked before the compiler sees it, so that a
// refusal names what is too large. Iterative; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace braid {

struct GrammarLimits {
  int64_t schema_bytes = 64 << 10;
  int64_t schema_depth = 32;
  int64_t properties = 5000;
  int64_t optional_properties = 1000;  // of one object: the work at each token grows with them
  int64_t enum_values = 5000;
  int64_t repetitions = 10000;  // maxItems and {m,n}, multiplied through nesting
  int64_t regex_bytes = 4 << 10;
};

// kInvalid that says what is too large, or which reference is not local.
Status CheckSchema(const json::value& schema, const GrammarLimits& limits = {});
Status CheckRegex(std::string_view regex, const GrammarLimits& limits = {});

}  // namespace braid
