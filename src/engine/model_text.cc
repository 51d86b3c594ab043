// GGUF metadata first; files beside a GGUF file stand in for what it does not have.
#include "engine/model_text.h"

#include <fmt/core.h>

#include <utility>

#include "base/json.h"
#include "base/system/file.h"
#include "model/checkpoint/gguf_file.h"
#include "model/families/families.h"
#include "text/tokens/eos.h"
#include "text/tokens/gguf_text.h"

namespace braid {
namespace {

// A directory has it in a file of its own; none: an empty object.
Result<json::object> MetadataOf(const std::string& model) {
  if (!IsDirectory(model)) return ReadGgufTokenizer(model);
  const std::string path = fmt::format("{}/{}", model, kGgufTokenizerFile);
  if (!FileExists(path)) return json::object();
  ASSIGN_OR_RETURN(json::value metadata, ReadJsonFile(path));
  if (metadata.is_object()) return std::move(metadata.get_object());
  return Error{ErrorCode::kInvalid, path + ": is no JSON object"};
}

Result<std::optional<GgufText>> GgufTextOf(const std::string& model) {
  ASSIGN_OR_RETURN(const json::object metadata, MetadataOf(model));
  Result<std::optional<GgufText>> text = ReadGgufText(metadata);
  if (text) return text;
  const Error& error = text.error();
  return Error{error.code, model + ": " + error.message, error.field};
}

}  // namespace

Result<ModelText> ReadModelText(const std::string& model) {
  ASSIGN_OR_RETURN(const std::string path, FindModel(model));
  ASSIGN_OR_RETURN(std::optional<GgufText> inside, GgufTextOf(path));
  if (inside) {
    return ModelText{std::move(inside->tokenizer), std::move(inside->chat_template),
                     std::move(inside->eos)};
  }
  ModelText text;
  const std::string directory = DirectoryOf(path);
  if (Tokenizer::IsIn(directory)) {
    ASSIGN_OR_RETURN(text.tokenizer, Tokenizer::Load(directory));
    Result<ChatTemplate> chat = ChatTemplate::Load(directory);
    if (chat) {
      text.chat = *std::move(chat);
    } else if (chat.error().code != ErrorCode::kNotFound) {
      return chat.error();
    }
  }
  ASSIGN_OR_RETURN(text.eos, EosTokens(directory, text.tokenizer ? &*text.tokenizer : nullptr));
  return text;
}

}  // namespace braid
