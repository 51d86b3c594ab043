// Finds the end of one JSON value in a stream, piece by piece, and passes the value on as it comes.
// Control characters inside strings, which models write but JSON forbids, are escaped.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace braid {

class JsonScanner {
 public:
  // Reads on in `text`; appends what belongs to the value to `value` and returns how many bytes
  // were taken. Fewer than all: the value has ended. Blanks before the value are taken and dropped.
  size_t Push(std::string_view text, std::string* value);

  bool started() const { return started_; }
  bool ended() const { return ended_; }
  bool in_string() const { return in_string_; }
  // What is missing to close objects and arrays, if the value stops outside a string.
  std::string MissingClosers() const;

 private:
  void StringByte(char c, std::string* value);

  std::string open_;  // the closers that are due, innermost last
  bool started_ = false, ended_ = false;
  bool in_string_ = false, escaped_ = false;
  bool scalar_ = false;  // a number or a word at the top: ends before a delimiter
};

// Appends one byte of a text as it stands in a JSON string.
void AppendJsonEscaped(char c, std::string* out);

}  // namespace braid
