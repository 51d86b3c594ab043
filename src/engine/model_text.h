// What turns a model's text into tokens and back: of a directory, its files; of a GGUF file, or of
// a checkpoint that was made from one, what the metadata says. No weights are read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/chat/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace braid {

struct ModelText {
  std::optional<Tokenizer> tokenizer;  // none: the model takes and gives token ids alone
  std::optional<ChatTemplate> chat;    // none: chats are refused
  std::vector<TokenId> eos;            // tokens that end an answer, ascending
};

// `model`: as FindModel takes it. A directory may be without a config.json.
Result<ModelText> ReadModelText(const std::string& model);

}  // namespace braid
