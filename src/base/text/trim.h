// A text without the blanks around it. Pure.
#pragma once

#include <string_view>

namespace braid {

// Without blanks, tabs and line breaks at both ends; a part of `text`.
inline std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kAround = " \t\r\n";
  const size_t begin = text.find_first_not_of(kAround);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kAround) - begin + 1);
}

}  // namespace braid
