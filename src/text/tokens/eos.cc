// Three files may name the ids that end an answer; none of them is always complete.
#include "text/tokens/eos.h"

#include <limits>
#include <optional>
#include <set>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {
namespace {

// Adds a number or a list of numbers; null adds nothing.
Status AddIds(const json::value& value, const std::string& file, std::set<TokenId>* ids) {
  if (value.is_null()) return {};
  if (value.is_array()) {
    for (const json::value& item : value.get_array()) RETURN_IF_ERROR(AddIds(item, file, ids));
    return {};
  }
  const bool fits = value.is_int64() && value.get_int64() >= 0 &&
                    value.get_int64() <= std::numeric_limits<TokenId>::max();
  if (!fits) {
    return Error{ErrorCode::kInvalid,
                 file + ": eos_token_id is " + JsonExcerpt(value) +
                     ", expected a token id or a list of token ids",
                 "eos_token_id"};
  }
  ids->insert(static_cast<TokenId>(value.get_int64()));
  return {};
}

// The object in a file; nothing if there is no such file.
Result<std::optional<json::object>> ReadObject(const std::string& path) {
  if (!FileExists(path)) return std::optional<json::object>();
  ASSIGN_OR_RETURN(json::value value, ReadJsonFile(path));
  if (!value.is_object()) {
    return Error{ErrorCode::kInvalid,
                 path + " is " + std::string(JsonKindName(value)) + ", expected an object"};
  }
  return std::optional<json::object>(std::move(value.get_object()));
}

Status AddFromFile(const std::string& path, std::set<TokenId>* ids) {
  ASSIGN_OR_RETURN(const std::optional<json::object> file, ReadObject(path));
  if (!file) return {};
  if (const json::value* eos = file->if_contains("eos_token_id")) {
    RETURN_IF_ERROR(AddIds(*eos, path, ids));
  }
  const json::value* text = file->if_contains("text_config");
  if (text == nullptr || !text->is_object()) return {};
  if (const json::value* eos = text->get_object().if_contains("eos_token_id")) {
    RETURN_IF_ERROR(AddIds(*eos, path, ids));
  }
  return {};
}

Status AddFromTokenizerConfig(const std::string& path, const Tokenizer& tokenizer,
                              std::set<TokenId>* ids) {
  ASSIGN_OR_RETURN(const std::optional<json::object> file, ReadObject(path));
  if (!file) return {};
  const json::value* eos = file->if_contains("eos_token");
  if (eos != nullptr && eos->is_object()) eos = eos->get_object().if_contains("content");
  if (eos == nullptr || eos->is_null()) return {};
  if (!eos->is_string()) {
    return Error{ErrorCode::kInvalid,
                 path + ": eos_token is " + JsonExcerpt(*eos) +
                     ", expected a string or an object with content",
                 "eos_token"};
  }
  const std::optional<TokenId> id = tokenizer.TokenToId(std::string_view(eos->get_string()));
  if (!id) {
    return Error{ErrorCode::kInvalid,
                 path + ": eos_token " + JsonExcerpt(*eos) + " is not in tokenizer.json",
                 "eos_token"};
  }
  ids->insert(*id);
  return {};
}

}  // namespace

Result<std::vector<TokenId>> EosTokens(const std::string& model_dir, const Tokenizer* tokenizer) {
  std::set<TokenId> ids;
  RETURN_IF_ERROR(AddFromFile(model_dir + "/config.json", &ids));
  RETURN_IF_ERROR(AddFromFile(model_dir + "/generation_config.json", &ids));
  if (tokenizer != nullptr) {
    const std::string path = model_dir + "/tokenizer_config.json";
    RETURN_IF_ERROR(AddFromTokenizerConfig(path, *tokenizer, &ids));
  }
  return std::vector<TokenId>(ids.begin(), ids.end());
}

}  // namespace braid
