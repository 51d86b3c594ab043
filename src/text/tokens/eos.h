// The ids that end an answer.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokens/tokenizer.h"

namespace braid {

// The union, ascending, of eos_token_id in config.json (also in its text_config) and in
// generation_config.json (each a number or a list) and of eos_token in tokenizer_config.json.
// Files that do not exist are skipped; `tokenizer` may be null, then the last is skipped too.
Result<std::vector<TokenId>> EosTokens(const std::string& model_dir, const Tokenizer* tokenizer);

}  // namespace braid
