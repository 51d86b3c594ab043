// The JSON of answers: chat completions and text completions, whole and in chunks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/generation.h"

namespace braid {

// What of the request shapes the answer.
struct AnswerShape {
  Route route = kChat;
  bool stream = false;
  bool include_usage = false;     // a last chunk with the usage
  bool continuous_usage = false;  // every chunk with the usage so far
  bool echo = false;
  bool return_token_ids = false;
  bool explain_reuse = false;
  int32_t logprobs = -1;         // alternatives to show; -1: none
  int32_t prompt_logprobs = -1;  // as the field prompt_logprobs asked
};

class AnswerFormat {
 public:
  // `generation` must outlive the object.
  AnswerFormat(const Generation& generation, AnswerShape shape)
      : generation_(generation), shape_(shape) {}

  // The SSE events that show a delta; empty if there is nothing to see.
  std::string Events(const ChoiceDelta& delta) const;
  // The chunk after the last one, with the usage and what explains it.
  std::string UsageEvent() const;
  // The whole answer; one merged delta for each choice, by index.
  json::object Whole(const std::vector<ChoiceDelta>& choices) const;

 private:
  json::object Envelope(std::string_view chat_object) const;
  json::array ToolCalls(const ChoiceDelta& delta) const;
  json::object ChatChoice(const ChoiceDelta& delta) const;
  json::object ChatChunkChoice(const ChoiceDelta& delta) const;
  json::object TextChoice(const ChoiceDelta& delta) const;
  void AddUsage(json::object* answer) const;
  void AddEnd(const ChoiceDelta& delta, json::object* choice) const;
  void AddTokenIds(const ChoiceDelta& delta, json::object* choice) const;
  std::string Event(json::object choice) const;
  bool echoes(const ChoiceDelta& delta) const { return shape_.echo && delta.first; }

  const Generation& generation_;
  AnswerShape shape_;
};

// The id under which a client answers a call: the model's own where its format has one.
std::string CallId(const Generation& generation, int32_t choice, const AnswerEvent& call);

json::object UsageJson(const Usage& usage);

}  // namespace braid
