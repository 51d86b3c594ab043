// Rewrites a JSON schema into one that grammars can enforce: drops annotations, replaces some
// keywords by equivalent ones, and removes and names the keywords that cannot be enforced. Pure;
// recursive in the schema's depth, which CheckSchema bounds first.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace braid {

struct UnenforceableKeyword {
  std::string pointer;  // JSON Pointer to the keyword: "/properties/tags/uniqueItems"
  std::string reason;   // "a grammar does not see which items came before"
};

struct EnforceableSchema {
  json::value schema;  // what is left
  std::vector<UnenforceableKeyword> dropped;
};

// For requests without strictness: "oneOf" is also read as "anyOf". `schema` is an object or a
// boolean. kInvalid: a $ref that leads back to itself.
Result<EnforceableSchema> EnforceablePart(const json::value& schema);

// For strict requests: kInvalid with the first keyword that was dropped.
Result<json::value> EnforceableWhole(const json::value& schema);

// Why a pattern cannot be a part of a grammar, or empty.
std::string UnenforceablePattern(std::string_view pattern);

// The part of `root` that a local reference names ("#/$defs/City"); null if there is none.
const json::value* FindByReference(const json::value& root, std::string_view reference);

}  // namespace braid
