// One choice: tokens in, deltas of events out. Detokenises, separates thinking, finds tool calls,
// and stops at stop strings, which apply to the content, not to thinking or calls. Network thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"
#include "server/serving/prepare.h"
#include "text/answer/answer_parser.h"
#include "text/answer/stop_matcher.h"
#include "text/tokens/detokenizer.h"

namespace braid {

// What log-probabilities take in memory.
int64_t MemoryOf(std::span<const TokenLogprob> entries);

// New output of one choice.
struct ChoiceDelta {
  int32_t index = 0;
  AnswerEvents events;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;         // of `tokens`; if asked for
  std::vector<int64_t> text_offsets;          // one per entry of logprobs, in characters
  std::vector<TokenLogprob> prompt_logprobs;  // all of them, in the first delta; if asked for
  bool first = false;
  std::optional<FinishReason> finish;
  bool called = false;      // with `finish`: the model was done, and called tools
  json::value stop_reason;  // a stop string or token id that the client named

  std::string text() const { return JoinedText(events, AnswerEvent::Kind::kText); }
  std::string reasoning() const { return JoinedText(events, AnswerEvent::Kind::kReasoning); }
  // Appends a later delta of the same answer.
  void Merge(ChoiceDelta later);
};

class Choice {
 public:
  // `tokenizer` may be null: then there is no text. `options` must outlive the object.
  Choice(int32_t index, const Tokenizer* tokenizer, const TextOptions& options,
         bool starts_in_reasoning, int32_t prompt_logprobs_expected);

  // Must not be called after the delta with `finish`. nullopt: nothing to show yet.
  std::optional<ChoiceDelta> Add(Output output);
  // Ends the choice: the text that was held back, with `reason`.
  ChoiceDelta End(FinishReason reason);

  bool finished() const { return finished_; }
  int32_t output_tokens() const { return output_tokens_; }
  int32_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void AddText(std::string_view text, ChoiceDelta* delta);
  void AddEvents(AnswerEvents events, ChoiceDelta* delta);
  void AddContent(std::string_view content, ChoiceDelta* delta);
  void EndHere(ChoiceDelta* delta);
  void AddToken(TokenId token, ChoiceDelta* delta);
  void Finish(FinishReason reason, ChoiceDelta* delta);

  const int32_t index_;
  const TextOptions& options_;
  const Tokenizer* tokenizer_;
  std::optional<Detokenizer> detokenizer_;
  AnswerParser parser_;
  StopMatcher matcher_;
  size_t prompt_logprobs_expected_;
  std::vector<TokenLogprob> prompt_logprobs_;
  int64_t text_characters_ = 0;  // of all text so far, thinking included
  bool started_ = false;
  bool finished_ = false;
  int32_t calls_ = 0;  // whole ones
  int32_t output_tokens_ = 0;
  int32_t reasoning_tokens_ = 0;
};

// Characters (code points) of valid UTF-8.
int64_t CountCharacters(std::string_view text);

}  // namespace braid
