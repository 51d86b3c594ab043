// One byte at a time, no looking back.
#include "text/answer/json_scanner.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace braid {
namespace {

bool IsJsonBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

void AppendControl(char c, std::string* out) {
  switch (c) {
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  }
}

}  // namespace

void AppendJsonEscaped(char c, std::string* out) {
  if (static_cast<unsigned char>(c) < 0x20) return AppendControl(c, out);
  if (c == '"' || c == '\\') *out += '\\';
  *out += c;
}

void JsonScanner::StringByte(char c, std::string* value) {
  const bool escaped = std::exchange(escaped_, false);
  if (static_cast<unsigned char>(c) < 0x20) {  // a backslash before a real newline says nothing
    AppendControl(c, value);
    return;
  }
  if (escaped) *value += '\\';
  if (c == '\\' && !escaped) {
    escaped_ = true;  // passed on with what it escapes
    return;
  }
  *value += c;
  if (c == '"' && !escaped) {
    in_string_ = false;
    ended_ = open_.empty();
  }
}

size_t JsonScanner::Push(std::string_view text, std::string* value) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (ended_) return i;
    if (in_string_) {
      StringByte(c, value);
      continue;
    }
    if (!started_ && IsJsonBlank(c)) continue;
    // No value goes on with these: it was left unfinished.
    const bool stray = c == '<' || ((c == '}' || c == ']' || c == ',') && open_.empty());
    if (stray || (scalar_ && IsJsonBlank(c))) {
      ended_ = true;
      return i;
    }
    started_ = true;
    *value += c;
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      open_ += c == '{' ? '}' : ']';
    } else if (c == '}' || c == ']') {
      open_.pop_back();
      ended_ = open_.empty();
    } else if (open_.empty()) {
      scalar_ = true;
    }
  }
  return text.size();
}

std::string JsonScanner::MissingClosers() const {
  return in_string_ ? std::string() : std::string(open_.rbegin(), open_.rend());
}

}  // namespace braid
