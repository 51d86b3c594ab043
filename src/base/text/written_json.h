// JSON that models write, which may hold a key twice in one object: in arguments of tool calls, and
// where clients send such arguments back.
#pragma once

#include "base/json.h"

namespace braid {

// As ParseJson, but the last of equal keys counts, as in other parsers.
Result<json::value> ParseWrittenJson(std::string_view text, std::string_view what,
                                     JsonLimits limits = {});

}  // namespace braid
