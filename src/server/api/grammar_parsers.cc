// Parsers of the fields that constrain the output, in the spellings of several servers. All fill
// one member of the request; two of them in one request are refused.
#include <fmt/core.h>

#include <algorithm>

#include "server/api/limits.h"
#include "server/api/parsers.h"
#include "text/grammar/tool_grammar.h"

namespace braid {
namespace {

ApiStatus SetGrammar(WantedGrammar grammar, ApiRequest* request) {
  if (request->grammar) {
    return ApiError{400,
                    fmt::format("{}: cannot be combined with {}; send one of them", grammar.path,
                                request->grammar->path),
                    grammar.path};
  }
  request->grammar = std::move(grammar);
  return {};
}

}  // namespace

ApiStatus ParseJsonSchema(const json::value& value, const std::string& path, const RequestLimits&,
                          ApiRequest* request) {
  json::value schema = value;
  if (value.is_string()) {
    Result<json::value> parsed = ParseJson(std::string_view(value.get_string()), path);
    if (!parsed) return ApiError{400, parsed.error().message, path};
    schema = *std::move(parsed);
  }
  if (schema == json::value(true)) schema = json::object{};
  if (!schema.is_object()) {
    return WrongType(path, "a JSON schema: an object, true, or its text", value);
  }
  return SetGrammar({.schema = std::move(schema), .path = path}, request);
}

ApiStatus ParseRegex(const json::value& value, const std::string& path, const RequestLimits&,
                     ApiRequest* request) {
  if (!value.is_string() || value.get_string().empty()) {
    return WrongType(path, "a regular expression", value);
  }
  return SetGrammar(
      {.kind = GrammarKind::kRegex, .source = std::string(value.get_string()), .path = path},
      request);
}

ApiStatus ParseChoices(const json::value& value, const std::string& path, const RequestLimits&,
                       ApiRequest* request) {
  constexpr std::string_view kRight = "a list of texts that are not empty";
  if (!value.is_array() || value.get_array().empty()) return WrongType(path, kRight, value);
  if (value.get_array().size() > limits::kGrammarChoicesMax) {
    return ApiError{400,
                    fmt::format("{}: has {} texts, at most {} are accepted", path,
                                value.get_array().size(), limits::kGrammarChoicesMax),
                    path};
  }
  std::vector<std::string> choices;
  for (const json::value& text : value.get_array()) {
    if (!text.is_string() || text.get_string().empty()) return WrongType(path, kRight, text);
    choices.emplace_back(text.get_string());
  }
  return SetGrammar(
      {.kind = GrammarKind::kLark, .source = ChoiceGrammarText(choices), .path = path}, request);
}

ApiStatus ParseGrammar(const json::value& value, const std::string& path, const RequestLimits&,
                       ApiRequest* request) {
  if (!value.is_string() || value.get_string().empty()) {
    return WrongType(path, "a grammar as GBNF (\"root ::= …\") or Lark (\"start: …\")", value);
  }
  Result<std::string> lark = LarkFromGbnf(value.get_string());
  if (!lark) return ApiError{400, fmt::format("{}: {}", path, lark.error().message), path};
  return SetGrammar({.kind = GrammarKind::kLark, .source = *std::move(lark), .path = path},
                    request);
}

// {"structures": [{"begin": "<f>", "schema": {…}, "end": "</f>"}, …], "triggers": ["<f"]} or its
// text.
ApiStatus ParseStructuralTag(const json::value& value, const std::string& path,
                             const RequestLimits& limits, ApiRequest* request) {
  if (value.is_string()) {
    Result<json::value> parsed = ParseJson(std::string_view(value.get_string()), path);
    if (!parsed) return ApiError{400, parsed.error().message, path};
    if (!parsed->is_object()) return WrongType(path, "an object, or its text", value);
    return ParseStructuralTag(*parsed, path, limits, request);
  }
  const json::value *structures = Member(value, "structures"),
                    *triggers = Member(value, "triggers");
  const bool lists = structures != nullptr && triggers != nullptr && structures->is_array() &&
                     triggers->is_array() && !structures->get_array().empty();
  if (!lists) {
    return WrongType(path, "an object with structures and triggers, two lists", value);
  }
  if (structures->get_array().size() > limits::kToolsMax ||
      triggers->get_array().size() > limits::kToolsMax) {
    return ApiError{
        400,
        fmt::format("{}: at most {} structures and triggers are accepted", path, limits::kToolsMax),
        path};
  }
  const auto text = [](const json::value* member) {
    return member != nullptr && member->is_string() ? std::string_view(member->get_string())
                                                    : std::string_view();
  };
  for (const json::value& trigger : triggers->get_array()) {
    if (text(&trigger).empty()) return WrongType(path + ".triggers", "texts", trigger);
  }
  for (const json::value& structure : structures->get_array()) {
    const std::string_view begin = text(Member(structure, "begin"));
    const json::value* schema = Member(structure, "schema");
    const bool starts =
        std::any_of(triggers->get_array().begin(), triggers->get_array().end(),
                    [&](const json::value& trigger) { return begin.starts_with(text(&trigger)); });
    if (!starts || text(Member(structure, "end")).empty() || schema == nullptr ||
        !schema->is_object()) {
      return WrongType(path + ".structures",
                       "objects with begin, which starts with a trigger, schema and end",
                       structure);
    }
  }
  return SetGrammar({.kind = GrammarKind::kLark, .structural = value, .path = path}, request);
}

// {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"schema": …}}.
ApiStatus ParseResponseFormat(const json::value& value, const std::string& path,
                              const RequestLimits& limits, ApiRequest* request) {
  const json::value* type = value.is_object() ? value.get_object().if_contains("type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return WrongType(path, "an object with a type, {\"type\": \"json_object\"}", value);
  }
  if (*type == "text") return {};
  if (*type == "json_object") {
    // llama-server's form has the schema here.
    if (const json::value* schema = Member(value, "schema")) {
      return ParseJsonSchema(*schema, path + ".schema", limits, request);
    }
    json::value any = json::object{{"type", "object"}};
    return SetGrammar({.schema = std::move(any), .path = path}, request);
  }
  if (*type == "structural_tag") return ParseStructuralTag(value, path, limits, request);
  if (*type != "json_schema") {
    return WrongType(path + ".type",
                     "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"", *type);
  }
  // The schema is in a named object, or, in the Responses form, next to the type.
  const json::value* holder = value.get_object().if_contains("json_schema");
  const std::string at = holder == nullptr ? path : path + ".json_schema";
  if (holder == nullptr) holder = &value;
  const json::value* schema =
      holder->is_object() ? holder->get_object().if_contains("schema") : nullptr;
  if (schema == nullptr) return ApiError{400, at + ".schema: is missing", at + ".schema"};
  const json::value* strict = holder->get_object().if_contains("strict");
  if (strict != nullptr && !strict->is_bool() && !strict->is_null()) {
    return WrongType(at + ".strict", "true or false", *strict);
  }
  RETURN_IF_ERROR(ParseJsonSchema(*schema, at + ".schema", limits, request));
  request->grammar->strict = strict != nullptr && *strict == json::value(true);
  return {};
}

ApiStatus ParseStructuredOutputs(const json::value& value, const std::string& path,
                                 const RequestLimits& limits, ApiRequest* request) {
  struct Key {
    std::string_view name;
    Parser& parse;
  };
  constexpr Key kKeys[] = {{"json", ParseJsonSchema},
                           {"regex", ParseRegex},
                           {"choice", ParseChoices},
                           {"grammar", ParseGrammar},
                           {"structural_tag", ParseStructuralTag}};
  if (!value.is_object())
    return WrongType(path, "an object with json, regex, choice or grammar", value);
  for (const auto& [name, wanted] : value.get_object()) {
    if (wanted.is_null() || wanted == false) continue;
    const std::string at = fmt::format("{}.{}", path, std::string_view(name));
    if (name == "json_object") {
      json::value any = json::object{{"type", "object"}};
      RETURN_IF_ERROR(SetGrammar({.schema = any, .path = at}, request));
      continue;
    }
    auto key = std::find_if(std::begin(kKeys), std::end(kKeys),
                            [&](const Key& k) { return k.name == name; });
    if (key == std::end(kKeys)) {
      return ApiError{
          400, at + ": is unknown; it must be json, regex, choice, grammar or structural_tag", at,
          "unsupported_parameter"};
    }
    RETURN_IF_ERROR(key->parse(wanted, at, limits, request));
  }
  return {};
}

}  // namespace braid
