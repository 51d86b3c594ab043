// Text as tokens, by the tokenizer and the template of the engine's checkpoint. Any thread.
#include <fmt/core.h>

#include "engine/engine.h"

namespace braid {

Result<std::vector<TokenId>> EncodeText(const Engine& engine, std::string_view text,
                                        bool add_special_tokens) {
  if (engine.tokenizer() == nullptr) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has no tokenizer: give token ids instead of text",
                             engine.options().model_dir)};
  }
  return engine.tokenizer()->Encode(text, add_special_tokens);
}

Result<RenderedPrompt> RenderPrompt(const Engine& engine, const json::object& context) {
  if (engine.chat_template() == nullptr) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has no chat template: use plain text or token ids",
                             engine.options().model_dir)};
  }
  RenderedPrompt prompt;
  ASSIGN_OR_RETURN(prompt.text, engine.chat_template()->Render(context));
  ASSIGN_OR_RETURN(prompt.tokens, EncodeText(engine, prompt.text, false));
  return prompt;
}

}  // namespace braid
