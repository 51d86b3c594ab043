// The tokens that engines make of a request's prompt, by the tokenizer and the chat template of
// their checkpoint. With them the router knows the blocks of a text as engines know them. Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "server/api/api_request.h"
#include "text/chat/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace braid {

class PromptReader {
 public:
  // Of a checkpoint's directory, which needs no weights.
  static Result<PromptReader> Load(const std::string& model_dir);
  // nullopt: engines refuse the request, or it goes on from what is stored at one of them.
  std::optional<std::vector<TokenId>> TokensOf(Endpoint endpoint, std::string_view body) const;

 private:
  explicit PromptReader(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;  // none: chats are refused
};

}  // namespace braid
