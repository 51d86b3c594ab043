// Texts of lines "name: value", such as fingerprints of what two programs must have in common, and
// the first line in which two of them differ. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace braid {

struct LineDifference {
  std::string_view name;
  std::string_view first, second;  // the values; "nothing" where the line is missing
};

// Views of the two texts, which have their lines in the same order; nullopt: they are equal.
std::optional<LineDifference> FirstDifference(std::string_view first, std::string_view second);

}  // namespace braid
