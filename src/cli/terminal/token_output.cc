// Token ids and log-probabilities as JSON text, with nine digits per number.
#include "cli/terminal/token_output.h"

#include <fmt/format.h>

#include <iterator>

namespace braid {

void AppendIds(std::string& out, const std::vector<TokenId>& ids) {
  fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(ids, ","));
}

void AppendLogprob(std::string& out, float value) {
  fmt::format_to(std::back_inserter(out), "{:.9g}", value);
}

void AppendTop(std::string& out, const TokenLogprob& entry) {
  out += '[';
  for (size_t i = 0; i < entry.top.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "{}{{\"id\":{},\"logprob\":", i > 0 ? "," : "",
                   entry.top[i].first);
    AppendLogprob(out, entry.top[i].second);
    out += '}';
  }
  out += ']';
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += json::serialize(json::value(json::string(text)));
}

Result<std::vector<TokenId>> TokenIdsOf(const json::value& value, std::string_view what,
                                        int32_t vocabulary) {
  const json::array* array = value.if_array();
  if (array == nullptr || array->empty()) {
    return Error{
        ErrorCode::kInvalid,
        fmt::format("{} is {}, must be a non-empty array of token ids", what, JsonExcerpt(value))};
  }
  std::vector<TokenId> ids;
  ids.reserve(array->size());
  for (const json::value& item : *array) {
    const int64_t* id = item.if_int64();
    if (id == nullptr || *id < 0 || *id >= vocabulary) {
      return Error{ErrorCode::kInvalid, fmt::format("{}[{}] is {}, ids go from 0 to {}", what,
                                                    ids.size(), JsonExcerpt(item), vocabulary - 1)};
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace braid
