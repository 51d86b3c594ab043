// One table of keywords, and the few rewritings that keep a schema's meaning.
#include "text/grammar/schema_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

namespace braid {
namespace {

constexpr int kReferencesMax = 64;

struct Keyword {
  std::string_view name, reason;
};
// Keywords that say something of a value which a grammar, reading from left to right, cannot hold.
constexpr Keyword kUnenforceable[] = {
    {"uniqueItems", "a grammar cannot compare an item with earlier ones"},
    {"not", "a grammar cannot express the complement of a schema"},
    {"if", "a condition on the whole value is known only at its end"},
    {"contains", "which item will match is known only at the end"},
    {"propertyNames", "names are enforced as an enum or a plain pattern without properties beside"},
    {"dependentRequired", "properties do not depend on each other in a grammar"},
    {"dependentSchemas", "properties do not depend on each other in a grammar"},
    {"dependencies", "properties do not depend on each other in a grammar"},
    {"unevaluatedProperties", "it is enforced only without combinations or references beside it"},
    {"unevaluatedItems", "it is enforced only without combinations or references beside it"},
    {"$dynamicRef", "only $ref is followed"},
    {"$recursiveRef", "only $ref is followed"},
};
// Those that say nothing without another one, in the order of the pairs.
constexpr std::array<Keyword, 4> kNothingWithout = {
    {{"then", "if"}, {"else", "if"}, {"minContains", "contains"}, {"maxContains", "contains"}}};
constexpr std::string_view kFormats[] = {"date-time", "time", "date", "duration", "email",
                                         "hostname",  "ipv4", "ipv6", "uuid",     "uri"};
constexpr std::string_view kCombinations[] = {"allOf", "anyOf", "oneOf",
                                              "$ref",  "if",    "dependentSchemas"};
// Keywords with schemas: by name, in a list, or alone.
constexpr std::string_view kByName[] = {"properties", "patternProperties", "$defs", "definitions"};
constexpr std::string_view kLists[] = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::string_view kAlone[] = {"items", "additionalItems", "additionalProperties"};

// "~" and "/" of a member's name in a JSON Pointer.
std::string Escaped(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

bool HasAny(const json::object& schema, std::span<const std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return schema.contains(name); });
}

bool IsObject(const json::value* value) { return value != nullptr && value->is_object(); }

class Reader {
 public:
  Reader(const json::value& root, bool whole) : root_(root), whole_(whole) {}

  Result<EnforceableSchema> Run() {
    out_.schema = root_;
    Read(out_.schema, "");
    if (!circle_.empty()) {
      return Error{
          ErrorCode::kInvalid,
          fmt::format("{}: the reference leads back to itself, so it describes no value", circle_)};
    }
    return std::move(out_);
  }

 private:
  void Read(json::value& value, const std::string& at) {
    if (!value.is_object()) return;
    json::object& schema = value.get_object();
    Rewrite(schema);
    if (!whole_) RelaxOneOf(schema);
    CheckReference(schema, at);
    for (const Keyword& keyword : kUnenforceable) Drop(schema, keyword.name, keyword.reason, at);
    for (const Keyword& pair : kNothingWithout) schema.erase(pair.name);
    CheckString(schema, at);
    CheckPropertyCount(schema, at);
    for (std::string_view name : kByName) {
      if (json::value* held = schema.if_contains(name); IsObject(held)) {
        const std::string below = at + "/" + std::string(name);
        const bool kept = name != "patternProperties" || CheckPatterns(held->get_object(), below);
        for (auto& [key, part] : held->get_object()) Read(part, below + "/" + Escaped(key));
        // Names of a dropped pattern would be additional ones.
        if (!kept) schema.erase("additionalProperties");
      }
    }
    for (std::string_view name : kLists) {
      if (json::value* held = schema.if_contains(name); held != nullptr && held->is_array()) {
        for (size_t i = 0; i < held->get_array().size(); ++i) {
          Read(held->get_array()[i], fmt::format("{}/{}/{}", at, name, i));
        }
      }
    }
    for (std::string_view name : kAlone) {
      if (json::value* held = schema.if_contains(name)) Read(*held, fmt::format("{}/{}", at, name));
    }
  }

  void Drop(json::object& schema, std::string_view name, std::string_view reason,
            const std::string& at) {
    if (!schema.contains(name)) return;
    schema.erase(name);
    out_.dropped.push_back({fmt::format("{}/{}", at, name), std::string(reason)});
  }

  // What another keyword says as well, and what says nothing.
  static void Rewrite(json::object& schema) {
    const json::value* unique = schema.if_contains("uniqueItems");
    const json::value* most = schema.if_contains("maxItems");
    const bool short_list = most != nullptr && most->is_int64() && most->get_int64() <= 1;
    if (unique != nullptr && (short_list || *unique == json::value(false))) {
      schema.erase("uniqueItems");
    }
    for (std::string_view name : {"unevaluatedProperties", "unevaluatedItems"}) {
      const json::value* rest = schema.if_contains(name);
      const bool properties = name == "unevaluatedProperties";
      const std::string_view other = properties ? "additionalProperties" : "items";
      if (rest == nullptr) continue;
      if (*rest == json::value(true) || schema.contains(other)) {
        if (*rest == json::value(true) || !HasAny(schema, kCombinations)) schema.erase(name);
      } else if (!HasAny(schema, kCombinations)) {
        json::value moved = *rest;
        schema.erase(name);
        schema[other] = std::move(moved);
      }
    }
    if (!schema.contains("then") && !schema.contains("else")) schema.erase("if");
    RewriteNames(schema);
  }

  // Grammars enforce "exactly one" only of schemas that they see to exclude each other.
  static void RelaxOneOf(json::object& schema) {
    json::value* options = schema.if_contains("oneOf");
    if (options == nullptr || schema.contains("anyOf")) return;
    json::value moved = std::move(*options);
    schema.erase("oneOf");
    schema["anyOf"] = std::move(moved);
  }

  // Names that must be of a list, or match a pattern, where nothing else is said of names.
  static void RewriteNames(json::object& schema) {
    const json::value* names = schema.if_contains("propertyNames");
    if (!IsObject(names)) {
      if (names != nullptr && *names == json::value(true)) schema.erase("propertyNames");
      return;
    }
    json::object rule = names->get_object();
    for (std::string_view annotation : {"title", "description", "$comment"}) rule.erase(annotation);
    if (const json::value* type = rule.if_contains("type"); type && *type == "string") {
      rule.erase("type");
    }
    const bool free = !schema.contains("properties") && !schema.contains("patternProperties") &&
                      !schema.contains("required");
    if (rule.empty()) {
      schema.erase("propertyNames");
    } else if (free && rule.size() == 1) {
      const json::value* rest = schema.if_contains("additionalProperties");
      const json::value each = rest == nullptr ? json::value(true) : *rest;
      json::object named;
      const json::value* list = rule.if_contains("enum");
      const json::value* pattern = rule.if_contains("pattern");
      if (list != nullptr && list->is_array()) {
        for (const json::value& name : list->get_array()) {
          if (name.is_string()) named[name.get_string()] = each;
        }
        schema["properties"] = std::move(named);
      } else if (pattern != nullptr && pattern->is_string() &&
                 UnenforceablePattern(pattern->get_string()).empty()) {
        named[pattern->get_string()] = each;
        schema["patternProperties"] = std::move(named);
      } else {
        return;
      }
      schema["additionalProperties"] = false;
      schema.erase("propertyNames");
    }
  }

  // A chain of references, each schema nothing but the next reference.
  void CheckReference(const json::object& schema, const std::string& at) {
    const json::value* reference = schema.if_contains("$ref");
    std::set<std::string_view> seen;
    while (reference != nullptr && reference->is_string() && circle_.empty()) {
      const std::string_view name = reference->get_string();
      if (!seen.insert(name).second || seen.size() > kReferencesMax) {
        circle_ = at + "/$ref";
        return;
      }
      const json::value* target = FindByReference(root_, name);
      reference = IsObject(target) ? target->get_object().if_contains("$ref") : nullptr;
    }
  }

  void CheckString(json::object& schema, const std::string& at) {
    const json::value* format = schema.if_contains("format");
    if (format != nullptr && format->is_string()) {
      const std::string_view name = format->get_string();
      // An unknown format is an annotation.
      if (std::ranges::find(kFormats, name) == std::end(kFormats)) schema.erase("format");
    }
    const json::value* pattern = schema.if_contains("pattern");
    if (pattern == nullptr || !pattern->is_string()) return;
    const std::string reason = UnenforceablePattern(pattern->get_string());
    if (!reason.empty()) Drop(schema, "pattern", reason, at);
  }

  // False if one was dropped.
  bool CheckPatterns(json::object& patterns, const std::string& at) {
    std::vector<std::string> wrong;
    for (const auto& [pattern, part] : patterns) {
      const std::string reason = UnenforceablePattern(pattern);
      if (reason.empty()) continue;
      out_.dropped.push_back({at + "/" + Escaped(pattern), reason});
      wrong.emplace_back(pattern);
    }
    for (const std::string& pattern : wrong) patterns.erase(pattern);
    return wrong.empty();
  }

  // So many properties are enforced where all that are named are required, and as "exactly one".
  void CheckPropertyCount(json::object& schema, const std::string& at) {
    const json::value* properties = schema.if_contains("properties");
    if (!IsObject(properties)) return;
    const json::value* rest = schema.if_contains("additionalProperties");
    const auto number = [&](std::string_view name) -> int64_t {
      const json::value* value = schema.if_contains(name);
      return value != nullptr && value->is_int64() ? value->get_int64() : -1;
    };
    const int64_t least = number("minProperties"), most = number("maxProperties");
    const bool one = least <= 1 && (most == -1 || most == 1) && rest != nullptr &&
                     *rest == json::value(false) && !schema.contains("patternProperties");
    std::set<std::string_view> required;
    if (const json::value* list = schema.if_contains("required"); list && list->is_array()) {
      for (const json::value& name : list->get_array()) {
        if (name.is_string()) required.insert(name.get_string());
      }
    }
    const auto optional = std::ranges::count_if(
        properties->get_object(), [&](const auto& p) { return !required.contains(p.key()); });
    if (optional == 0 || (one && required.empty())) return;
    if (least > static_cast<int64_t>(required.size())) {
      Drop(schema, "minProperties", kCountReason, at);
    } else {
      schema.erase("minProperties");
    }
    const auto named = static_cast<int64_t>(properties->get_object().size());
    const bool closed = rest != nullptr && *rest == json::value(false);
    if (most >= 0 && !(closed && most >= named)) Drop(schema, "maxProperties", kCountReason, at);
    if (most >= 0) schema.erase("maxProperties");
  }

  static constexpr std::string_view kCountReason =
      "properties are counted only where all that are named are required";

  const json::value& root_;
  const bool whole_;
  EnforceableSchema out_;
  std::string circle_;
};

}  // namespace

const json::value* FindByReference(const json::value& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  boost::system::error_code error;
  return root.find_pointer(reference.substr(1), error);
}

std::string UnenforceablePattern(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\' && rest.size() > 1) {
      ++i;
      if (in_class) continue;
      if (rest[1] >= '1' && rest[1] <= '9') return "a pattern cannot refer back to a group";
      if (rest.starts_with("\\k")) return "a pattern cannot refer back to a group";
      if (rest[1] == 'b' || rest[1] == 'B') return "a pattern cannot look for the edge of a word";
    } else if (in_class) {
      in_class = rest[0] != ']';
    } else if (rest[0] == '[') {
      in_class = true;
    } else if (rest.starts_with("(?=") || rest.starts_with("(?!") || rest.starts_with("(?<=") ||
               rest.starts_with("(?<!")) {
      return "a pattern cannot look ahead or behind";
    }
  }
  return {};
}

Result<EnforceableSchema> EnforceablePart(const json::value& schema) {
  return Reader(schema, false).Run();
}

Result<json::value> EnforceableWhole(const json::value& schema) {
  ASSIGN_OR_RETURN(EnforceableSchema part, Reader(schema, true).Run());
  if (part.dropped.empty()) return std::move(part.schema);
  const UnenforceableKeyword& first = part.dropped.front();
  const size_t name = first.pointer.rfind('/') + 1;
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: {} cannot be enforced: {}; leave it out, or do not ask for strict",
                           first.pointer, first.pointer.substr(name), first.reason)};
}

}  // namespace braid
