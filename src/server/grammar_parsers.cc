// Parsers of the fields that constrain the output, in the spellings of several servers. All fill
// one member of the request; two of them in one request are refused.
#include <fmt/core.h>

#include "server/fields.h"
#include "server/limits.h"
#include "text/tool_grammar.h"

namespace braid {
namespace {

using Parse = Refusal (*)(const json::value&, const std::string&, const RequestLimits&,
                          ApiRequest*);

Refusal SetGrammar(WantedGrammar grammar, ApiRequest* request) {
  if (request->grammar) {
    return ApiError{
        400,
        fmt::format("{}: stands beside {}; send one of them", grammar.path, request->grammar->path),
        grammar.path};
  }
  request->grammar = std::move(grammar);
  return std::nullopt;
}

}  // namespace

Refusal ParseJsonSchema(const json::value& value, const std::string& path, const RequestLimits&,
                        ApiRequest* request) {
  json::value schema = value;
  if (value.is_string()) {
    Result<json::value> parsed = ParseJson(std::string_view(value.get_string()), path);
    if (!parsed) return ApiError{400, parsed.error().message, path};
    schema = *std::move(parsed);
  }
  if (!schema.is_object()) {
    return WrongType(path, "a JSON schema: an object, or its text", value);
  }
  return SetGrammar({GrammarKind::kJsonSchema, std::move(schema), {}, path}, request);
}

Refusal ParseRegex(const json::value& value, const std::string& path, const RequestLimits&,
                   ApiRequest* request) {
  if (!value.is_string() || value.get_string().empty()) {
    return WrongType(path, "a regular expression", value);
  }
  return SetGrammar({GrammarKind::kRegex, {}, std::string(value.get_string()), path}, request);
}

Refusal ParseChoices(const json::value& value, const std::string& path, const RequestLimits&,
                     ApiRequest* request) {
  constexpr std::string_view kRight = "a list of texts that are not empty";
  if (!value.is_array() || value.get_array().empty()) return WrongType(path, kRight, value);
  if (value.get_array().size() > limits::kGrammarChoicesMax) {
    return ApiError{400,
                    fmt::format("{}: has {} texts, at most {} are taken", path,
                                value.get_array().size(), limits::kGrammarChoicesMax),
                    path};
  }
  std::vector<std::string> choices;
  for (const json::value& text : value.get_array()) {
    if (!text.is_string() || text.get_string().empty()) return WrongType(path, kRight, text);
    choices.emplace_back(text.get_string());
  }
  return SetGrammar({GrammarKind::kLark, {}, ChoiceGrammarText(choices), path}, request);
}

Refusal ParseGrammar(const json::value& value, const std::string& path, const RequestLimits&,
                     ApiRequest* request) {
  if (!value.is_string() || value.get_string().empty()) {
    return WrongType(path, "a grammar as GBNF (\"root ::= …\") or Lark (\"start: …\")", value);
  }
  Result<std::string> lark = LarkFromGbnf(value.get_string());
  if (!lark) return ApiError{400, fmt::format("{}: {}", path, lark.error().message), path};
  return SetGrammar({GrammarKind::kLark, {}, *std::move(lark), path}, request);
}

// {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": …}}.
Refusal ParseResponseFormat(const json::value& value, const std::string& path,
                            const RequestLimits& limits, ApiRequest* request) {
  const json::value* type = value.is_object() ? value.get_object().if_contains("type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return WrongType(path, "an object with a type, {\"type\": \"json_object\"}", value);
  }
  if (*type == "text") return std::nullopt;
  if (*type == "json_object") {
    json::value any = json::object{{"type", "object"}};
    return SetGrammar({GrammarKind::kJsonSchema, std::move(any), {}, path}, request);
  }
  if (*type != "json_schema") {
    return WrongType(path + ".type", "\"text\", \"json_object\" or \"json_schema\"", *type);
  }
  // The schema stands in an object with a name; in the Responses form beside the type.
  const json::value* holder = value.get_object().if_contains("json_schema");
  const std::string at = holder == nullptr ? path : path + ".json_schema";
  if (holder == nullptr) holder = &value;
  const json::value* schema =
      holder->is_object() ? holder->get_object().if_contains("schema") : nullptr;
  if (schema == nullptr) return ApiError{400, at + ".schema: is missing", at + ".schema"};
  return ParseJsonSchema(*schema, at + ".schema", limits, request);
}

Refusal ParseStructuredOutputs(const json::value& value, const std::string& path,
                               const RequestLimits& limits, ApiRequest* request) {
  struct Key {
    std::string_view name;
    Parse parse;
  };
  constexpr Key kKeys[] = {{"json", ParseJsonSchema},
                           {"regex", ParseRegex},
                           {"choice", ParseChoices},
                           {"grammar", ParseGrammar}};
  if (!value.is_object())
    return WrongType(path, "an object with json, regex, choice or grammar", value);
  for (const auto& [name, wanted] : value.get_object()) {
    if (wanted.is_null() || wanted == false) continue;
    const std::string at = fmt::format("{}.{}", path, std::string_view(name));
    if (name == "json_object") {
      json::value any = json::object{{"type", "object"}};
      if (Refusal refusal = SetGrammar({GrammarKind::kJsonSchema, any, {}, at}, request)) {
        return refusal;
      }
      continue;
    }
    auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                            [&](const Key& k) { return k.name == name; });
    if (key == std::end(kKeys)) {
      return ApiError{400, at + ": is not known here; json, regex, choice and grammar are", at,
                      "unsupported_parameter"};
    }
    if (Refusal refusal = key->parse(wanted, at, limits, request)) return refusal;
  }
  return std::nullopt;
}

}  // namespace braid
