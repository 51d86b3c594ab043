// Reads "type", "enum", "const", "anyOf", "oneOf", "allOf" and local "$ref" of a schema; what else
// a schema says does not change how a written value is read.
#include "text/grammar/tool_schemas.h"

#include "base/text/written_json.h"
#include "text/answer/json_scanner.h"

namespace braid {
namespace {

constexpr int kSchemaDepthMax = 16;

const json::value* Find(const json::value* value, std::string_view key) {
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

class SchemaReader {
 public:
  explicit SchemaReader(const json::value& root) : root_(root) {}

  // 0: the schema does not say.
  JsonKinds Kinds(const json::value& schema, int depth) const {
    if (!schema.is_object() || depth > kSchemaDepthMax) return 0;
    if (const json::value* ref = Find(&schema, "$ref"); ref != nullptr && ref->is_string()) {
      const json::value* target = Resolve(ref->get_string());
      return target == nullptr ? JsonKinds{0} : Kinds(*target, depth + 1);
    }
    JsonKinds kinds = 0;
    if (const json::value* type = Find(&schema, "type")) {
      if (!type->is_array()) return KindNamed(*type);
      for (const json::value& one : type->get_array()) kinds |= KindNamed(one);
      return kinds;
    }
    if (const json::value* only = Find(&schema, "const")) return KindOf(*only);
    if (const json::value* values = Find(&schema, "enum"); values && values->is_array()) {
      for (const json::value& one : values->get_array()) kinds |= KindOf(one);
      return kinds;
    }
    for (std::string_view key : {"anyOf", "oneOf", "allOf"}) {
      const json::value* options = Find(&schema, key);
      if (options == nullptr || !options->is_array()) continue;
      for (const json::value& one : options->get_array()) kinds |= Kinds(one, depth + 1);
      return kinds;
    }
    if (Find(&schema, "properties") != nullptr) return kObjectKind;
    return Find(&schema, "items") != nullptr ? kArrayKind : JsonKinds{0};
  }

 private:
  // "#/$defs/City"
  const json::value* Resolve(std::string_view ref) const {
    if (!ref.starts_with("#/")) return nullptr;
    const json::value* at = &root_;
    ref.remove_prefix(2);
    while (at != nullptr && !ref.empty()) {
      const size_t slash = std::min(ref.find('/'), ref.size());
      at = Find(at, ref.substr(0, slash));
      ref.remove_prefix(std::min(slash + 1, ref.size()));
    }
    return at;
  }

  const json::value& root_;
};

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) AppendJsonEscaped(c, &out);
  return out + '"';
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
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
    const json::value* function = Find(&tool, "function");
    const json::value* name = Find(function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Parameters& parameters = tools_[std::string(name->get_string())];
    const json::value* schema = Find(function, "parameters");
    const json::value* properties = Find(schema, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    const SchemaReader reader(*schema);
    for (const auto& [key, property] : properties->get_object()) {
      parameters[std::string(key)] = reader.Kinds(property, 0);
    }
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
