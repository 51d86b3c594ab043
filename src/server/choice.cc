// The chain detokenizer → reasoning splitter → stop matcher, and its end.
#include "server/choice.h"

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

void ChoiceDelta::Merge(ChoiceDelta later) {
  text += later.text;
  reasoning += later.reasoning;
  Append(&tokens, std::move(later.tokens));
  Append(&logprobs, std::move(later.logprobs));
  Append(&text_offsets, std::move(later.text_offsets));
  Append(&prompt_logprobs, std::move(later.prompt_logprobs));
  finish = later.finish;
  stop_reason = std::move(later.stop_reason);
}

Choice::Choice(int32_t index, const Tokenizer* tokenizer, const TextOptions& options,
               bool starts_in_reasoning, int32_t prompt_logprobs_expected)
    : index_(index),
      options_(options),
      tokenizer_(tokenizer),
      splitter_(ReasoningTags{}, starts_in_reasoning),
      matcher_(options.stop),
      prompt_logprobs_expected_(static_cast<size_t>(prompt_logprobs_expected)) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, options.skip_special);
}

void Choice::AddContent(std::string_view content, ChoiceDelta* delta) {
  if (finished_) return;
  StopMatcher::Piece piece = matcher_.Push(content);
  delta->text += piece.text;
  if (!piece.stopped) return;
  if (options_.include_stop) delta->text += options_.stop[piece.which];
  delta->stop_reason = options_.stop[piece.which];
  delta->finish = FinishReason::kStop;
  finished_ = true;
}

void Choice::AddText(std::string_view text, ChoiceDelta* delta) {
  text_characters_ += CountCharacters(text);
  if (!options_.split_reasoning) return AddContent(text, delta);
  ReasoningSplitter::Piece piece = splitter_.Push(text);
  delta->reasoning += piece.reasoning;
  AddContent(piece.content, delta);
}

void Choice::AddToken(TokenId token, ChoiceDelta* delta) {
  if (!detokenizer_) return;
  bool inside = options_.split_reasoning && splitter_.inside_reasoning();
  AddText(detokenizer_->Push(token), delta);
  if (inside || (options_.split_reasoning && splitter_.inside_reasoning())) ++reasoning_tokens_;
}

void Choice::Finish(FinishReason reason, ChoiceDelta* delta) {
  if (detokenizer_ && !finished_) {
    AddText(detokenizer_->Flush(), delta);
    if (options_.split_reasoning) {
      ReasoningSplitter::Piece piece = splitter_.Flush();
      delta->reasoning += piece.reasoning;
      AddContent(piece.content, delta);
    }
    if (!finished_) delta->text += matcher_.Flush().text;
  }
  if (!finished_) delta->finish = reason;  // else a stop string came with the last bytes
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
    if (is_stop && !options_.include_stop) break;
    if (has_logprobs) {
      delta.logprobs.push_back(std::move(output.logprobs[i]));
      delta.text_offsets.push_back(text_characters_);
    }
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
