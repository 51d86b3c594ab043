// The prompt of a request's body in a file, as the server would make it: the chat's template
// applied, text as tokens.
#pragma once

#include <string>

#include "base/result.h"
#include "server/api/prompt_difference.h"
#include "text/tokens/tokenizer.h"

namespace braid {

// `model_dir`: whose template renders a chat.
Result<PromptSide> ReadPromptFile(const std::string& path, const std::string& model_dir,
                                  const Tokenizer& tokenizer, int32_t vocabulary);

}  // namespace braid
