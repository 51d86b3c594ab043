// How the APIs write answers: the same deltas as OpenAI's chunks, the Responses API's events or
// Anthropic's. One per request, network thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/dialects/responses_input.h"
#include "server/serving/generation.h"

namespace braid {

// That and how a response is stored.
struct StoreOrder {
  ResponseStore& store;
  std::string key;  // the name of the client's
  std::vector<UnnamedItem> input;
};

// What of the request shapes the answer.
struct AnswerShape {
  Endpoint endpoint = kChat;
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // every chunk with the usage so far
  bool echo = false;
  bool return_token_ids = false;
  bool explain_reuse = false;
  int32_t logprobs = -1;                 // alternatives to show; -1: none
  int32_t prompt_logprobs = -1;          // as the field prompt_logprobs asked
  json::object request_echo = {};        // Responses: what the answer repeats of the request
  std::optional<StoreOrder> store = {};  // Responses: if it is to be stored
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // The SSE events that show a delta; empty if there is nothing to see.
  virtual std::string Events(const ChoiceDelta& delta) = 0;
  // The SSE events after the last delta: usage, the error if there was one, the end.
  virtual std::string End() = 0;
  // Takes note of a delta of an answer that is not streamed, which may end before it is whole.
  virtual void Note(const ChoiceDelta& /*delta*/) {}
  // The whole answer; one merged delta for each choice, by index.
  virtual json::object Whole(const std::vector<ChoiceDelta>& choices) = 0;
};

// The format of the shape's endpoint. `generation` must outlive it.
std::unique_ptr<AnswerFormat> MakeAnswerFormat(const Generation& generation, AnswerShape shape);

// The id under which a client answers a call: the model's own where its format has one.
std::string CallId(const Generation& generation, int32_t choice, int32_t call,
                   const std::string& models_own);

json::object UsageJson(const Usage& usage);
// The details of its input tokens, as responses have them too.
json::object InputDetailsJson(const Usage& usage);
// Those that came from tiers below the cache, if any did.
void AddTierTokens(const Usage& usage, json::object& to);
// The details of its output tokens, as responses have them too.
json::object OutputDetailsJson(const Usage& usage);

}  // namespace braid
