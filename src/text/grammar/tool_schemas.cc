// Reads "type", "enum", "const", "anyOf", "oneOf", "allOf" and local "$ref" of a schema; what else
// a schema says does not change how a written value is read.
#include "text/grammar/tool_schemas.h"

#include <algorithm>
#include <vector>

#include "base/text/trim.h"
#include "base/text/written_json.h"
#include "text/answer/json_scanner.h"
#include "text/grammar/schema_rules.h"

namespace braid {
namespace {

constexpr size_t kPartsMax = 256;

const json::value* MemberOf(const json::value* value, std::string_view key) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(key) : nullptr;
}

JsonKinds KindNamed(const json::value& type) {
  if (!type.is_string()) return 0;
  const std::string_view name = type.get_string();
  if (name == "string") return kStringKind;
  if (name == "number" || name == "integer") return kNumberKind;
  if (name == "boolean") return kBoolKind;
  if (name == "null") return kNullKind;
  if (name == "object") return kObjectKind;
  if (name == "array") return kArrayKind;
  return 0;
}

// `schema`, what it refers to and what its combinations list, for as long as visit(part) says to go
// on below a part; each part once, so circles end. False: there are more than kPartsMax.
template <class Visit>
bool VisitParts(const json::value& schema, const json::value& root, const Visit& visit) {
  std::vector<const json::value*> parts = {&schema};
  const auto add = [&](const json::value* part) {
    if (part != nullptr && std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i == kPartsMax) return false;
    const json::value* part = parts[i];
    if (!part->is_object() || !visit(*part)) continue;
    if (const json::value* ref = MemberOf(part, "$ref"); ref != nullptr && ref->is_string()) {
      add(FindByReference(root, ref->get_string()));
    }
    for (std::string_view key : {"anyOf", "oneOf", "allOf"}) {
      const json::value* options = MemberOf(part, key);
      if (options == nullptr || !options->is_array()) continue;
      for (size_t o = 0; o < options->get_array().size() && parts.size() <= kPartsMax; ++o) {
        add(&options->get_array()[o]);
      }
    }
  }
  return true;
}

// What a part says itself; 0: nothing.
JsonKinds OwnKinds(const json::value& schema) {
  JsonKinds kinds = 0;
  if (const json::value* type = MemberOf(&schema, "type")) {
    if (!type->is_array()) return KindNamed(*type);
    for (const json::value& one : type->get_array()) kinds |= KindNamed(one);
    return kinds;
  }
  if (const json::value* only = MemberOf(&schema, "const")) return KindOf(*only);
  if (const json::value* values = MemberOf(&schema, "enum"); values && values->is_array()) {
    for (const json::value& one : values->get_array()) kinds |= KindOf(one);
    return kinds;
  }
  if (MemberOf(&schema, "properties") != nullptr) return kObjectKind;
  return MemberOf(&schema, "items") != nullptr ? kArrayKind : JsonKinds{0};
}

// 0: the schema does not say.
JsonKinds KindsIn(const json::value& schema, const json::value& root) {
  JsonKinds kinds = 0;
  const bool all = VisitParts(schema, root, [&](const json::value& part) {
    const JsonKinds own = OwnKinds(part);
    kinds |= own;
    return own == 0;
  });
  return all ? kinds : JsonKinds{0};
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) AppendJsonEscaped(c, &out);
  return out + '"';
}

// Python's words, which templates teach models to write.
std::string_view JsonWord(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return text;
}

}  // namespace

JsonKinds KindOf(const json::value& value) {
  if (value.is_string()) return kStringKind;
  if (value.is_number()) return kNumberKind;
  if (value.is_bool()) return kBoolKind;
  if (value.is_null()) return kNullKind;
  return value.is_object() ? kObjectKind : kArrayKind;
}

ToolSchemas::ToolSchemas(const json::array& tools) {
  for (const json::value& tool : tools) {
    const json::value* function = MemberOf(&tool, "function");
    const json::value* name = MemberOf(function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Parameters& parameters = tools_[std::string(name->get_string())];
    const json::value* schema = MemberOf(function, "parameters");
    if (schema == nullptr) continue;
    VisitParts(*schema, *schema, [&](const json::value& part) {
      const json::value* properties = MemberOf(&part, "properties");
      if (properties == nullptr || !properties->is_object()) return true;
      for (const auto& [key, property] : properties->get_object()) {
        parameters[std::string(key)] |= KindsIn(property, *schema);
      }
      return true;
    });
  }
}

JsonKinds ToolSchemas::KindsOf(std::string_view tool, std::string_view parameter) const {
  auto parameters = tools_.find(tool);
  if (parameters == tools_.end()) return kAnyKind;
  auto kinds = parameters->second.find(parameter);
  return kinds == parameters->second.end() || kinds->second == 0 ? kAnyKind : kinds->second;
}

std::string TypedJson(std::string_view text, JsonKinds kinds) {
  if ((kinds & ~kStringKind) == 0) return Quoted(text);
  const std::string_view word = JsonWord(Trimmed(text));
  const Result<json::value> value = ParseWrittenJson(word, "value");
  // A quoted string where a string may stand is taken with its quotes, for a model that writes
  // strings without quotes means them.
  if (value && !value->is_string() && (KindOf(*value) & kinds) != 0) return std::string(word);
  return Quoted(text);
}

}  // namespace braid
