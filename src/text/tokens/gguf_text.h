// Tokenizer, end tokens and chat template from a GGUF file's metadata. The tokenizer
// becomes the content of a tokenizer.json, which is checked and loaded like any other. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/chat/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace braid {

struct GgufText {
  Tokenizer tokenizer;
  std::vector<TokenId> eos;  // of text and of a turn, ascending
  std::optional<ChatTemplate> chat_template;
};

// `metadata` holds the keys that begin with "tokenizer.". nullopt when they hold no tokenizer. A
// kind of tokenizer, or a way to split words, that is not known is an Error.
Result<std::optional<GgufText>> ReadGgufText(const json::object& metadata);

}  // namespace braid
