// A table is a heading and a row for each entry.
#include "server/api/api_document.h"

#include <fmt/core.h>

#include <limits>

#include "server/api/fields.h"
#include "server/api/limit_table.h"
#include "server/api/openapi.h"

namespace braid {
namespace {

struct RouteName {
  Route route;
  std::string_view name;
};

constexpr RouteName kRoutes[] = {{kChat, "chat"},
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
    if (rule.max == kMost) return fmt::format("an integer of at least {}", rule.min);
    if (rule.max == kVocabularyBound) {
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

std::string RoutesText(const Field& field) {
  std::string text;
  for (const RouteName& row : kRoutes) {
    if ((field.routes & row.route) == 0) continue;
    text += text.empty() ? "" : ", ";
    text += row.name;
  }
  return text;
}

std::string NamesText(const Field& field) {
  std::string text = fmt::format("`{}`", field.name);
  for (const FieldAlias& alias : FieldAliases()) {
    bool means_it = false;
    for (const RouteName& row : kRoutes) {
      means_it |= (field.routes & row.route) != 0 && FindField(alias.name, row.route) == &field;
    }
    if (means_it) text += fmt::format(", `{}`", alias.name);
  }
  return text;
}

}  // namespace

std::string FieldsMarkdown() {
  std::string text = "| Field | At | Effect | Value, or reason |\n|---|---|---|---|\n";
  for (std::string_view effect : {"enforced", "harmless", "refused"}) {
    for (const Field& field : Fields()) {
      const std::string routes = RoutesText(field);
      if (routes.empty() || EffectOf(field.rule) != effect) continue;
      text += fmt::format("| {} | {} | {} | {} |\n", NamesText(field), routes, effect,
                          std::visit(FieldText{field}, field.rule));
    }
  }
  return text;
}

std::string LimitsMarkdown() {
  std::string text = "| Name | Limit | Value | More is |\n|---|---|---|---|\n";
  for (const LimitRow& row : LimitTable({}, {}, {})) {
    const std::string value =
        row.depends.empty() ? fmt::format("{}", row.value) : std::string(row.depends);
    const std::string status = row.status == 0 ? "–" : fmt::format("{}", row.status);
    text += fmt::format("| `{}` | {} | {} | {} |\n", row.name, row.what, value, status);
  }
  return text;
}

}  // namespace braid
