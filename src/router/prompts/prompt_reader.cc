// The same steps as the engines' server (server/serving/prepare.cc).
#include "router/prompts/prompt_reader.h"

#include <string>
#include <variant>

#include "server/serving/chat_prompt.h"

namespace braid {

std::optional<std::vector<TokenId>> PromptReader::TokensOf(Endpoint endpoint,
                                                           std::string_view body,
                                                           std::string_view tenant) const {
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
  Result<std::vector<TokenId>> tokens =
      tokenizer_.Encode(text, special, {.tenant = tenant, .salt = request.cache_salt});
  if (!tokens) return {};
  return *std::move(tokens);
}

}  // namespace braid
