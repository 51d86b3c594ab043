// Tables whose rows have a name and aliases.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace braid {

// Row has `std::string_view name, aliases`; aliases stand with blanks between. Null: no such row.
template <class Row>
const Row* FindByName(std::span<const Row> rows, std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return nullptr;
  const std::string word = " " + std::string(name) + " ";
  for (const Row& row : rows) {
    const std::string aliases = " " + std::string(row.aliases) + " ";
    if (row.name == name || aliases.find(word) != std::string::npos) return &row;
  }
  return nullptr;
}

// The names with ", " between: for messages.
template <class Row>
std::string JoinNames(std::span<const Row> rows) {
  std::string names;
  for (const Row& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace braid
