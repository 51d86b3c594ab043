// Puts Lark together out of the rules of calls (tool_call_rules.h), schemas and texts.
#include "text/grammar/tool_grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>

#include "text/answer/tool_call_rules.h"

namespace braid {
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
  const LarkWriter writer(tokenizer);
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
                           LarkLiteral(trigger), part, number, bodies);
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

namespace {

// Text in which every opening tag of a call begins one; from there the call's form is fixed.
Result<std::string> LazyText(const ToolGrammar& grammar, const Tokenizer& tokenizer) {
  const ToolFormat& format = grammar.format;
  CallRules calls(format, tokenizer);
  std::string pieces, rules;
  const auto piece = [&](const std::string& one) { pieces += (pieces.empty() ? "" : " | ") + one; };
  int number = 0;
  for (std::string_view open : format.open) {
    if (open.empty()) continue;
    const std::string rest = fmt::format("behind_{}", number);
    std::string any;
    for (const json::value& tool : grammar.tools) {
      const json::value* strict = tool.at("function").as_object().if_contains("strict");
      const bool free = strict == nullptr || *strict != json::value(true);
      ASSIGN_OR_RETURN(const std::string call,
                       calls.Add(tool, {.behind = open, .any_arguments = free}));
      any += (any.empty() ? "" : " | ") + call;
    }
    rules += fmt::format("{}: {}\nfound_{}[suffix={}]: /(.|\\n)*/\n", rest, any, number,
                         LarkLiteral(open));
    piece(fmt::format("found_{} {}", number, rest));
    if (const auto id = calls.writer().Special(open)) {
      piece(fmt::format("FREE? <[{}]> {}", *id, rest));
    }
    ++number;
  }
  std::vector<std::string_view> marks(format.section.begin(), format.section.end());
  marks.insert(marks.end(), grammar.marks.begin(), grammar.marks.end());
  for (std::string_view mark : marks) {
    const auto id = mark.empty() ? std::nullopt : calls.writer().Special(mark);
    if (id) piece(fmt::format("FREE? <[{}]>", *id));
  }
  return fmt::format("start: ({})* FREE?\nFREE: /(.|\\n)+/\n{}{}", pieces, rules, calls.rules());
}

}  // namespace

Result<std::string> ToolGrammarText(const ToolGrammar& grammar, const Tokenizer& tokenizer) {
  if (grammar.lazy) return LazyText(grammar, tokenizer);
  CallRules calls(grammar.format, tokenizer);
  std::string any;
  for (const json::value& tool : grammar.tools) {
    ASSIGN_OR_RETURN(const std::string call, calls.Add(tool, {}));
    any += (any.empty() ? "" : " | ") + call;
  }
  const ToolFormat& format = grammar.format;
  const auto tags = format.tags();
  std::string start = calls.writer().Text(format.section[0], tags) + "call";
  if (grammar.parallel) {
    start += " (" + (format.write_between.empty() ? "" : LarkLiteral(format.write_between) + " ") +
             "call)*";
  }
  start += " " + calls.writer().Text(format.section[1], tags);
  if (grammar.otherwise == nullptr) {
    return fmt::format("start: {}\ncall: {}\n{}", start, any, calls.rules());
  }
  return fmt::format("start: calls | answer\ncalls: {}\ncall: {}\nanswer: %json {}\n{}", start, any,
                     json::serialize(OneLineSchema(*grammar.otherwise)), calls.rules());
}

std::string ChoiceGrammarText(const std::vector<std::string>& choices) {
  std::string start = "start: ";
  for (const std::string& choice : choices) {
    start += (start.size() > 7 ? " | " : "") + LarkLiteral(choice);
  }
  return start + "\n";
}

namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
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

  bool EndsLine(size_t at) const { return at >= source_.size() || source_[at] == '\n'; }

  // The number that so many hexadecimal digits are.
  Result<uint32_t> Hexadecimal(size_t at, size_t digits) const {
    uint32_t value = 0;
    const std::string_view text = source_.substr(at, digits);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || text.size() < digits || end != text.data() + digits) {
      return Wrong(fmt::format("\\{} needs {} hexadecimal digits", source_[at - 1], digits));
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      return Wrong(fmt::format("\\{}{} is no character of Unicode", source_[at - 1], text));
    }
    return value;
  }

  // The character at *at as it stands there; then *at is behind it.
  uint32_t Plain(size_t* at) const {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(source_[i]); };
    const unsigned char lead = byte((*at)++);
    const int more = lead < 0xc0 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    uint32_t value = more == 0 ? lead : lead & (0x3f >> more);
    for (int i = 0; i < more && *at < source_.size(); ++i) {
      value = value << 6 | (byte((*at)++) & 0x3f);
    }
    return value;
  }

  // The same, but it may be escaped.
  Result<uint32_t> Character(size_t* at) const {
    if (source_[*at] != '\\') return Plain(at);
    if (EndsLine(*at + 1)) return Wrong("a backslash stands at the end of a line");
    const char name = source_[*at + 1];
    *at += 2;
    if (name == 'n') return '\n';
    if (name == 'r') return '\r';
    if (name == 't') return '\t';
    const size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    if (digits > 0) {
      *at += digits;
      return Hexadecimal(*at - digits, digits);
    }
    if (IsNameByte(name) && name != '-' && name != '_') {
      return Wrong(fmt::format("\\{} is no escape; \\n, \\r, \\t, \\x, \\u and \\U are", name));
    }
    --*at;
    return Plain(at);
  }

  // As it stands in a string of Lark, which is one of JSON.
  static std::string InString(uint32_t c) {
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') return std::string(1, static_cast<char>(c));
    if (c < 0x10000) return fmt::format("\\u{:04x}", c);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
  }

  // As it stands in a class of a regular expression, where some signs have meanings.
  static std::string InClass(uint32_t c) {
    const bool plain = c < 0x80 && std::isalnum(static_cast<int>(c)) != 0;
    return plain ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{{{:x}}}", c);
  }

  Status String(char quote) {
    std::string text;
    size_t at = at_ + 1;
    while (!EndsLine(at) && source_[at] != quote) {
      ASSIGN_OR_RETURN(const uint32_t c, Character(&at));
      text += InString(c);
    }
    if (EndsLine(at)) return Wrong("a string has no end");
    out_ += text.empty() ? " (\"\")" : " \"" + text + "\" ";
    at_ = at + 1;
    return {};
  }

  // Characters and ranges; a minus that is first or last is one of them. \d, \s and \w are those of
  // regular expressions.
  Status Class() {
    std::string items;
    size_t at = at_ + 1;
    const bool negated = source_.substr(at).starts_with('^');
    if (negated) ++at;
    while (!EndsLine(at) && source_[at] != ']') {
      const std::string_view rest = source_.substr(at);
      if (rest.size() > 1 && rest[0] == '\\' &&
          std::string_view("dDsSwW").find(rest[1]) != std::string_view::npos) {
        items += rest.substr(0, 2);
        at += 2;
        continue;
      }
      ASSIGN_OR_RETURN(const uint32_t first, Character(&at));
      uint32_t last = first;
      if (!EndsLine(at + 1) && source_[at] == '-' && source_[at + 1] != ']') {
        ++at;
        ASSIGN_OR_RETURN(last, Character(&at));
      }
      if (last < first) return Wrong("a range of characters ends before it begins");
      items += InClass(first);
      if (last > first) items += "-" + InClass(last);
    }
    if (EndsLine(at)) return Wrong("a class of characters has no end");
    if (items.empty()) return Wrong("a class of characters is empty");
    out_ += fmt::format(" /[{}{}]/", negated ? "^" : "", items);
    at_ = at + 1;
    return {};
  }

  // A repetition: {2}, {2,}, {2,5}.
  Status Braces() {
    const size_t close = source_.find('}', at_);
    const size_t end = close == std::string_view::npos ? 0 : close + 1;
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
