// The beginning of a text for an error message, without half a character. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace braid {

// At most `bytes_max` bytes of valid UTF-8.
inline std::string_view CutText(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace braid
