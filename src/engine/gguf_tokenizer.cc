// A directory has it in a file of its own; none: an empty object.
#include "engine/gguf_tokenizer.h"

#include <fmt/core.h>

#include <utility>

#include "base/json.h"
#include "base/system/file.h"
#include "model/checkpoint/gguf_file.h"

namespace braid {
namespace {

Result<json::object> MetadataOf(const std::string& model) {
  if (!IsDirectory(model)) return ReadGgufTokenizer(model);
  const std::string path = fmt::format("{}/{}", model, kGgufTokenizerFile);
  if (!FileExists(path)) return json::object();
  ASSIGN_OR_RETURN(json::value metadata, ReadJsonFile(path));
  if (metadata.is_object()) return std::move(metadata.get_object());
  return Error{ErrorCode::kInvalid, path + ": is no JSON object"};
}

}  // namespace

Result<std::optional<GgufText>> GgufTextOf(const std::string& model) {
  ASSIGN_OR_RETURN(const json::object metadata, MetadataOf(model));
  Result<std::optional<GgufText>> text = ReadGgufText(metadata);
  if (text) return text;
  const Error& error = text.error();
  return Error{error.code, model + ": " + error.message, error.field};
}

}  // namespace braid
