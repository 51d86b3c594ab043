// The same steps as the engines' server (server/serving/prepare.cc).
#include "router/placement/prompt_reader.h"

#include <variant>

#include "server/serving/chat_prompt.h"

namespace braid {

Result<PromptReader> PromptReader::Load(const std::string& model_dir) {
  ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(model_dir));
  PromptReader reader(std::move(tokenizer));
  Result<ChatTemplate> chat = ChatTemplate::Load(model_dir);
  if (chat) {
    reader.chat_ = *std::move(chat);
  } else if (chat.error().code != ErrorCode::kNotFound) {
    return chat.error();
  }
  return reader;
}

std::optional<std::vector<TokenId>> PromptReader::TokensOf(Endpoint endpoint,
                                                           std::string_view body) const {
  const auto parsed = ParseApiRequest(endpoint, body, {.vocabulary = tokenizer_.vocabulary_size()});
  if (!parsed) return {};
  const ApiRequest& request = *parsed;
  std::string text;
  bool special = false;
  if (IsChat(endpoint)) {
    if (!chat_) return {};
    auto rendered = RenderChat(*chat_, request);
    if (!rendered) return {};
    text = *std::move(rendered);
  } else {
    if (request.prompts.empty()) return {};
    const Prompt& prompt = request.prompts.front();
    if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) return *tokens;
    text = std::get<std::string>(prompt);
    special = request.add_special_tokens.value_or(true);
  }
  Result<std::vector<TokenId>> tokens = tokenizer_.Encode(text, special);
  if (!tokens) return {};
  return *std::move(tokens);
}

}  // namespace braid
