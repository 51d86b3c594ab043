// Where two prompts part, in tokens and in the client's own terms, and what the client could do so
// that the second reuses more of the first. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/api/api_request.h"
#include "text/tokens/tokenizer.h"

namespace braid {

// A request body as the model reads it.
struct PromptSide {
  ApiRequest request;
  std::string text;  // rendered, or decoded when token ids were given
  std::vector<TokenId> tokens;
};

// What one side has where they part.
struct PromptPlace {
  std::string token;  // text of the first token that differs; empty at the prompt's end
  std::string where;  // "messages[1].content (user)", "what the template writes before messages[2]"
  std::string before, after;  // the text on both sides of the first byte that differs
};

struct PromptDifference {
  int32_t common_tokens = 0;  // equal from the start
  bool same = false;          // nothing differs
  PromptPlace first, second;
  std::vector<std::string> advice;  // what to change; at least one sentence
};

PromptDifference ComparePrompts(const Tokenizer& tokenizer, const PromptSide& first,
                                const PromptSide& second);

}  // namespace braid
