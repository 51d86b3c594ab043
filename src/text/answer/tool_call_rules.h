// Rules of a grammar in Lark for tool calls, as a format writes them (tool_format.h). Tags that are
// special tokens are named by their ids, for their text is not theirs to be written.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "text/answer/tool_format.h"
#include "text/tokens/tokenizer.h"

namespace braid {

// A text as a literal of Lark.
std::string LarkLiteral(std::string_view text);

// Makes rules out of texts and tags.
class LarkWriter {
 public:
  explicit LarkWriter(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // A text in which each of `tags` may be a token of its own.
  std::string Text(std::string_view text, std::span<const std::string_view> tags) const;
  // The id of a tag that is a special token.
  std::optional<TokenId> Special(std::string_view tag) const;

 private:
  const Tokenizer& tokenizer_;
};

// The rules of one call of each tool. Arguments match the tool's "parameters", of which only what
// grammars enforce may be left (schema_rules.h); those of a tool without are any object.
class CallRules {
 public:
  CallRules(const ToolFormat& format, const Tokenizer& tokenizer);

  struct Options {
    std::string_view behind = {};  // the part of the call that was written already: its opening tag
    bool any_arguments = false;    // whatever "parameters" says
  };
  // Adds the rules and returns the name of the first. kInvalid: the tool is strict, and the format,
  // which writes parameters without JSON around them, cannot hold something of its schema.
  Result<std::string> Add(const json::value& tool, const Options& options);

  const std::string& rules() const { return rules_; }
  const LarkWriter& writer() const { return writer_; }

 private:
  struct Parameter {
    std::string rule;   // prefix of names
    std::string open;   // what stands before the value
    std::string close;  // and behind it
    const json::value& schema;
    const json::value& root;
    bool strict = false;
  };
  std::string Filled(std::string_view pattern, std::string_view name) const;
  Result<std::string> Parameters(const std::string& rule, const json::value& tool);
  Status AddParameter(const Parameter& parameter);
  Result<std::string> Texts(const json::value& schema, const Parameter& parameter) const;
  void AddAnyParameter();

  const ToolFormat& format_;
  const LarkWriter writer_;
  const std::array<std::string_view, 13> tags_;
  std::string rules_;
  int count_ = 0;
  bool has_any_parameter_ = false;
};

}  // namespace braid
