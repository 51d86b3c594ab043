// Each kind of rule is an overload; structured fields have their schema in a table by parser.
#include "server/openapi.h"

#include <fmt/core.h>

#include <cmath>

#include "base/check.h"
#include "server/fields.h"
#include "server/limits.h"
#include "server/route_table.h"

namespace braid {
namespace {

struct ParserSchema {
  decltype(ParseRule::parse) parse;
  std::string_view schema;
};

constexpr std::string_view kString = R"({"type": "string"})";
constexpr std::string_view kObject = R"({"type": "object"})";
constexpr std::string_view kObjects = R"({"type": "array", "items": {"type": "object"}})";
constexpr std::string_view kIds = R"({"type": "array", "items": {"type": "integer"}})";
constexpr std::string_view kStrings = R"({"type": "array", "items": {"type": "string"}})";
constexpr std::string_view kText = R"({"type": ["string", "array"]})";
constexpr std::string_view kStringOrObject = R"({"type": ["string", "object"]})";

constexpr ParserSchema kSchemas[] = {
    {ParseModel, kString},
    {ParsePrompt, kText},
    {ParseTokens, kIds},
    {ParseStop, kText},
    {ParseStopTokens, kIds},
    {ParseLogitBias, R"({"type": "object", "additionalProperties": {"type": "number"}})"},
    {ParseStreamOptions, kObject},
    {ParseBraid, kObject},
    {ParseCacheSalt, kString},
    {ParseMetadata, R"({"type": "object", "additionalProperties": {"type": "string"}})"},
    {ParseUser, kString},
    {ParseText, kString},
    {ParseParser, kString},
    {ParseRequestId, kString},
    {ParseMessages, kObjects},
    {ParseTools, kObjects},
    {ParseToolChoice, kStringOrObject},
    {ParseTemplateValues, kObject},
    {ParseReasoningEffort, kString},
    {ParseJsonSchema, kStringOrObject},
    {ParseRegex, kString},
    {ParseChoices, kStrings},
    {ParseGrammar, kString},
    {ParseResponseFormat, kObject},
    {ParseStructuredOutputs, kObject},
    {ParseInput, kText},
    {ParsePreviousResponse, kString},
    {ParseResponsesTools, kObjects},
    {ParseTextOptions, kObject},
    {ParseReasoningOptions, kObject},
    {ParseSystem, kText},
    {ParseTurns, kObjects},
    {ParseAnthropicTools, kObjects},
    {ParseAnthropicToolChoice, kObject},
    {ParseThinking, kObject},
    {ParsePauseMode, kString},
    {ParseStructuralTag, kStringOrObject},
};

// A field may always be null, which is the same as leaving it out.
json::value OrNull(json::object schema) {
  json::value& type = schema["type"];
  if (type.is_string()) type = json::array{type.get_string()};
  type.as_array().push_back("null");
  return schema;
}

// Whole numbers without a fraction.
json::value Number(double value) {
  if (value == std::floor(value)) return static_cast<int64_t>(value);
  return value;
}

struct RuleSchema {
  const RequestLimits& limits;

  json::value operator()(const NumberRule& rule) const {
    return OrNull({{"type", "number"},
                   {rule.above_min ? "exclusiveMinimum" : "minimum", Number(rule.min)},
                   {"maximum", Number(rule.max)}});
  }
  json::value operator()(const IntegerRule& rule) const {
    return OrNull({{"type", "integer"}, {"minimum", rule.min}, {"maximum", MaxOf(rule, limits)}});
  }
  json::value operator()(const FlagRule&) const { return OrNull({{"type", "boolean"}}); }
  json::value operator()(const ParseRule& rule) const {
    for (const ParserSchema& row : kSchemas) {
      if (row.parse == rule.parse) return OrNull(ParseJson(row.schema, "schema")->as_object());
    }
    CHECK(false, "a parser without a schema");
    return nullptr;
  }
  json::value operator()(const IgnoredRule&) const {
    return json::object{{"description", "Taken, without effect."}};
  }
  json::value operator()(const UnsupportedRule& rule) const {
    return json::object{{"description", fmt::format("Not supported: {}.", rule.instead)}};
  }
};

json::object BodySchema(const PostRoute& route, const RequestLimits& limits) {
  json::object properties;
  for (const Field& field : Fields()) {
    if ((field.routes & route.route) == 0) continue;
    properties[field.name] = std::visit(RuleSchema{limits}, field.rule);
  }
  for (const FieldAlias& alias : FieldAliases()) {
    const Field* field = FindField(alias.name, route.route);
    if (field == nullptr || field->name == alias.name) continue;
    properties[alias.name] = std::visit(RuleSchema{limits}, field->rule);
  }
  json::object schema{{"type", "object"}, {"properties", std::move(properties)}};
  json::array required;
  for (std::string_view left = route.required; !left.empty();) {
    const size_t end = std::min(left.find(' '), left.size());
    required.push_back(json::string(left.substr(0, end)));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

json::array IdParameter() {
  return {json::object{{"name", "id"},
                       {"in", "path"},
                       {"required", true},
                       {"schema", json::object{{"type", "string"}}}}};
}

json::object Responses() {
  return {{"200", json::object{{"description", "The answer"}}},
          {"4XX", json::object{{"description", "What is wrong with the request"}}},
          {"503", json::object{{"description", "Not now: loading, overloaded or stopping"}}}};
}

}  // namespace

json::object OpenApiDocument(const RequestLimits& limits, std::string_view version) {
  json::object paths;
  for (const PostRoute& route : PostRoutes()) {
    json::object content{{"application/json", json::object{{"schema", BodySchema(route, limits)}}}};
    json::object post{{"summary", route.summary}, {"responses", Responses()}};
    if (NeedsBody(route.route) || route.route == kPause) {
      post["requestBody"] =
          json::object{{"required", NeedsBody(route.route)}, {"content", std::move(content)}};
    }
    if (route.path.find("{id}") != std::string_view::npos) post["parameters"] = IdParameter();
    paths[route.path] = json::object{{"post", std::move(post)}};
  }
  for (const GetRoute& route : GetRoutes()) {
    json::object get{{"summary", route.summary}, {"responses", Responses()}};
    if (route.path.find("{id}") != std::string_view::npos) get["parameters"] = IdParameter();
    json::object methods{{"get", std::move(get)}};
    if (!route.delete_summary.empty()) {
      methods["delete"] = json::object{{"summary", route.delete_summary},
                                       {"responses", Responses()},
                                       {"parameters", IdParameter()}};
    }
    paths[route.path] = std::move(methods);
  }
  return {{"openapi", "3.1.0"},
          {"info", json::object{{"title", "Braid"}, {"version", version}}},
          {"paths", std::move(paths)}};
}

}  // namespace braid
