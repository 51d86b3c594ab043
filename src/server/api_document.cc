// A table is a heading and a row for each entry.
#include "server/api_document.h"

#include <fmt/core.h>

#include "server/limit_table.h"

namespace braid {

std::string LimitsMarkdown() {
  std::string text = "| Name | Limit | Value | More is |\n|---|---|---|---|\n";
  for (const LimitRow& row : LimitTable({}, {}, {})) {
    const std::string value =
        row.depends.empty() ? fmt::format("{}", row.value) : std::string(row.depends);
    const std::string status = row.status == 0 ? "–" : fmt::format("{}", row.status);
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.name, row.what, value, status);
  }
  return text;
}

}  // namespace braid
