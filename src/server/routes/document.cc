// A table is a heading and a row for each entry.
#include "server/routes/document.h"

#include <fmt/core.h>

#include <limits>

#include "server/api/fields.h"
#include "server/limit_table.h"
#include "server/routes/openapi.h"
#include "server/routes/table.h"

namespace braid {
namespace {

struct EndpointName {
  Endpoint endpoint;
  std::string_view name;
};

constexpr EndpointName kEndpoints[] = {{kChat, "chat"},
                                       {kCompletions, "completions"},
                                       {kResponses, "responses"},
                                       {kMessages, "messages"}};

// What a field takes, or why it is not needed or not taken.
struct FieldText {
  const Field& field;

  std::string operator()(const NumberRule& rule) const {
    return fmt::format("a number {} {}, at most {}", rule.above_min ? "above" : "of at least",
                       rule.min, rule.max);
  }
  std::string operator()(const IntegerRule& rule) const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (rule.min == std::numeric_limits<int64_t>::min()) return "an integer";
    if (rule.max == IntegerMax(kMost)) return fmt::format("an integer of at least {}", rule.min);
    if (rule.max == IntegerMax(&RequestLimits::vocabulary)) {
      return fmt::format("an integer from {} to the vocabulary", rule.min);
    }
    return fmt::format("an integer from {} to {}", rule.min, MaxOf(rule, {}));
  }
  std::string operator()(const FlagRule&) const { return "true or false"; }
  std::string operator()(const ParseRule&) const {
    std::string text;
    const json::object schema = FieldSchema(field, {});
    for (const json::value& type : schema.at("type").as_array()) {
      const std::string_view name = type.as_string();
      if (name == "null") continue;
      text += text.empty() ? "" : " or ";
      text += name == "array" ? "a list" : name == "object" ? "an object" : "a string";
    }
    return text;
  }
  std::string operator()(const MemberRule&) const { return ""; }
  std::string operator()(const HarmlessRule& rule) const { return std::string(rule.why); }
  std::string operator()(const RefusedRule& rule) const {
    std::string text(rule.instead);
    if (!rule.neutral.empty()) text += fmt::format("; taken as `{}`", Shown(rule.neutral));
    return text;
  }

 private:
  // ["a", "b"] as a, b.
  static std::string Shown(std::string_view list) {
    return std::string(list.substr(1, list.size() - 2));
  }
};

std::string EndpointsText(const Field& field) {
  std::string text;
  for (const EndpointName& row : kEndpoints) {
    if ((field.endpoints & row.endpoint) == 0) continue;
    text += text.empty() ? "" : ", ";
    text += row.name;
  }
  return text;
}

std::string NamesText(const Field& field) {
  std::string text = fmt::format("`{}`", field.name);
  for (const FieldAlias& alias : FieldAliases()) {
    bool means_it = false;
    for (const EndpointName& row : kEndpoints) {
      means_it |=
          (field.endpoints & row.endpoint) != 0 && FindField(alias.name, row.endpoint) == &field;
    }
    // An alias has a row for each endpoint at which it means another field.
    const std::string shown = fmt::format("`{}`", alias.name);
    if (means_it && text.find(shown) == std::string::npos) text += ", " + shown;
  }
  return text;
}

}  // namespace

std::string FieldsMarkdown() {
  std::string text = "| Field | At | Effect | Value, or reason |\n|---|---|---|---|\n";
  for (std::string_view effect : {"enforced", "harmless", "refused"}) {
    for (const Field& field : Fields()) {
      const std::string endpoints = EndpointsText(field);
      if (endpoints.empty() || EffectOf(field.rule) != effect) continue;
      text += fmt::format("| {} | {} | {} | {} |\n", NamesText(field), endpoints, effect,
                          std::visit(FieldText{field}, field.rule));
    }
  }
  return text;
}

std::string RoutesMarkdown() {
  constexpr std::string_view kCallers[] = {"everybody", "a key", "an admin's key"};
  std::string text = "| Method | Path | Caller | What it does |\n|---|---|---|---|\n";
  for (const Route* route : AllRoutes()) {
    std::string paths = fmt::format("`{}`", route->path);
    for (const std::string_view alias : route->aliases) {
      if (!alias.empty()) paths += fmt::format(", `{}`", alias);
    }
    text += fmt::format("| {} | {} | {} | {} |\n", kMethodNames[static_cast<size_t>(route->method)],
                        paths, kCallers[static_cast<size_t>(route->access)], route->summary);
  }
  return text;
}

std::string LimitsMarkdown() {
  std::string text =
      "| Name | Limit | Value | Status above it | Checked in |\n|---|---|---|---|---|\n";
  for (const limits::Limit& row : LimitTable({}, {}, {})) {
    const std::string value =
        row.depends.empty() ? fmt::format("{}", row.value) : std::string(row.depends);
    const std::string status = row.status == 0 ? "–" : fmt::format("{}", row.status);
    text += fmt::format("| `{}` | {} | {} | {} | `{}` |\n", row.name, LimitText(row), value, status,
                        row.enforced);
  }
  return text;
}

}  // namespace braid
