// Boost.JSON parses; this file enforces the limits.
#include "base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <set>

#include "base/system/file.h"
#include "base/text/cut_text.h"
#include "base/text/written_json.h"

namespace braid {
namespace {

// Boost silently keeps the last of duplicate keys, so a second scan of the text collects the keys
// of each object.
class DuplicateKeyScan {
 public:
  explicit DuplicateKeyScan(std::string_view text) : text_(text) {}

  // The first duplicate key, or an empty string. `text_` is known to be valid JSON.
  std::string Find() {
    std::vector<std::set<std::string_view>> objects;
    std::vector<bool> is_object;
    bool expect_key = false;
    for (size_t i = 0; i < text_.size(); ++i) {
      char c = text_[i];
      if (c == '{') {
        objects.emplace_back();
        is_object.push_back(true);
        expect_key = true;
      } else if (c == '[') {
        is_object.push_back(false);
        expect_key = false;
      } else if (c == '}' || c == ']') {
        if (is_object.back()) objects.pop_back();
        is_object.pop_back();
        expect_key = false;
      } else if (c == ',') {
        expect_key = !is_object.empty() && is_object.back();
      } else if (c == '"') {
        size_t end = StringEnd(i);
        std::string_view body = text_.substr(i + 1, end - i - 1);
        if (expect_key && !objects.back().insert(body).second) return std::string(body);
        expect_key = false;
        i = end;
      }
    }
    return {};
  }

 private:
  size_t StringEnd(size_t open) const {
    size_t i = open + 1;
    while (text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    return i;
  }

  std::string_view text_;
};

// Builds a value as json::parser does, but with the nearest double: Boost's own are an ulp off for
// about one in nine decimals of 16 digits. Boost calls it, by these names.
struct ValueBuilder {
  using View = json::string_view;
  using Code = json::error_code;
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return true; }
  bool on_object_end(size_t count, Code&) { return stack.push_object(count), true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(size_t count, Code&) { return stack.push_array(count), true; }
  bool on_key_part(View part, size_t, Code&) { return stack.push_chars(part), true; }
  bool on_key(View rest, size_t, Code&) { return stack.push_key(rest), true; }
  bool on_string_part(View part, size_t, Code&) { return stack.push_chars(part), true; }
  bool on_string(View rest, size_t, Code&) { return stack.push_string(rest), true; }
  bool on_number_part(View, Code&) { return true; }
  bool on_int64(int64_t number, View, Code&) { return stack.push_int64(number), true; }
  bool on_uint64(uint64_t number, View, Code&) { return stack.push_uint64(number), true; }
  // `digits` are the whole number, for the text is written in one piece. Out of range, `number`
  // stays Boost's: zero, an infinity, or the NaN of 0e400.
  bool on_double(double number, View digits, Code&) {
    if (!std::isnan(number)) {
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
    }
    return stack.push_double(number), true;
  }
  bool on_bool(bool truth, Code&) { return stack.push_bool(truth), true; }
  bool on_null(Code&) { return stack.push_null(), true; }
  bool on_comment_part(View, Code&) { return true; }
  bool on_comment(View, Code&) { return true; }

  json::value_stack stack;
};

// Boost makes an infinity of 1e400, which has no text in JSON.
bool AllFinite(const json::value& value) {
  if (value.is_double()) return std::isfinite(value.get_double());
  if (value.is_array()) return std::ranges::all_of(value.get_array(), AllFinite);
  if (!value.is_object()) return true;
  return std::ranges::all_of(value.get_object(),
                             [](const auto& member) { return AllFinite(member.value()); });
}

}  // namespace

Result<json::value> ParseWrittenJson(std::string_view text, std::string_view what,
                                     JsonLimits limits) {
  if (text.size() > limits.bytes_max) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: {} bytes of JSON, at most {} are accepted",
                                                  what, text.size(), limits.bytes_max)};
  }
  json::parse_options options;
  options.max_depth = limits.depth_max;
  json::error_code ec;
  json::basic_parser<ValueBuilder> parser(options);
  json::value_stack& stack = parser.handler().stack;
  stack.reset();
  size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    ec = json::error::extra_data;
  }
  if (ec) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: not valid JSON near byte {}: {}", what, used, ec.message())};
  }
  json::value value = stack.release();
  if (!AllFinite(value)) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: a number is larger than a double can be (1.8e308)", what)};
  }
  return value;
}

Result<json::value> ParseJson(std::string_view text, std::string_view what, JsonLimits limits) {
  ASSIGN_OR_RETURN(json::value value, ParseWrittenJson(text, what, limits));
  if (std::string key = DuplicateKeyScan(text).Find(); !key.empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: the key \"{}\" appears twice in one object", what, key), key};
  }
  return value;
}

Result<json::value> ReadJsonFile(const std::string& path, JsonLimits limits) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, limits.bytes_max));
  return ParseJson(text, path, limits);
}

std::string_view JsonKindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "unknown";
}

std::string JsonExcerpt(const json::value& value, size_t bytes_max) {
  // The library would write 5.5 as 5.5E0.
  std::string text =
      value.is_double() ? fmt::format("{}", value.get_double()) : json::serialize(value);
  if (text.size() <= bytes_max) return text;
  return std::string(CutText(text, bytes_max)) + "…";
}

}  // namespace braid
