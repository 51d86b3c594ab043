// Files of one JSON object a line; "-" is standard input.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace braid {

struct JsonLine {
  int64_t number = 0;  // from 1
  json::object object;
};

// Blank lines are skipped. Errors name file and line.
Result<std::vector<JsonLine>> ReadJsonLines(const std::string& path);

}  // namespace braid
