// Formats with JSON take the schema as it is. In the others each parameter is a value between tags:
// JSON, or a string as it is, whose lengths, pattern and format become a regular expression.
#include "text/answer/tool_call_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/grammar/schema_rules.h"
#include "text/grammar/tool_grammar.h"
#include "text/grammar/tool_schemas.h"

namespace braid {
namespace {

constexpr std::string_view kAnyText = "/(.|\\n)*/";
constexpr std::string_view kName = "{NAME}", kNumber = "{N}";  // ToolFormat::write_begin

const json::value* Member(const json::value& value, std::string_view key) {
  return value.is_object() ? value.get_object().if_contains(key) : nullptr;
}

json::value ParametersOf(const json::value& tool) {
  const json::value* parameters = Member(tool.at("function"), "parameters");
  if (parameters != nullptr && parameters->is_object()) return *parameters;
  return json::object{{"type", "object"}};
}

bool IsStrict(const json::value& tool) {
  const json::value* strict = Member(tool.at("function"), "strict");
  return strict != nullptr && *strict == json::value(true);
}

bool Requires(const json::value& schema, std::string_view key) {
  const json::value* required = Member(schema, "required");
  if (required == nullptr || !required->is_array()) return false;
  const json::array& keys = required->get_array();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const json::value& k) { return k.is_string() && k.get_string() == key; });
}

// What a parameter's schema needs from the root to be read alone.
json::value Standalone(const json::value& property, const json::value& root) {
  json::value schema = property;
  if (!schema.is_object()) return json::object{};
  for (std::string_view key : {"$defs", "definitions"}) {
    if (const json::value* shared = Member(root, key)) schema.get_object()[key] = *shared;
  }
  return schema;
}

// Keywords that say which values a schema admits: first combinations, last those of strings.
constexpr std::string_view kConstraints[] = {
    "allOf",         "anyOf",           "oneOf",
    "$ref",          "type",            "enum",
    "const",         "minimum",         "maximum",
    "multipleOf",    "items",           "exclusiveMinimum",
    "minItems",      "maxItems",        "exclusiveMaximum",
    "prefixItems",   "properties",      "additionalProperties",
    "minProperties", "required",        "patternProperties",
    "maxProperties", "additionalItems", "minLength",
    "maxLength",     "pattern",         "format"};
constexpr std::span<const std::string_view> kCombinations = std::span(kConstraints).first(4);
constexpr std::span<const std::string_view> kNotOfStrings =
    std::span(kConstraints).first(std::size(kConstraints) - 4);

// The first of `names` but one that a schema has, or empty.
std::string_view FirstOf(const json::value& schema, std::span<const std::string_view> names,
                         std::string_view but = {}) {
  const auto at = std::ranges::find_if(
      names, [&](std::string_view name) { return name != but && Member(schema, name) != nullptr; });
  return at == names.end() ? std::string_view() : *at;
}

// The schema that another stands for: by a reference, or as all of its "allOf".
const json::value* Target(const json::value& schema, const json::value& root) {
  const json::value* reference = Member(schema, "$ref");
  if (reference != nullptr && reference->is_string()) {
    return FindByReference(root, reference->get_string());
  }
  const json::value* all = Member(schema, "allOf");
  const bool one = all != nullptr && all->is_array() && all->get_array().size() == 1 &&
                   FirstOf(schema, kConstraints, "allOf").empty();
  return one ? &all->get_array()[0] : nullptr;
}

// The schema that a chain of references leads to.
const json::value& Resolved(const json::value& schema, const json::value& root) {
  constexpr int kStepsMax = 16;
  const json::value* at = &schema;
  for (int i = 0; i < kStepsMax; ++i) {
    const json::value* target = Target(*at, root);
    if (target == nullptr) break;
    at = target;
  }
  return *at;
}

// Of one type, which is another: all of its keywords are enforced where its value is JSON.
bool IsNeverString(const json::value& schema) {
  const json::value* type = Member(schema, "type");
  return type != nullptr && type->is_string() && *type != "string";
}

// The alternatives of a schema that each have one kind: "anyOf", or a list of types.
std::vector<json::value> Alternatives(const json::value& schema, const json::value& root) {
  if (IsNeverString(schema)) return {schema};
  std::vector<json::value> out;
  for (std::string_view key : {"anyOf", "oneOf"}) {
    const json::value* options = Member(schema, key);
    if (options == nullptr || !options->is_array()) continue;
    for (const json::value& option : options->get_array()) out.push_back(Resolved(option, root));
    return out;
  }
  const json::value* types = Member(schema, "type");
  if (types == nullptr || !types->is_array()) return {schema};
  for (const json::value& type : types->get_array()) {
    out.push_back(schema);
    out.back().get_object()["type"] = type;
  }
  return out;
}

// Formats whose regular expressions are short.
struct FormatRegex {
  std::string_view name, regex;
};
constexpr FormatRegex kFormats[] = {
    {"date", "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"},
    {"time",
     "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([zZ]|[+-]([01][0-9]|2[0-3])"
     ":[0-5][0-9])"},
    {"date-time",
     "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[tT]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
     "(\\.[0-9]{1,9})?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"ipv4",
     "((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
     "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"},
};

std::string Slashed(std::string_view regex) {
  std::string out;
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\\' && i + 1 < regex.size()) {
      out += regex.substr(i++, 2);
    } else {
      out += regex[i] == '/' ? "\\/" : regex[i] == '\n' ? "\\n" : std::string(1, regex[i]);
    }
  }
  return "/" + out + "/";
}

// A pattern that may match anywhere as a regular expression of the whole; empty where anchors stand
// inside, or the pattern cannot be enforced at all.
std::string WholeRegex(std::string_view pattern) {
  if (!UnenforceablePattern(pattern).empty()) return {};
  const bool begins = pattern.starts_with('^');
  if (begins) pattern.remove_prefix(1);
  const bool ends = pattern.ends_with('$') && !pattern.ends_with("\\$");
  if (ends) pattern.remove_suffix(1);
  std::string body;
  bool in_class = false, alternatives = false;
  int depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];  // digits and words are ASCII in JSON Schema
      const std::string_view inner = next == 'd' ? "0-9" : next == 'w' ? "a-zA-Z0-9_" : "";
      if (inner.empty()) {
        body += {c, next};
      } else {
        body += in_class ? std::string(inner) : fmt::format("[{}]", inner);
      }
      continue;
    }
    if (!in_class && (c == '^' || c == '$')) return {};
    if (!in_class && c == '(') ++depth;
    if (!in_class && c == ')') --depth;
    if (!in_class && c == '|' && depth == 0) alternatives = true;
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    body += c;
  }
  if (alternatives && (begins || ends)) return {};
  return fmt::format("{}({}){}", begins ? "" : "(.|\\n)*", body, ends ? "" : "(.|\\n)*");
}

// Texts that are read as JSON where a schema allows its kind beside strings.
constexpr std::string_view kReadAsJson =
    "/[ \\t\\r\\n]*(true|false|True|False|-?[0-9](.|\\n)*|[\\[{](.|\\n)*)/";

bool IsOnlyString(const json::value& schema) {
  const json::value* type = Member(schema, "type");
  if (type != nullptr) return *type == "string";
  const json::value* values = Member(schema, "enum");
  const json::value* only = Member(schema, "const");
  if (only != nullptr) return only->is_string();
  return values != nullptr && values->is_array() &&
         std::ranges::all_of(values->get_array(), [](const auto& v) { return v.is_string(); });
}

bool MayBeString(const json::value& schema) {
  if (const json::value* type = Member(schema, "type")) return *type == "string";
  if (const json::value* only = Member(schema, "const")) return only->is_string();
  const json::value* values = Member(schema, "enum");
  return values == nullptr || !values->is_array() ||
         std::ranges::any_of(values->get_array(), [](const auto& v) { return v.is_string(); });
}

// What of a schema is written as JSON: of an enum without a type, the values that are no strings.
json::value WithoutStrings(json::value schema) {
  const json::value* values = Member(schema, "enum");
  if (values == nullptr || !values->is_array() || Member(schema, "type") != nullptr) return schema;
  json::array others;
  for (const json::value& value : values->get_array()) {
    if (!value.is_string()) others.push_back(value);
  }
  schema.get_object()["enum"] = std::move(others);
  return schema;
}

// kInvalid: a text of an enum is read as another of its kinds.
Status CheckTextsOfEnum(const json::value& schema) {
  const json::value* values = Member(schema, "enum");
  if (values == nullptr || !values->is_array()) return {};
  JsonKinds kinds = 0;
  for (const json::value& value : values->get_array()) kinds |= KindOf(value);
  for (const json::value& value : values->get_array()) {
    if (!value.is_string() || TypedJson(value.get_string(), kinds).starts_with('"')) continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("/enum: \"{}\" would be read as another kind, because this model "
                             "writes strings without quotes; name one type",
                             std::string_view(value.get_string()))};
  }
  return {};
}

// kInvalid: a keyword of a strict parameter, or of one of its alternatives, that is not enforced
// where strings are written as they are.
Status CheckStrict(const json::value& given, const json::value& root, bool is_option) {
  const auto beside = [](const json::value& schema, std::string_view keyword) -> Status {
    const std::string_view other = FirstOf(schema, kConstraints, keyword);
    if (other.empty()) return {};
    return Error{ErrorCode::kInvalid,
                 fmt::format("/{}: cannot be enforced beside {} where this model writes strings "
                             "without quotes",
                             other, keyword)};
  };
  const json::value& schema = Resolved(given, root);
  for (const json::value* at = &given; at != &schema; at = Target(*at, root)) {
    if (Member(*at, "$ref") != nullptr) RETURN_IF_ERROR(beside(*at, "$ref"));
  }
  if (IsNeverString(schema)) return {};
  RETURN_IF_ERROR(CheckTextsOfEnum(schema));
  for (std::string_view key : {"anyOf", "oneOf"}) {
    const json::value* options = Member(schema, key);
    if (is_option || options == nullptr || !options->is_array()) continue;
    RETURN_IF_ERROR(beside(schema, key));
    for (const json::value& option : options->get_array()) {
      RETURN_IF_ERROR(CheckStrict(option, root, true));
    }
    return {};
  }
  constexpr std::string_view kKinds[] = {"type", "enum", "const"};
  const bool names_kind = !FirstOf(schema, kKinds).empty();
  const json::value* types = Member(schema, "type");
  const bool listed = types != nullptr && types->is_array() &&
                      std::ranges::find(types->get_array(), json::value("string")) !=
                          types->get_array().end();
  if (!listed && !MayBeString(schema)) return {};
  const std::string_view wrong =
      FirstOf(schema, names_kind || is_option ? kCombinations : kNotOfStrings);
  if (wrong.empty()) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("/{}: cannot be enforced on what may be a string, which this model "
                           "writes without quotes; name another type",
                           wrong)};
}

}  // namespace

std::string LarkLiteral(std::string_view text) { return json::serialize(json::string(text)); }

std::optional<TokenId> LarkWriter::Special(std::string_view tag) const {
  const std::optional<TokenId> id = tokenizer_.TokenToId(tag);
  return id && tokenizer_.IsSpecial(*id) ? id : std::nullopt;
}

std::string LarkWriter::Text(std::string_view text, std::span<const std::string_view> tags) const {
  std::string out;
  while (!text.empty()) {
    size_t at = text.size();
    std::string_view next;
    for (std::string_view tag : tags) {
      if (tag.empty() || !Special(tag)) continue;
      const size_t found = text.find(tag);
      if (found < at) {
        at = found;
        next = tag;
      }
    }
    if (at > 0) out += LarkLiteral(text.substr(0, at)) + " ";
    if (!next.empty()) out += fmt::format("<[{}]> ", *Special(next));
    text.remove_prefix(std::min(at + next.size(), text.size()));
  }
  return out;
}

CallRules::CallRules(const ToolFormat& format, const Tokenizer& tokenizer)
    : format_(format), writer_(tokenizer), tags_(format_.tags()) {}

// A row of data as rules: {NAME} is the tool's name, whatever it holds, {N} a number.
std::string CallRules::Filled(std::string_view pattern, std::string_view name) const {
  std::string out, text;
  const auto end_text = [&] { out += writer_.Text(std::exchange(text, {}), tags_); };
  while (!pattern.empty()) {
    if (pattern.starts_with(kName)) {
      text += name;
      pattern.remove_prefix(kName.size());
    } else if (pattern.starts_with(kNumber)) {
      end_text();
      out += "/[0-9]{1,2}/ ";
      pattern.remove_prefix(kNumber.size());
    } else {
      text += pattern[0];
      pattern.remove_prefix(1);
    }
  }
  end_text();
  return out;
}

Result<std::string> CallRules::Add(const json::value& tool, const Options& options) {
  const std::string rule = fmt::format("call_{}", count_++);
  const std::string name(tool.at("function").at("name").as_string());
  std::string_view written = format_.write_begin;
  const size_t behind = options.behind.empty() ? std::string::npos : written.find(options.behind);
  if (behind != std::string::npos) written.remove_prefix(behind + options.behind.size());
  const std::string begin = Filled(written, name);
  const std::string end = writer_.Text(format_.write_end, tags_);
  std::string body = rule + "_arguments";
  if (format_.body != ToolFormat::Body::kParameters) {
    const json::value parameters =
        options.any_arguments ? json::value(json::object{{"type", "object"}}) : ParametersOf(tool);
    rules_ +=
        fmt::format("{}_arguments: %json {}\n", rule, json::serialize(OneLineSchema(parameters)));
  } else if (options.any_arguments) {
    AddAnyParameter();
    body = "any_parameter*";
  } else {
    Result<std::string> parameters = Parameters(rule, tool);
    if (!parameters) return Error{parameters.error().code, parameters.error().message, name};
    body = *std::move(parameters);
  }
  rules_ += fmt::format("{}: {}{} {}\n", rule, begin, body, end);
  return rule;
}

// Parameters of any name and value.
void CallRules::AddAnyParameter() {
  if (std::exchange(has_any_parameter_, true)) return;
  const std::string_view newline = format_.value_newlines ? "\n" : "";
  std::string open(format_.key_end);
  open += format_.value_begin.empty() ? "" : "\n" + std::string(format_.value_begin);
  open += newline;
  rules_ +=
      fmt::format("any_parameter: {} /[^<>\\n]{{1,256}}/ {} any_value\nany_value[suffix={}]: {}\n",
                  LarkLiteral(format_.key_begin), LarkLiteral(open),
                  LarkLiteral(fmt::format("{}{}\n", newline, format_.value_end)), kAnyText);
}

// The parameters in the schema's order, those that are not required as an option.
Result<std::string> CallRules::Parameters(const std::string& rule, const json::value& tool) {
  constexpr std::string_view kTaken[] = {
      "type",    "properties",  "required",  "additionalProperties",
      "$defs",   "definitions", "title",     "description",
      "$schema", "$id",         "id",        "$comment",
      "default", "examples",    "deprecated"};
  const json::value given = ParametersOf(tool);
  json::value root = Resolved(given, given);
  if (!root.is_object()) root = json::object{};
  root = Standalone(root, given);
  const bool strict = IsStrict(tool);
  for (const auto& [key, value] : root.get_object()) {
    if (!strict || std::ranges::find(kTaken, std::string_view(key)) != std::end(kTaken)) continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("/{}: cannot be enforced at the top of a strict tool's parameters, "
                             "which this model writes one by one",
                             std::string_view(key))};
  }
  json::object properties;
  if (const json::value* named = Member(root, "properties"); named && named->is_object()) {
    properties = named->get_object();
  }
  if (const json::value* required = Member(root, "required"); required && required->is_array()) {
    for (const json::value& key : required->get_array()) {
      if (key.is_string()) properties.emplace(key.get_string(), json::object{});
    }
  }
  std::string body;
  int index = 0;
  for (const auto& [key, property] : properties) {
    const std::string name = fmt::format("{}_{}", rule, index++);
    const std::string_view newline = format_.value_newlines ? "\n" : "";
    std::string open =
        fmt::format("{}{}{}", format_.key_begin, std::string_view(key), format_.key_end);
    open += format_.value_begin.empty() ? "" : "\n" + std::string(format_.value_begin);
    open += newline;
    const Status added = AddParameter({.rule = name,
                                       .open = LarkLiteral(open),
                                       .close = fmt::format("{}{}\n", newline, format_.value_end),
                                       .schema = property,
                                       .root = root,
                                       .strict = strict});
    if (!added) {
      return Error{added.error().code,
                   fmt::format("/properties/{}{}", std::string_view(key), added.error().message)};
    }
    body += name + (Requires(root, key) ? " " : "? ");
  }
  return body;
}

Status CallRules::AddParameter(const Parameter& parameter) {
  if (parameter.strict) {
    RETURN_IF_ERROR(CheckStrict(parameter.schema, parameter.root, false));
  }
  const json::value& schema = Resolved(parameter.schema, parameter.root);
  std::string options;
  json::array others;
  bool strings = false;
  for (const json::value& one : Alternatives(schema, parameter.root)) {
    strings = strings || MayBeString(one);
    if (!IsOnlyString(one)) others.push_back(Standalone(WithoutStrings(one), parameter.root));
  }
  // Nothing says which kind: any text is a value.
  constexpr std::string_view kKinds[] = {"type", "enum", "anyOf", "oneOf"};
  if (strings && FirstOf(schema, kKinds).empty()) others.clear();
  const bool mixed = strings && !others.empty();
  int number = 0;
  for (const json::value& one : Alternatives(schema, parameter.root)) {
    if (!MayBeString(one)) continue;
    ASSIGN_OR_RETURN(std::string text, Texts(one, parameter));
    if (text.starts_with('(')) {  // literals
      options +=
          fmt::format("{}{} {}", options.empty() ? "" : " | ", text, LarkLiteral(parameter.close));
      continue;
    }
    if (mixed) text += fmt::format(" & ~{}", kReadAsJson);
    const std::string name = fmt::format("{}_text{}", parameter.rule, number++);
    rules_ += fmt::format("{}[suffix={}]: {}\n", name, LarkLiteral(parameter.close), text);
    options += (options.empty() ? "" : " | ") + name;
  }
  if (!others.empty() || !strings) {
    const json::value value = others.size() == 1 ? others[0] : json::value(json::object{});
    json::value any = value;
    if (others.size() > 1) any = Standalone(json::object{{"anyOf", others}}, parameter.root);
    rules_ += fmt::format("{0}_value: %json {1}\n", parameter.rule,
                          json::serialize(OneLineSchema(std::move(any))));
    options += fmt::format("{}{}_value {}", options.empty() ? "" : " | ", parameter.rule,
                           LarkLiteral(parameter.close));
  }
  rules_ += fmt::format("{}: {} ({})\n", parameter.rule, parameter.open, options);
  return {};
}

// A string as it is: literals in parentheses, or a regular expression that keeps off the close tag.
Result<std::string> CallRules::Texts(const json::value& schema, const Parameter& parameter) const {
  json::array values;
  if (const json::value* only = Member(schema, "const")) values.push_back(*only);
  if (const json::value* list = Member(schema, "enum"); list != nullptr && list->is_array()) {
    for (const json::value& value : list->get_array()) values.push_back(value);
  }
  if (!values.empty()) {
    std::string out;
    for (const json::value& value : values) {
      if (value.is_string()) out += (out.empty() ? "" : " | ") + LarkLiteral(value.get_string());
    }
    return "(" + out + ")";
  }
  const auto number = [&](std::string_view key) -> std::optional<int64_t> {
    const json::value* value = Member(schema, key);
    return value != nullptr && value->is_int64() ? std::optional(value->get_int64()) : std::nullopt;
  };
  const auto least = number("minLength"), most = number("maxLength");
  std::string all;
  const auto also = [&](const std::string& regex) { all += (all.empty() ? "" : " & ") + regex; };
  if (least || most) {
    also(fmt::format("/(.|\\n){{{},{}}}/", least.value_or(0), most ? std::to_string(*most) : ""));
  }
  if (const json::value* pattern = Member(schema, "pattern"); pattern && pattern->is_string()) {
    const std::string regex = WholeRegex(pattern->get_string());
    if (!regex.empty()) {
      also(Slashed(regex));
    } else if (parameter.strict) {
      return Error{ErrorCode::kInvalid,
                   "/pattern: cannot be enforced where this model writes strings without quotes"};
    }
  }
  if (const json::value* format = Member(schema, "format"); format && format->is_string()) {
    const auto row =
        std::ranges::find(kFormats, std::string_view(format->get_string()), &FormatRegex::name);
    if (row != std::end(kFormats)) {
      also(Slashed(row->regex));
    } else if (parameter.strict) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("/format: {} cannot be enforced where this model writes strings "
                               "without quotes; date, time, date-time, uuid and ipv4 can",
                               std::string_view(format->get_string()))};
    }
  }
  if (all.empty()) return std::string(kAnyText);
  std::string tag;
  for (const char c : format_.value_end) {
    tag += std::string_view("\\/[](){}.*+?|^$").find(c) == std::string_view::npos
               ? std::string(1, c)
               : std::string("\\") + c;
  }
  also(fmt::format("~/(.|\\n)*{}(.|\\n)*/", tag));
  return all;
}

}  // namespace braid
