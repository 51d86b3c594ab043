// What of a JSON schema the grammars can enforce. A schema becomes one that they take: annotations
// are dropped, some keywords are written as others that mean the same, and what cannot be enforced
// is taken out and named. Pure; iterative in nothing but the schema's depth, which CheckSchema
// bounds first.
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

// For who did not ask for all of it: "oneOf" is read as "anyOf" too. `schema` is an object or a
// boolean. kInvalid: a $ref that leads back to itself.
Result<EnforceableSchema> EnforceablePart(const json::value& schema);

// The same for who asked for all of it: kInvalid with the first keyword that was dropped.
Result<json::value> EnforceableWhole(const json::value& schema);

// Why a pattern cannot be a part of a grammar, or empty.
std::string UnenforceablePattern(std::string_view pattern);

// The part of `root` that a local reference names ("#/$defs/City"); null if there is none.
const json::value* FindByReference(const json::value& root, std::string_view reference);

}  // namespace braid
