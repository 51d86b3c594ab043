// The one request object of all routes: what the body said, checked against every limit that can be
// checked without the tokenizer. Absent values stay absent; defaults are applied in prepare.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "server/api_error.h"

namespace braid {

enum Route : uint32_t {
  kChat = 1,
  kCompletions = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kApplyTemplate = 16,
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct ApiRequest {
  Route route = kChat;
  std::string model;  // empty: not given

  // What is to be continued.
  std::vector<Prompt> prompts;  // completions, tokenize
  json::array messages;         // chat, tokenize, apply_template: in the template's form
  json::array tools;
  json::object template_values;  // chat_template_kwargs and what belongs there
  bool use_tools = true;         // false with tool_choice "none"
  std::optional<bool> add_generation_prompt;
  std::optional<bool> continue_final_message;
  std::optional<bool> add_special_tokens;
  std::vector<TokenId> tokens;  // detokenize

  // How a token is chosen.
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, seed, n, best_of;
  std::vector<std::pair<TokenId, float>> logit_bias;

  // When to stop.
  std::optional<int64_t> max_tokens, max_completion_tokens, min_tokens;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::optional<bool> ignore_eos, include_stop_str_in_output;

  // What to return.
  std::optional<bool> stream, echo, skip_special_tokens, return_token_ids;
  std::optional<bool> include_usage, continuous_usage;
  std::optional<bool> separate_reasoning, parallel_tool_calls;
  std::optional<bool> wants_logprobs;  // chat's `logprobs`
  std::optional<int64_t> logprobs;     // how many alternatives
  std::optional<int64_t> prompt_logprobs;
  bool explain_reuse = false;  // braid.explain

  std::string cache_salt;  // prompts share the prefix cache with those of the same salt only
};

// What the limits depend on.
struct RequestLimits {
  int32_t vocabulary = 0;
  int32_t choices_max = 8;
};

// Parses and checks a body. Keys that no rule knows are added to `unknown`.
OrRefusal<ApiRequest> ParseApiRequest(Route route, std::string_view body,
                                      const RequestLimits& limits,
                                      std::vector<std::string>* unknown);

}  // namespace braid
