// The tokens that engines make of a request's prompt, by the tokenizer and the chat template of
// their checkpoint. With them the router knows the blocks of a text as engines know them. Any
// thread.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "server/api/api_request.h"
#include "text/chat/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace braid {

class PromptReader {
 public:
  // `chat`: none: chats are refused.
  PromptReader(Tokenizer tokenizer, std::optional<ChatTemplate> chat)
      : tokenizer_(std::move(tokenizer)), chat_(std::move(chat)) {}
  // nullopt: engines refuse the request, or it goes on from what is stored at one of them.
  std::optional<std::vector<TokenId>> TokensOf(Endpoint endpoint, std::string_view body,
                                               std::string_view tenant) const;
  LongTextStats long_texts() const { return tokenizer_.long_texts(); }

 private:
  Tokenizer tokenizer_;
  std::optional<ChatTemplate> chat_;
};

}  // namespace braid
