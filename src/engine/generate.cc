// Builds a request from the user's choices and turns its tokens into text as they arrive.
#include "engine/generate.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/rng.h"
#include "text/answer/reasoning.h"
#include "text/tokens/detokenizer.h"

namespace braid {
namespace {

constexpr int32_t kNewTokensDefault = 1024;

// Tokens to pieces of text, as far as the checkpoint has a tokenizer.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const GenerateOptions& options)
      : detokenizer_(tokenizer, true, kept_) {
    if (options.reasoning == nullptr || !options.reasoning->separates()) return;
    const ReasoningTags& tags = options.reasoning->tags;
    kept_ = tokenizer.TokensToIds(std::array{tags.open, tags.close});
    detokenizer_ = Detokenizer(tokenizer, true, kept_);
    splitter_.emplace(tags, options.starts_in_reasoning);
  }
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  TextPiece Push(TokenId id) { return Split(detokenizer_.Push(id)); }
  TextPiece Flush() {
    TextPiece piece = Split(detokenizer_.Flush());
    if (!splitter_) return piece;
    ReasoningSplitter::Piece rest = splitter_->Flush();
    piece.reasoning += rest.reasoning;
    piece.content += rest.content;
    return piece;
  }

 private:
  TextPiece Split(std::string text) {
    if (!splitter_) return {.reasoning = "", .content = std::move(text)};
    ReasoningSplitter::Piece piece = splitter_->Push(text);
    return {std::move(piece.reasoning), std::move(piece.content)};
  }
  std::vector<TokenId> kept_;  // special tokens that are tags and must appear in the text
  Detokenizer detokenizer_;
  std::optional<ReasoningSplitter> splitter_;
};

}  // namespace

const ReasoningFormat& ReasoningOf(const Engine& engine) {
  const ChatTemplate* chat = engine.chat_template();
  return DetectReasoningFormat(chat == nullptr ? std::string() : chat->Source());
}

Request RequestFor(const Engine& engine, std::vector<TokenId> prompt,
                   const SamplingChoice& choice) {
  const GenerationDefaults& defaults = engine.defaults();
  const bool use_defaults = defaults.do_sample.value_or(true);
  const auto pick = [&](const std::optional<double>& flag, const std::optional<double>& otherwise,
                        double last) {
    return static_cast<float>(flag.value_or(use_defaults ? otherwise.value_or(last) : last));
  };
  Request request;
  SamplingParams& sampling = request.sampling;
  const bool greedy = !choice.temperature && !use_defaults;
  sampling.temperature = greedy ? 0.0f : pick(choice.temperature, defaults.temperature, 1.0);
  sampling.top_p = pick(choice.top_p, defaults.top_p, 1.0);
  sampling.min_p = pick(choice.min_p, defaults.min_p, 0.0);
  sampling.top_k =
      std::max(0, choice.top_k.value_or(use_defaults ? defaults.top_k.value_or(0) : 0));
  sampling.repetition_penalty = pick({}, defaults.repetition_penalty, 1.0);
  sampling.seed = choice.seed.value_or(MixBits(static_cast<uint64_t>(MonotonicUs())));
  request.stop.stop_tokens = engine.eos_tokens();
  const int64_t room = std::max<int64_t>(
      1, engine.limits().context_tokens_max - static_cast<int64_t>(prompt.size()));
  request.stop.new_tokens_max =
      static_cast<int32_t>(std::min<int64_t>(choice.max_tokens.value_or(kNewTokensDefault), room));
  request.prompt = std::move(prompt);
  return request;
}

Result<GeneratedAnswer> Generate(Engine& engine, Request request, const GenerateOptions& options) {
  constexpr int kAskEveryMs = 50;
  OutputQueue queue;
  GeneratedAnswer out;
  const int64_t start_us = MonotonicUs();
  request.id = engine.driver().NewRequestId();
  const RequestId id = request.id;
  RETURN_IF_ERROR(engine.driver().Submit(std::move(request), &queue));
  std::optional<TextStream> stream;
  if (engine.tokenizer() != nullptr) stream.emplace(*engine.tokenizer(), options);
  const auto emit = [&](const TextPiece& piece) {
    out.text.reasoning += piece.reasoning;
    out.text.content += piece.content;
    if (!piece.reasoning.empty() || !piece.content.empty()) options.on_piece(piece);
  };
  for (bool ended = false; !ended;) {
    std::optional<TimedOutput> timed = queue.NextWithin(kAskEveryMs);
    if (!out.interrupted && options.interrupted()) {
      out.interrupted = true;
      engine.driver().Abort(id);
    }
    if (!timed) continue;
    std::vector<TokenId> tokens = timed->output.tokens;
    ended = timed->output.finish.has_value();
    if (ended && *timed->output.finish == FinishReason::kStop && !tokens.empty()) {
      tokens.pop_back();  // the stop token is not part of the text
    }
    out.answer.Add(*std::move(timed));
    if (!stream) continue;
    for (const TokenId token : tokens) emit(stream->Push(token));
    if (ended) emit(stream->Flush());
  }
  out.elapsed_us = MonotonicUs() - start_us;
  if (out.answer.finish == FinishReason::kError) {
    return Error{ErrorCode::kInternal, out.answer.error};
  }
  return out;
}

}  // namespace braid
