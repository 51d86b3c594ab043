// Reads "name=number,name=number".
#include "cli/command/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

namespace braid {

Status ReadPairs(std::string_view flag, std::string_view text,
                 std::initializer_list<NamedNumber> names) {
  constexpr int64_t kMost = 1'000'000'000;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const size_t equal = std::min(pair.find('='), pair.size());
    const auto at = std::ranges::find(names, pair.substr(0, equal), &NamedNumber::name);
    int64_t number = 0;
    const std::string_view digits = pair.substr(std::min(pair.size(), equal + 1));
    const auto [end, code] = std::from_chars(digits.begin(), digits.end(), number);
    const bool whole = code == std::errc() && end == digits.end();
    if (at == names.end() || !whole || number < at->least || number > kMost) {
      std::string form;
      for (const NamedNumber& n : names) {
        form += fmt::format("{}{}=N", form.empty() ? "" : ",", n.name);
      }
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: \"{}\" is wrong; write {} with N from {} to {}", flag, pair,
                               form, at == names.end() ? 1 : at->least, kMost),
                   std::string(flag)};
    }
    *at->value = number;
  }
  return {};
}

}  // namespace braid
