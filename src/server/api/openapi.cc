// Each kind of rule is an overload; structured fields have their schema in a table by parser.
#include "server/api/openapi.h"

#include <fmt/core.h>

#include <cmath>

#include "base/check.h"
#include "server/api/fields.h"
#include "server/api/limits.h"
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
    {ParseVerbosity, kString},
    {ParseInclude, kStrings},
    {ParseOutputConfig, kObject},
    {ParseOutputFormat, kObject},
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
  json::value operator()(const MemberRule&) const { return json::object{}; }
  json::value operator()(const HarmlessRule& rule) const {
    return json::object{{"description", fmt::format("Without effect: {}.", rule.why)}};
  }
  json::value operator()(const RefusedRule& rule) const {
    json::object schema{{"description", fmt::format("Not supported: {}.", rule.instead)}};
    if (!rule.neutral.empty()) {
      schema["enum"] = *ParseJson(rule.neutral, "the field table");
      schema["enum"].as_array().push_back(nullptr);
    }
    return schema;
  }
};

// Adds the schema of a field, or of a member to that of its field, whose row stands before it.
void AddField(const Field& field, std::string_view name, const RequestLimits& limits,
              json::object* properties) {
  json::object schema = FieldSchema(field, limits);
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) {
    (*properties)[name] = std::move(schema);
    return;
  }
  json::object& parent = properties->at(name.substr(0, dot)).as_object();
  parent["additionalProperties"] = false;
  json::value& members = parent["properties"];
  if (!members.is_object()) members = json::object{};
  members.get_object()[name.substr(dot + 1)] = std::move(schema);
}

json::object BodySchema(const PostRoute& route, const RequestLimits& limits) {
  json::object properties;
  for (const Field& field : Fields()) {
    if ((field.routes & route.route) == 0) continue;
    AddField(field, field.name, limits, &properties);
  }
  for (const FieldAlias& alias : FieldAliases()) {
    const Field* field = FindField(alias.name, route.route);
    if (field == nullptr || field->name == alias.name) continue;
    AddField(*field, alias.name, limits, &properties);
  }
  json::object schema{
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
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

json::object FieldSchema(const Field& field, const RequestLimits& limits) {
  json::object schema = std::visit(RuleSchema{limits}, field.rule).as_object();
  schema["x-braid-effect"] = EffectOf(field.rule);
  return schema;
}

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
