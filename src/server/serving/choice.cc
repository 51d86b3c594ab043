// The chain detokenizer → parser of thinking and calls → stop matcher, and its end.
#include "server/serving/choice.h"

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

template <class T>
void Append(std::vector<T>* to, std::vector<T> from) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

int64_t MemoryOf(std::span<const TokenLogprob> entries) {
  int64_t bytes = std::ssize(entries) * int64_t{sizeof(TokenLogprob)};
  for (const TokenLogprob& entry : entries) {
    bytes += std::ssize(entry.top) * int64_t{sizeof(entry.top[0])};
  }
  return bytes;
}

void ChoiceDelta::Merge(ChoiceDelta later) {
  for (AnswerEvent& event : later.events) AddEvent(std::move(event), &events);
  Append(&tokens, std::move(later.tokens));
  Append(&logprobs, std::move(later.logprobs));
  Append(&text_offsets, std::move(later.text_offsets));
  Append(&prompt_logprobs, std::move(later.prompt_logprobs));
  finish = later.finish;
  called = later.called;
  stop_reason = std::move(later.stop_reason);
}

Choice::Choice(int32_t index, const Tokenizer* tokenizer, const TextOptions& options,
               bool starts_in_reasoning, int32_t prompt_logprobs_expected)
    : index_(index),
      options_(options),
      tokenizer_(tokenizer),
      parser_(options.syntax, starts_in_reasoning),
      matcher_(options.stop),
      prompt_logprobs_expected_(static_cast<size_t>(prompt_logprobs_expected)) {
  if (tokenizer != nullptr) {
    detokenizer_.emplace(*tokenizer, options.skip_special, options.kept_tokens);
  }
}

// Ends the choice although the engine would continue.
void Choice::EndHere(ChoiceDelta* delta) {
  delta->finish = FinishReason::kStop;
  delta->called = calls_ > 0;
  finished_ = true;
}

void Choice::AddContent(std::string_view content, ChoiceDelta* delta) {
  StopMatcher::Piece piece = matcher_.Push(content, output_tokens_ >= options_.min_tokens);
  if (piece.stopped && options_.include_stop) piece.text += options_.stop[piece.which];
  AddEvent({AnswerEvent::Kind::kText, std::move(piece.text)}, &delta->events);
  if (!piece.stopped) return;
  delta->stop_reason = options_.stop[piece.which];
  EndHere(delta);
}

void Choice::AddEvents(AnswerEvents events, ChoiceDelta* delta) {
  for (AnswerEvent& event : events) {
    if (finished_) return;
    if (event.kind == AnswerEvent::Kind::kText) {
      AddContent(event.text, delta);
      continue;
    }
    if (event.kind == AnswerEvent::Kind::kReasoning && !options_.shows_reasoning) continue;
    // A stop string does not match across a tool call.
    if (event.kind == AnswerEvent::Kind::kCallBegin) {
      AddEvent({AnswerEvent::Kind::kText, matcher_.Flush().text}, &delta->events);
    }
    const bool call_ends = event.kind == AnswerEvent::Kind::kCallEnd;
    AddEvent(std::move(event), &delta->events);
    if (!call_ends) continue;
    ++calls_;
    if (!options_.parallel_calls) EndHere(delta);
  }
}

void Choice::AddText(std::string_view text, ChoiceDelta* delta) {
  text_characters_ += CountCharacters(text);
  AddEvents(parser_.Push(text), delta);
}

void Choice::AddToken(TokenId token, ChoiceDelta* delta) {
  if (!detokenizer_) return;
  const bool inside = parser_.inside_reasoning();
  AddText(detokenizer_->Push(token), delta);
  if (inside || parser_.inside_reasoning()) ++reasoning_tokens_;
}

void Choice::Finish(FinishReason reason, ChoiceDelta* delta) {
  if (detokenizer_ && !finished_) {
    AddText(detokenizer_->Flush(), delta);
    if (!finished_) AddEvents(parser_.Flush(reason != FinishReason::kStop), delta);
    if (!finished_) AddEvent({AnswerEvent::Kind::kText, matcher_.Flush().text}, &delta->events);
  }
  if (!finished_) {  // else a stop string came with the last bytes
    delta->finish = reason;
    delta->called = calls_ > 0 && reason == FinishReason::kStop;
  }
  finished_ = true;
}

std::optional<ChoiceDelta> Choice::Add(Output output) {
  CHECK(!finished_, "an output after the end of an answer");
  Append(&prompt_logprobs_, std::move(output.prompt_logprobs));
  // Until the prompt has been scored there is nothing to show.
  if (output.tokens.empty() && !output.finish &&
      (started_ || prompt_logprobs_expected_ == 0 ||
       prompt_logprobs_.size() < prompt_logprobs_expected_)) {
    return std::nullopt;
  }
  ChoiceDelta delta{.index = index_, .first = !started_};
  if (!started_) delta.prompt_logprobs = std::move(prompt_logprobs_);
  started_ = true;
  const size_t count = output.tokens.size();
  const bool has_logprobs = output.logprobs.size() == count;
  for (size_t i = 0; i < count && !finished_; ++i) {
    const TokenId token = output.tokens[i];
    const bool is_stop = i + 1 == count && output.finish == FinishReason::kStop;
    delta.tokens.push_back(token);
    ++output_tokens_;
    if (is_stop && std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) !=
                       options_.stop_tokens.end()) {
      delta.stop_reason = token;
    }
    // A stop token has a log-probability although it is not text: clients that score a prompt with
    // one new token expect an entry per token.
    if (has_logprobs) {
      delta.logprobs.push_back(std::move(output.logprobs[i]));
      delta.text_offsets.push_back(text_characters_);
    }
    if (is_stop && !options_.include_stop) break;
    AddToken(token, &delta);
  }
  if (output.finish && !finished_) Finish(*output.finish, &delta);
  return delta;
}

ChoiceDelta Choice::End(FinishReason reason) {
  ChoiceDelta delta{.index = index_, .first = !started_};
  started_ = true;
  Finish(reason, &delta);
  return delta;
}

}  // namespace braid
