// One walk over a schema with an explicit stack; one scan over a regular expression.
#include "text/grammar/schema_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

namespace braid {
namespace {

Error TooMany(std::string_view what, int64_t found, int64_t most) {
  return {ErrorCode::kInvalid, fmt::format("{} is {}, at most {} are taken", what, found, most)};
}

// a * b, at most just above `most`.
int64_t Times(int64_t a, int64_t b, int64_t most) {
  if (b <= 1) return a;
  return a > most / b ? most + 1 : a * b;
}

std::optional<int64_t> Bound(const json::object& schema, std::string_view key) {
  const json::value* value = schema.if_contains(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  boost::system::error_code wrong;
  const auto number = value->to_number<int64_t>(wrong);
  return wrong ? INT64_MAX : number;
}

int64_t OptionalProperties(const json::object& schema) {
  const json::value* properties = schema.if_contains("properties");
  if (properties == nullptr || !properties->is_object()) return 0;
  std::set<std::string_view> optional;
  for (const auto& [name, property] : properties->get_object()) optional.insert(name);
  const json::value* required = schema.if_contains("required");
  if (required != nullptr && required->is_array()) {
    for (const json::value& name : required->get_array()) {
      if (name.is_string()) optional.erase(std::string_view(name.get_string()));
    }
  }
  return static_cast<int64_t>(optional.size());
}

class SchemaWalk {
 public:
  explicit SchemaWalk(const GrammarLimits& limits) : limits_(limits) {}

  Status Run(const json::value& schema) {
    open_.push_back({&schema, 1, 1});
    while (!open_.empty()) {
      const Node node = open_.back();
      open_.pop_back();
      if (node.value->is_object()) RETURN_IF_ERROR(Object(node));
      if (!node.value->is_array()) continue;
      for (const json::value& element : node.value->get_array()) {
        open_.push_back({&element, node.depth, node.repetitions});
      }
    }
    return {};
  }

 private:
  struct Node {
    const json::value* value;
    int64_t depth;
    int64_t repetitions;  // of the arrays around it
  };

  Status Object(const Node& node) {
    if (node.depth > limits_.schema_depth) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("the schema is nested deeper than {} levels", limits_.schema_depth)};
    }
    const json::object& schema = node.value->get_object();
    int64_t repetitions = node.repetitions;
    for (std::string_view key :
         {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}) {
      const int64_t bound = Bound(schema, key).value_or(0);
      const int64_t all = Times(node.repetitions, bound, limits_.repetitions);
      if (all > limits_.repetitions) {
        return TooMany(fmt::format("{}, with the arrays around it,", key), bound,
                       limits_.repetitions);
      }
      if (key == "minItems" || key == "maxItems") repetitions = std::max(repetitions, all);
    }
    if (const json::value* ref = schema.if_contains("$ref");
        ref != nullptr && ref->is_string() && !ref->get_string().starts_with("#")) {
      return Error{ErrorCode::kInvalid, fmt::format("$ref {}: only references within the schema, "
                                                    "\"#/…\", are followed",
                                                    JsonExcerpt(*ref))};
    }
    if (const json::value* pattern = schema.if_contains("pattern");
        pattern != nullptr && pattern->is_string()) {
      RETURN_IF_ERROR(CheckRegex(std::string_view(pattern->get_string()), limits_));
    }
    RETURN_IF_ERROR(Count(schema, "enum", &enum_values_, limits_.enum_values));
    RETURN_IF_ERROR(Count(schema, "properties", &properties_, limits_.properties));
    if (const int64_t optional = OptionalProperties(schema);
        optional > limits_.optional_properties) {
      return TooMany("the number of optional properties of an object", optional,
                     limits_.optional_properties);
    }
    for (const auto& [key, value] : schema) {
      if (key == "enum" || key == "const") continue;
      // Holds schemas by name and is none itself.
      const bool by_name = key == "properties" || key == "$defs" || key == "definitions";
      open_.push_back({&value, node.depth + (by_name ? 0 : 1), repetitions});
    }
    return {};
  }

  static Status Count(const json::object& schema, std::string_view key, int64_t* total,
                      int64_t most) {
    const json::value* value = schema.if_contains(key);
    if (value == nullptr) return {};
    if (value->is_array()) *total += static_cast<int64_t>(value->get_array().size());
    if (value->is_object()) *total += static_cast<int64_t>(value->get_object().size());
    if (*total > most) return TooMany(fmt::format("the number of values in {}", key), *total, most);
    return {};
  }

  const GrammarLimits& limits_;
  std::vector<Node> open_;
  int64_t enum_values_ = 0, properties_ = 0;
};

// "{2,5}" at text[0]: 5; "{2,}": 2; anything else: 0. `*bytes` is its length.
int64_t RepetitionAt(std::string_view text, size_t* bytes) {
  const size_t end = text.find('}');
  if (end == std::string_view::npos) return 0;
  int64_t most = 0;
  size_t at = 1;
  while (at < end) {
    int64_t number = 0;
    auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, number);
    if (error == std::errc::result_out_of_range) number = INT64_MAX;
    if (error == std::errc::invalid_argument || number < 0) return 0;
    most = std::max(most, number);
    at = static_cast<size_t>(stop - text.data());
    if (at < end && text[at] != ',') return 0;
    ++at;
  }
  *bytes = end + 1;
  return most;
}

}  // namespace

Status CheckSchema(const json::value& schema, const GrammarLimits& limits) {
  const auto bytes = static_cast<int64_t>(json::serialize(schema).size());
  if (bytes > limits.schema_bytes)
    return TooMany("the schema's size in bytes", bytes, limits.schema_bytes);
  return SchemaWalk(limits).Run(schema);
}

Status CheckRegex(std::string_view regex, const GrammarLimits& limits) {
  const auto size = static_cast<int64_t>(regex.size());
  if (size > limits.regex_bytes) {
    return TooMany("the regular expression's size in bytes", size, limits.regex_bytes);
  }
  // weight[k]: how often the heaviest part of the k-th open group is repeated.
  std::vector<int64_t> weight{1};
  int64_t last = 1;  // of what stands before a repetition
  bool in_class = false;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\') {
      ++i;
      last = 1;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      last = 1;
    } else if (c == '(') {
      weight.push_back(1);
    } else if (c == ')' && weight.size() > 1) {
      last = weight.back();
      weight.pop_back();
      weight.back() = std::max(weight.back(), last);
    } else if (c == '{') {
      size_t bytes = 1;
      last = Times(last, RepetitionAt(regex.substr(i), &bytes), limits.repetitions);
      if (last > limits.repetitions) {
        return TooMany("a repetition, with the groups around it,", last, limits.repetitions);
      }
      weight.back() = std::max(weight.back(), last);
      i += bytes - 1;
    } else {
      last = 1;
    }
  }
  return {};
}

}  // namespace braid
