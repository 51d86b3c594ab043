// UTF-8 repair as `errors="replace"` does it in Python and as the WHATWG standard says: every
// maximal piece that starts like a character and cannot be finished becomes one U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace braid {

// Appends the repaired form of `bytes` to `*text` and returns how many bytes were used. What is
// left (at most 3 bytes) is a valid but unfinished sequence at the end.
size_t AppendRepairedUtf8(std::string_view bytes, std::string* text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

bool IsValidUtf8(std::string_view bytes);

}  // namespace braid
