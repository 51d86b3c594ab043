// The prompt of a request's body in a file, as the server would make it: the chat's template
// applied, text as tokens.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/model_text.h"
#include "model/spec.h"
#include "server/api/prompt_difference.h"

namespace braid {

// Of a model as FindModel takes it; the weights of a directory need not be there.
struct PromptModel {
  ModelSpec spec;
  ModelText text;  // has a tokenizer
};
Result<PromptModel> ReadPromptModel(const std::string& model);

Result<PromptSide> ReadPromptFile(const std::string& path, const PromptModel& model);

}  // namespace braid
