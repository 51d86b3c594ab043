// Where a model that is or was a GGUF file has its tokenizer.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace braid {

// The metadata of the tokenizer of a GGUF file, or of a checkpoint that was made from one.
Result<json::object> GgufTokenizerOf(const std::string& model);

}  // namespace braid
