// The nearest known name to a mistyped one. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace braid {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, or `limit` if
// there are at least that many.
size_t EditDistance(std::string_view a, std::string_view b, size_t limit);

// Of `known` the first with the fewest edits from `name`, at most `edits_max`; a name that goes on
// (from "--max-tok" to "--max-tokens") counts as one edit. Null when none is as near. Names of more
// than 160 bytes have no nearest one.
const std::string* NearestName(std::string_view name, std::span<const std::string> known,
                               size_t edits_max);

}  // namespace braid
