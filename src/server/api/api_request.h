// The parsed body of every endpoint, checked against all limits that need no tokenizer. Absent
// values stay absent; prepare.cc applies defaults.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "server/api/api_error.h"
#include "server/api/limits.h"
#include "server/http/memory_budget.h"
#include "server/serving/response_store.h"
#include "text/grammar/grammar.h"

namespace braid {

// What a body asks for, and so which rows of the field table it may have. One bit each.
enum Endpoint : uint32_t {
  kChat = 1,
  kCompletions = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kApplyTemplate = 16,
  kResponses = 32,
  kMessages = 64,      // Anthropic's
  kCountTokens = 128,  // of such messages
  kParseCalls = 256,
  kSeparateReasoning = 512,
  kAbort = 1024,
  kPause = 2048,
  kFlush = 4096,
};

constexpr bool IsAnthropic(Endpoint endpoint) {
  return endpoint == kMessages || endpoint == kCountTokens;
}

// Conversations that the model answers, whatever the form of the request.
constexpr bool IsChat(Endpoint endpoint) {
  return endpoint == kChat || endpoint == kResponses || endpoint == kMessages ||
         endpoint == kCountTokens;
}

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired };

// What the answer must match, as one of the fields for it said.
struct WantedGrammar {
  GrammarKind kind = GrammarKind::kJsonSchema;
  json::value schema;  // kJsonSchema
  std::string source;  // the other kinds
  // Text with tagged parts, kLark: {"structures": [{"begin", "schema", "end"}, …], "triggers":
  // […]}.
  json::value structural = nullptr;
  std::string path = {};  // the field, for errors
  bool strict = true;     // what cannot be enforced is refused, not dropped
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

// An item of a Responses request: sent, or of the store.
struct InputItem {
  json::object value;
  std::string stored_id = {};  // empty: it was sent
};

struct ApiRequest {
  Endpoint endpoint = kChat;
  std::string model;  // empty: not given

  // What is to be continued.
  std::vector<Prompt> prompts;  // completions, tokenize
  json::array messages;         // chat, tokenize, apply_template: in the template's form
  // Where each message stood in the body, for errors: "messages[3]", "input[5]".
  std::vector<std::string> message_paths;
  std::string system;  // stands before the messages; responses and messages
  std::vector<InputItem> previous_items, input_items;  // responses; `messages` are made of them
  std::string previous_response_id;
  size_t stored_bytes = 0;  // of those items that were stored
  // Of the memory that preparing these takes; null: none.
  std::unique_ptr<MemoryBudget::Hold> stored_hold;
  json::array tools;
  json::object template_values;  // chat_template_kwargs and what belongs there
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::vector<std::string> allowed_tools;  // those that may be called; empty: all
  json::value tool_choice_sent = nullptr;  // as it came
  std::optional<bool> add_generation_prompt;
  std::optional<bool> continue_final_message;
  std::optional<bool> add_special_tokens;
  std::vector<TokenId> tokens;  // detokenize
  // What the helpers take: a model's text and how to read it; the id of a request to end.
  std::string text, parser, request_id;
  std::optional<bool> abort_all, memory_only;

  // How a token is chosen.
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, seed, n, best_of;
  std::optional<int64_t> draft_tokens;  // for each step at most; the engine may allow fewer
  std::vector<std::pair<TokenId, float>> logit_bias;

  std::optional<WantedGrammar> grammar;
  std::optional<bool> enable_thinking;
  std::optional<int64_t> thinking_budget;  // tokens; -1: any number

  // When to stop.
  std::optional<int64_t> max_tokens, max_completion_tokens, min_tokens;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::optional<bool> ignore_eos, include_stop_str_in_output;

  // What to return.
  std::optional<bool> stream, echo, skip_special_tokens, return_token_ids;
  std::optional<bool> include_usage, continuous_usage;
  std::optional<bool> separate_reasoning, include_reasoning, parallel_tool_calls;
  std::optional<bool> wants_logprobs;  // chat's `logprobs`
  std::optional<int64_t> logprobs;     // how many alternatives
  std::optional<int64_t> prompt_logprobs;
  bool explain_reuse = false;  // braid.explain
  std::optional<bool> store;   // responses: keep it for later requests; the default is to
  json::object metadata;       // comes back as it was sent

  std::string cache_salt;  // prompts share the prefix cache with those of the same salt only
};

// The stored responses that a request may refer to.
struct OwnResponses {
  const ResponseStore* store = nullptr;  // null: there are none
  std::string key = {};                  // the name of the client's key
  size_t bytes_max = 0;                  // of the items that one request refers to
  MemoryBudget* memory = nullptr;        // pays for preparing them; null: it is not counted
};

// What the limits depend on.
struct RequestLimits {
  int64_t vocabulary = 0;
  int64_t answers_max = limits::kAnswersMax;  // of one request: prompts times n
  OwnResponses responses = {};
};

// Parses and checks a body. Fields without a row in the field table are errors.
Result<ApiRequest, ApiError> ParseApiRequest(Endpoint endpoint, std::string_view body,
                                             const RequestLimits& limits);

}  // namespace braid
