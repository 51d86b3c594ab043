// Reads a file of JSON objects, one per line, and names the line of an error.
#include "cli/terminal/json_lines.h"

#include <fmt/core.h>

#include <fstream>
#include <iostream>

#include "base/system/file.h"

namespace braid {

Result<std::vector<JsonLine>> ReadJsonLines(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    if (IsDirectory(path)) {
      return Error{ErrorCode::kInvalid, fmt::format("{} is a directory, a file is needed", path)};
    }
    file.open(path);
    if (!file) return Error{ErrorCode::kNotFound, fmt::format("{} cannot be opened", path)};
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<JsonLine> lines;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    ASSIGN_OR_RETURN(json::value value, ParseJson(text, place));
    if (!value.is_object()) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: {} where an object is needed", place, JsonKindName(value))};
    }
    lines.push_back({number, std::move(value.as_object())});
  }
  // Otherwise the lines before a disk's error would pass for all of them.
  if (in.bad()) return Error{ErrorCode::kInternal, fmt::format("{} cannot be read", path)};
  if (lines.empty()) return Error{ErrorCode::kInvalid, fmt::format("{} has no line", path)};
  return lines;
}

}  // namespace braid
