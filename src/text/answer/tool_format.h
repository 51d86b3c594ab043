// How models write tool calls: one row of data per format, read by one parser (tool_call.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace braid {

struct ToolFormat {
  enum class Body : uint8_t {
    kJsonCall,       // OPEN {"name": …, "arguments": {…}} CLOSE
    kJsonArguments,  // OPEN [name_prefix]NAME[:INDEX] name_end {…} CLOSE
    kParameters,     // OPEN name_begin NAME name_end (KEY VALUE)* CLOSE
  };
  std::string_view name;
  std::string_view aliases;                  // other servers' names, with blanks between
  std::array<std::string_view, 2> evidence;  // a template of this format contains all of these
  Body body;
  std::array<std::string_view, 2> open;     // either begins a call; the second may be empty
  std::string_view close;                   // ends one
  std::array<std::string_view, 2> section;  // stand around all calls and are dropped; or empty
  std::string_view name_prefix = {};        // dropped from the name
  std::string_view name_begin = {}, name_end = {};
  std::string_view name_tag = {};  // a tag within name_prefix

  std::string_view key_begin = {}, key_end = {}, value_begin = {}, value_end = {};
  std::string_view body_end = {};  // after the last parameter
  bool value_newlines = false;     // one newline on either side of a value is not part of it
  bool id_in_header = false;       // the text before the arguments is the call's id

  // How a call is written where a grammar forces it: {NAME} is the tool's name, {N} a number;
  // arguments, or keys and values, stand between begin and end.
  std::string_view write_begin = {}, write_end = {}, write_between = {};

  // Those that may be tokens of their own.
  std::array<std::string_view, 13> tags() const {
    return {open[0],   open[1],     close,     section[0], section[1], name_begin, name_end,
            key_begin, value_begin, value_end, key_end,    body_end,   name_tag};
  }
};

// All formats (families/); detection takes the first row whose evidence is in the template.
std::span<const ToolFormat> ToolFormats();

// The format that a chat template teaches; null if none.
const ToolFormat* DetectToolFormat(std::string_view chat_template);

// By name or alias; null if there is none.
const ToolFormat* FindToolFormat(std::string_view name);

// The names, with ", " between: for messages.
std::string ToolFormatNames();

}  // namespace braid
