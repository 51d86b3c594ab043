// See the header.
#include "cli/command/prompt_file.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/system/file.h"
#include "model/families/families.h"
#include "server/api/limits.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

Error AsError(const ApiError& error, const std::string& path) {
  return {ErrorCode::kInvalid, fmt::format("{}: {}", path, error.message)};
}

}  // namespace

Result<PromptModel> ReadPromptModel(const std::string& model) {
  ASSIGN_OR_RETURN(const std::string path, FindModel(model));
  PromptModel read;
  if (IsDirectory(path)) {
    ASSIGN_OR_RETURN(read.spec, ReadModelSpec(path));
  } else {
    ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(path));
    read.spec = std::move(opened.spec);
  }
  ASSIGN_OR_RETURN(read.text, ReadModelText(path));
  if (read.text.tokenizer) return read;
  return Error{ErrorCode::kNotFound,
               model +
                   " has no tokenizer: neither tokenizer.json nor tiktoken.model, nor one in "
                   "the metadata of a GGUF file"};
}

Result<PromptSide> ReadPromptFile(const std::string& path, const PromptModel& model) {
  const Tokenizer& tokenizer = *model.text.tokenizer;
  ASSIGN_OR_RETURN(const std::string body, ReadFile(path, limits::kBodyBytesMax));
  ASSIGN_OR_RETURN(const json::value value, ParseJson(body, path));
  const bool chat = value.is_object() && value.get_object().contains("messages");
  auto parsed =
      ParseApiRequest(chat ? kChat : kCompletions, body, {.vocabulary = model.spec.vocabulary});
  if (!parsed) return AsError(parsed.error(), path);
  PromptSide side{.request = *std::move(parsed), .text = {}, .tokens = {}};
  bool add_special_tokens = false;
  if (chat) {
    if (!model.text.chat) {
      return Error{ErrorCode::kInvalid,
                   path + ": is a chat, and the model has no chat template; give a prompt"};
    }
    auto text = RenderChat(*model.text.chat, side.request);
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
