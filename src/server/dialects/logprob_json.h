// Log-probabilities in the three forms that clients know.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "scheduler/request.h"
#include "text/tokens/tokenizer.h"

namespace braid {

// A token as text: its bytes if they are UTF-8, else "bytes:\xe2\x82", so that different tokens
// keep different names; "token_id:7" without a tokenizer.
std::string TokenName(const Tokenizer* tokenizer, TokenId token);

// Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs": […]}, …]}.
json::object ChatLogprobs(const Tokenizer* tokenizer, std::span<const TokenLogprob> entries,
                          int32_t top);

// Completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, one row after the
// other.
class LegacyLogprobs {
 public:
  LegacyLogprobs(const Tokenizer* tokenizer, int32_t top) : tokenizer_(tokenizer), top_(top) {}

  // The first token of a prompt has no distribution.
  void AddFirst(TokenId token, int64_t text_offset);
  void Add(const TokenLogprob& entry, int64_t text_offset);
  json::object Take();

 private:
  const Tokenizer* tokenizer_;
  int32_t top_;
  json::array tokens_, logprobs_, tops_, offsets_;
};

// The field prompt_logprobs: null, then {"TOKEN ID": {"logprob", "rank", "decoded_token"}} for each
// further prompt token; rank is null where it is not known.
json::array PromptLogprobs(const Tokenizer* tokenizer, std::span<const TokenLogprob> entries,
                           int32_t top);

}  // namespace braid
