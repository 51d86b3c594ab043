// Puts Lark together. Tags that are special tokens are named by their ids, for their text is not
// theirs to be written.
#include "text/tool_grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "text/tool_schemas.h"

namespace braid {
namespace {

std::string Literal(std::string_view text) { return json::serialize(json::string(text)); }

// Makes rules out of texts and tags.
class Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // A text in which each of `tags` may be a token of its own.
  std::string Text(std::string_view text, std::span<const std::string_view> tags) const {
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
      const bool number = text.find(kNumber) < at;
      if (number) {
        at = text.find(kNumber);
        next = kNumber;
      }
      if (at > 0) out += Literal(text.substr(0, at)) + " ";
      if (number) {
        out += "/[0-9]{1,2}/ ";
      } else if (!next.empty()) {
        out += fmt::format("<[{}]> ", *Special(next));
      }
      text.remove_prefix(std::min(at + next.size(), text.size()));
    }
    return out;
  }

 private:
  static constexpr std::string_view kNumber = "{N}";

  std::optional<TokenId> Special(std::string_view tag) const {
    const std::optional<TokenId> id = tokenizer_.TokenToId(tag);
    return id && tokenizer_.IsSpecial(*id) ? id : std::nullopt;
  }

  const Tokenizer& tokenizer_;
};

const json::value* Find(const json::value& value, std::string_view key) {
  return value.is_object() ? value.get_object().if_contains(key) : nullptr;
}

json::value ParametersOf(const json::value& tool) {
  const json::value* parameters = Find(tool.at("function"), "parameters");
  if (parameters != nullptr && parameters->is_object()) return *parameters;
  return json::object{{"type", "object"}};
}

// {NAME} in a row of data is the tool's name.
std::string Filled(std::string_view pattern, std::string_view name) {
  std::string out(pattern);
  if (const size_t at = out.find("{NAME}"); at != std::string::npos) out.replace(at, 6, name);
  return out;
}

bool Requires(const json::value& schema, std::string_view key) {
  const json::value* required = Find(schema, "required");
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
    if (const json::value* shared = Find(root, key)) schema.get_object()[key] = *shared;
  }
  return schema;
}

class CallRules {
 public:
  CallRules(const ToolGrammar& grammar, const Tokenizer& tokenizer)
      : format_(grammar.format), writer_(tokenizer), tags_(format_.tags()) {}

  // Adds the rules of one call and returns its name.
  std::string Add(const json::value& tool) {
    const std::string rule = fmt::format("call_{}", count_++);
    const std::string name(tool.at("function").at("name").as_string());
    const json::value parameters = ParametersOf(tool);
    const std::string begin = writer_.Text(Filled(format_.write_begin, name), tags_);
    const std::string end = writer_.Text(format_.write_end, tags_);
    if (format_.body != ToolFormat::Body::kParameters) {
      rules_ += fmt::format("{}: {}{}_arguments {}\n{}_arguments: %json {}\n", rule, begin, rule,
                            end, rule, json::serialize(OneLineSchema(parameters)));
    } else {
      rules_ += fmt::format("{}: {}{} {}\n", rule, begin, Parameters(rule, name, parameters), end);
    }
    return rule;
  }

  const std::string& rules() const { return rules_; }

 private:
  // The parameters in the schema's order, those that are not required as an option.
  std::string Parameters(const std::string& rule, const std::string& tool,
                         const json::value& schema) {
    const json::value* properties = Find(schema, "properties");
    if (properties == nullptr || !properties->is_object()) return {};
    const ToolSchemas kinds(json::array{
        json::object{{"function", json::object{{"name", tool}, {"parameters", schema}}}}});
    std::string body;
    int index = 0;
    for (const auto& [key, property] : properties->get_object()) {
      const std::string name = fmt::format("{}_{}", rule, index++);
      const std::string_view newline = format_.value_newlines ? "\n" : "";
      const std::string close = fmt::format("{}{}\n", newline, format_.value_end);
      std::string open =
          fmt::format("{}{}{}", format_.key_begin, std::string_view(key), format_.key_end);
      open += format_.value_begin.empty() ? "" : "\n" + std::string(format_.value_begin);
      open += newline;
      if (kinds.KindsOf(tool, key) == kStringKind && Find(property, "enum") == nullptr) {
        rules_ += fmt::format("{}: {}{}_text\n{}_text[suffix={}]: /(.|\\n)*/\n", name,
                              Literal(open) + " ", name, name, Literal(close));
      } else if (kinds.KindsOf(tool, key) == kStringKind) {
        rules_ +=
            fmt::format("{}: {} ({}) {}\n", name, Literal(open), Texts(property), Literal(close));
      } else {
        rules_ += fmt::format("{}: {} {}_value {}\n{}_value: %json {}\n", name, Literal(open), name,
                              Literal(close), name,
                              json::serialize(OneLineSchema(Standalone(property, schema))));
      }
      body += name + (Requires(schema, key) ? " " : "? ");
    }
    return body;
  }

  static std::string Texts(const json::value& property) {
    std::string out;
    for (const json::value& text : Find(property, "enum")->as_array()) {
      if (text.is_string()) out += (out.empty() ? "" : " | ") + Literal(text.get_string());
    }
    return out;
  }

  const ToolFormat& format_;
  const Writer writer_;
  const std::array<std::string_view, 13> tags_;
  std::string rules_;
  int count_ = 0;
};

}  // namespace

namespace {

// What in a text may be a token of its own: "<tool_call>", "◁think▷".
std::vector<std::string_view> TagsIn(std::string_view text) {
  std::vector<std::string_view> tags;
  for (const auto& [open, close] :
       {std::pair<std::string_view, std::string_view>{"<", ">"}, {"◁", "▷"}}) {
    for (size_t at = text.find(open); at != std::string_view::npos;
         at = text.find(open, at + open.size())) {
      const size_t end = text.find(close, at);
      if (end != std::string_view::npos) tags.push_back(text.substr(at, end + close.size() - at));
    }
  }
  return tags;
}

}  // namespace

std::string StructuralTagText(const json::value& tag, const Tokenizer& tokenizer) {
  const Writer writer(tokenizer);
  const auto written = [&](std::string_view text) { return writer.Text(text, TagsIn(text)); };
  const json::array& structures = tag.at("structures").as_array();
  std::string parts, rules;
  std::vector<bool> placed(structures.size(), false);
  int number = 0;
  for (const json::value& trigger_value : tag.at("triggers").as_array()) {
    const std::string_view trigger = trigger_value.as_string();
    const std::string part = fmt::format("part_{}", number);
    std::string bodies;
    for (size_t i = 0; i < structures.size(); ++i) {
      const json::value& structure = structures[i];
      const std::string_view begin = structure.at("begin").as_string();
      if (placed[i] || !begin.starts_with(trigger)) continue;
      placed[i] = true;
      const std::string body = fmt::format("body_{}", i);
      bodies += (bodies.empty() ? "" : " | ") + body;
      rules += fmt::format("{}: {}{}_json {}\n{}_json: %json {}\n", body,
                           written(begin.substr(trigger.size())), body,
                           written(structure.at("end").as_string()), body,
                           json::serialize(OneLineSchema(structure.at("schema"))));
    }
    if (bodies.empty()) continue;
    const std::string begins = written(trigger);
    if (begins.starts_with("<[")) {
      rules += fmt::format("{}: FREE? {}({})\n", part, begins, bodies);
    } else {
      rules += fmt::format("found_{}[suffix={}]: /(.|\\n)*/\n{}: found_{} ({})\n", number,
                           Literal(trigger), part, number, bodies);
    }
    parts += (parts.empty() ? "" : " | ") + part;
    ++number;
  }
  return fmt::format("start: ({})* FREE?\nFREE: /(.|\\n)+/\n{}", parts, rules);
}

json::value OneLineSchema(json::value schema) {
  if (schema.is_object()) {
    schema.get_object()["x-guidance"] = json::object{
        {"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}};
  }
  return schema;
}

std::string ToolGrammarText(const ToolGrammar& grammar, const Tokenizer& tokenizer) {
  CallRules calls(grammar, tokenizer);
  std::string any;
  for (const json::value& tool : grammar.tools) {
    any += (any.empty() ? "" : " | ") + calls.Add(tool);
  }
  const ToolFormat& format = grammar.format;
  const Writer writer(tokenizer);
  const auto tags = format.tags();
  std::string start = writer.Text(format.section[0], tags) + "call";
  if (grammar.parallel) {
    start +=
        " (" + (format.write_between.empty() ? "" : Literal(format.write_between) + " ") + "call)*";
  }
  start += " " + writer.Text(format.section[1], tags);
  if (grammar.otherwise == nullptr) {
    return fmt::format("start: {}\ncall: {}\n{}", start, any, calls.rules());
  }
  return fmt::format("start: calls | answer\ncalls: {}\ncall: {}\nanswer: %json {}\n{}", start, any,
                     json::serialize(OneLineSchema(*grammar.otherwise)), calls.rules());
}

std::string ChoiceGrammarText(const std::vector<std::string>& choices) {
  std::string start = "start: ";
  for (const std::string& choice : choices) {
    start += (start.size() > 7 ? " | " : "") + Literal(choice);
  }
  return start + "\n";
}

namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

// A rule's name in Lark, where rules are lower-case words; "root" is where a grammar begins.
std::string RuleName(std::string_view name) {
  if (name == "root") return "start";
  std::string out = "r_";
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    out += plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view source) : source_(source) {}

  Result<std::string> Run() {
    while (at_ < source_.size()) RETURN_IF_ERROR(Token());
    if (out_.find("\nstart: ") == std::string::npos) {
      return Error{ErrorCode::kInvalid, "the grammar has no rule named root"};
    }
    return out_;
  }

 private:
  Error Wrong(std::string_view what) const {
    const auto line =
        1 + std::count(source_.begin(), source_.begin() + static_cast<int64_t>(at_), '\n');
    return {ErrorCode::kInvalid, fmt::format("line {} of the grammar: {}", line, what)};
  }

  Status Token() {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return String(c);
    if (c == '[') return Class();
    if (c == '{') return Braces();
    if (IsNameByte(c)) return Name();
    if (c == '#') {
      at_ = std::min(source_.find('\n', at_), source_.size());
    } else if (c == '.') {
      out_ += " /(.|\\n)/";
      ++at_;
    } else if (std::string_view("()|?*+").find(c) != std::string_view::npos) {
      out_ += c;
      ++at_;
    } else if (std::string_view(" \t\r\n").find(c) != std::string_view::npos) {
      out_ += ' ';  // rules end where the next begins
      ++at_;
    } else {
      return Wrong(fmt::format("'{}' is not expected here", c));
    }
    return {};
  }

  // The end of what begins with `close`'s opener at at_, past the closing byte; 0 if it has none.
  size_t EndOf(char close) const {
    for (size_t i = at_ + 1; i < source_.size() && source_[i] != '\n'; ++i) {
      if (source_[i] == '\\') {
        ++i;
      } else if (source_[i] == close) {
        return i + 1;
      }
    }
    return 0;
  }

  Status String(char quote) {
    const size_t end = EndOf(quote);
    if (end == 0) return Wrong("a string has no end");
    std::string text;
    for (char byte : source_.substr(at_ + 1, end - at_ - 2)) {
      if (byte == '"' && quote == '\'') text += '\\';
      text += byte;
    }
    if (text.empty()) {
      out_ += " (\"\")";
    } else {
      out_ += " \"" + text + "\" ";
    }
    at_ = end;
    return {};
  }

  Status Class() {
    const size_t end = EndOf(']');
    if (end == 0) return Wrong("a class of characters has no end");
    std::string text;
    for (char c : source_.substr(at_, end - at_))
      text += c == '/' ? std::string("\\/") : std::string(1, c);
    out_ += " /" + text + "/";
    at_ = end;
    return {};
  }

  // A repetition: {2}, {2,}, {2,5}.
  Status Braces() {
    const size_t end = EndOf('}');
    const std::string_view text = source_.substr(at_, end == 0 ? 0 : end - at_);
    if (end == 0 || text.find_first_not_of("{}0123456789, ") != std::string_view::npos) {
      return Wrong("a repetition must be {m}, {m,} or {m,n}");
    }
    out_ += text;
    at_ = end;
    return {};
  }

  Status Name() {
    size_t end = at_;
    while (end < source_.size() && IsNameByte(source_[end])) ++end;
    const std::string name = RuleName(source_.substr(at_, end - at_));
    const size_t next = source_.find_first_not_of(" \t", end);
    const bool defines = next != std::string_view::npos && source_.substr(next).starts_with("::=");
    out_ += defines ? "\n" + name + ": " : " " + name;
    at_ = defines ? next + 3 : end;
    return {};
  }

  const std::string_view source_;
  size_t at_ = 0;
  std::string out_ = "\n";
};

}  // namespace

Result<std::string> LarkFromGbnf(std::string_view source) {
  if (source.find("::=") == std::string_view::npos) return std::string(source);
  return GbnfReader(source).Run();
}

}  // namespace braid
