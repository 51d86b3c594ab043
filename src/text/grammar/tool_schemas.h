// What the tools of a request say of their parameters' types. Immutable after construction.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace braid {

// A set of JSON types.
using JsonKinds = uint8_t;
inline constexpr JsonKinds kStringKind = 1, kNumberKind = 2, kBoolKind = 4, kNullKind = 8,
                           kObjectKind = 16, kArrayKind = 32, kAnyKind = 63;

JsonKinds KindOf(const json::value& value);

class ToolSchemas {
 public:
  ToolSchemas() = default;
  // `tools` as OpenAI has them: [{"type": "function", "function": {"name", "parameters"}}, …].
  explicit ToolSchemas(const json::array& tools);

  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view tool) const { return tools_.contains(tool); }
  // The types that a parameter may have; kAnyKind where the schema does not say.
  JsonKinds KindsOf(std::string_view tool, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, JsonKinds, std::less<>>;
  std::map<std::string, Parameters, std::less<>> tools_;
};

// A parameter's value as JSON: `text` as a model wrote it without quotes, read as one of `kinds`.
// What cannot be read so is a string.
std::string TypedJson(std::string_view text, JsonKinds kinds);

}  // namespace braid
