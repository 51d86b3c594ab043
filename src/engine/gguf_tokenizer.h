// Where a model that is or was a GGUF file has its tokenizer.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "text/tokens/gguf_text.h"

namespace braid {

// Of a GGUF file, or of a checkpoint that was made from one; nullopt: it has none.
Result<std::optional<GgufText>> GgufTextOf(const std::string& model);

}  // namespace braid
