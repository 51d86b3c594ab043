// See the header.
#include "cli/command/prompt_file.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/system/file.h"
#include "server/api/limits.h"
#include "server/serving/prepare.h"
#include "text/chat/chat_template.h"

namespace braid {
namespace {

Error AsError(const ApiError& error, const std::string& path) {
  return {ErrorCode::kInvalid, fmt::format("{}: {}", path, error.message)};
}

}  // namespace

Result<PromptSide> ReadPromptFile(const std::string& path, const std::string& model_dir,
                                  const Tokenizer& tokenizer, int32_t vocabulary) {
  ASSIGN_OR_RETURN(const std::string body, ReadFile(path, limits::kBodyBytesMax));
  ASSIGN_OR_RETURN(const json::value value, ParseJson(body, path));
  const bool chat = value.is_object() && value.get_object().contains("messages");
  auto parsed = ParseApiRequest(chat ? kChat : kCompletions, body, {.vocabulary = vocabulary});
  if (!parsed) return AsError(parsed.error(), path);
  PromptSide side{.request = *std::move(parsed), .text = {}, .tokens = {}};
  bool add_special_tokens = false;
  if (chat) {
    ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::Load(model_dir));
    auto text = RenderChat(chat_template, side.request);
    if (!text) return AsError(text.error(), path);
    side.text = *std::move(text);
  } else if (side.request.prompts.size() != 1) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: has {} prompts; give one of them in a file of its own", path,
                             side.request.prompts.size())};
  } else if (const auto* ids = std::get_if<std::vector<TokenId>>(&side.request.prompts[0])) {
    side.tokens = *ids;
    side.text = tokenizer.Decode(*ids, false);
    return side;
  } else {
    side.text = std::get<std::string>(side.request.prompts[0]);
    add_special_tokens = side.request.add_special_tokens.value_or(true);
  }
  ASSIGN_OR_RETURN(side.tokens, tokenizer.Encode(side.text, add_special_tokens));
  return side;
}

}  // namespace braid
