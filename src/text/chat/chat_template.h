// Conversations to prompts by the checkpoint's own Jinja chat template, rendered as transformers
// does (trim_blocks, lstrip_blocks, its tojson, raise_exception, strftime_now). Immutable after
// Load; Render may run on several threads at once. Instructions, output, recursion and time of a
// template are bounded, what it keeps in variables only by its instructions, 64 bytes each; so
// templates come with the checkpoint and never from a request.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace braid {

class ChatTemplate {
 public:
  static constexpr int64_t kRenderSecondsMax = 2;

  // model_dir/chat_template.jinja, else "chat_template" of tokenizer_config.json (a string, or a
  // list of {name, template}, of which "default", and "tool_use" when tools are given, are used).
  // kNotFound if the checkpoint has none; kInvalid with a line number if it does not parse.
  static Result<ChatTemplate> Load(const std::string& model_dir);

  // `special_tokens` are added to every context: {"eos_token": "<|im_end|>", …}. `sorts_tools`:
  // the model's tokenizer class sorts the keys of tools before it renders them.
  static Result<ChatTemplate> FromSource(std::string source, json::object special_tokens,
                                         bool sorts_tools = false);

  // `context` is an object: messages (see NormalizeMessages), tools, add_generation_prompt, and
  // what the template itself knows (enable_thinking, …). tools defaults to null and
  // add_generation_prompt to false. A raise_exception in the template is kInvalid with its text.
  Result<std::string> Render(const json::value& context) const;

  // Its text; of both where a checkpoint has one of its own for tools.
  std::string Source() const { return source_ + tool_source_; }

 private:
  ChatTemplate() = default;
  std::string source_;
  std::string tool_source_;  // empty: source_ serves requests with tools too
  json::object special_tokens_;
  bool sorts_tools_ = false;  // by key, at every depth
};

// Brings OpenAI-style messages into the form templates expect: an array of objects with a string
// role; content parts of type "text" joined to one string (other parts are refused); the arguments
// of tool calls parsed from their JSON string to an object, or left as text where that is none.
// Errors carry the path ("messages[2].content").
Result<json::array> NormalizeMessages(const json::value& messages);

}  // namespace braid
