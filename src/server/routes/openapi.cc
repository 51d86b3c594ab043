// Each kind of rule is an overload.
#include "server/routes/openapi.h"

#include <fmt/core.h>

#include <cmath>

#include "server/api/fields.h"
#include "server/routes/table.h"

namespace braid {
namespace {

// A field may always be null, which is the same as leaving it out.
json::value Nullable(json::object schema) {
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
    return Nullable({{"type", "number"},
                     {rule.above_min ? "exclusiveMinimum" : "minimum", Number(rule.min)},
                     {"maximum", Number(rule.max)}});
  }
  json::value operator()(const IntegerRule& rule) const {
    return Nullable({{"type", "integer"}, {"minimum", rule.min}, {"maximum", MaxOf(rule, limits)}});
  }
  json::value operator()(const FlagRule&) const { return Nullable({{"type", "boolean"}}); }
  json::value operator()(const ParseRule& rule) const {
    return Nullable(ParseJson(rule.schema, "schema")->as_object());
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

json::object BodySchema(const RouteBody& body, const RequestLimits& limits) {
  json::object properties;
  for (const Field& field : Fields()) {
    if ((field.endpoints & body.endpoint) == 0) continue;
    AddField(field, field.name, limits, &properties);
  }
  for (const FieldAlias& alias : FieldAliases()) {
    const Field* field = FindField(alias.name, body.endpoint);
    if (field == nullptr || field->name == alias.name) continue;
    AddField(*field, alias.name, limits, &properties);
  }
  json::object schema{
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  json::array required;
  for (std::string_view left = body.required; !left.empty();) {
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

json::object Operation(const Route& route, const RequestLimits& limits) {
  json::object operation{{"summary", route.summary}, {"responses", Responses()}};
  if (route.body) {
    json::object content{
        {"application/json", json::object{{"schema", BodySchema(*route.body, limits)}}}};
    operation["requestBody"] =
        json::object{{"required", !route.body->optional}, {"content", std::move(content)}};
  }
  if (route.path.find("{id}") != std::string_view::npos) operation["parameters"] = IdParameter();
  return operation;
}

// "get".
std::string_view MethodKey(Method method) {
  constexpr std::string_view kKeys[] = {"get", "post", "delete"};
  return kKeys[static_cast<size_t>(method)];
}

}  // namespace

json::object FieldSchema(const Field& field, const RequestLimits& limits) {
  json::object schema = std::visit(RuleSchema{limits}, field.rule).as_object();
  schema["x-braid-effect"] = EffectOf(field.rule);
  return schema;
}

json::object OpenApiDocument(const RequestLimits& limits, std::string_view version) {
  json::object paths;
  for (const Route* route : AllRoutes()) {
    const auto add = [&](std::string_view path) {
      if (path.empty()) return;
      json::value& methods = paths[path];
      if (!methods.is_object()) methods = json::object{};
      methods.get_object()[MethodKey(route->method)] = Operation(*route, limits);
    };
    add(route->path);
    for (const std::string_view alias : route->aliases) add(alias);
  }
  return {{"openapi", "3.1.0"},
          {"info", json::object{{"title", "Braid"}, {"version", version}}},
          {"paths", std::move(paths)}};
}

}  // namespace braid
