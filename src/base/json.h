// JSON through Boost.JSON with limits (depth, size): an Error says where the text is wrong, what
// was found and what would be right.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace braid {

namespace json = boost::json;

struct JsonLimits {
  size_t depth_max = 64;
  size_t bytes_max = size_t{64} << 20;
};

// Parses one value; trailing blanks only. `what` names the source in errors ("config.json").
// Refuses invalid UTF-8, duplicate keys in one object, NaN and infinities, excess depth and size.
Result<json::value> ParseJson(std::string_view text, std::string_view what, JsonLimits limits = {});

// Reads and parses a file of at most `limits.bytes_max` bytes.
Result<json::value> ReadJsonFile(const std::string& path, JsonLimits limits = {});

// "an object", "a string", "an integer" …: how errors name a JSON type.
std::string_view JsonKindName(const json::value& value);

// The shortest text of a value, for messages; at most `bytes_max` bytes, then "…".
std::string JsonExcerpt(const json::value& value, size_t bytes_max = 60);

}  // namespace braid
