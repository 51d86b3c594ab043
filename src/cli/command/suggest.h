// The nearest known word to a mistyped one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace braid {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// The nearest of `known` that is near enough to be meant, or empty.
std::string Nearest(std::string_view word, std::span<const std::string> known);

}  // namespace braid
