// One answer, streamed: from a request to pieces of text on the calling thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/output_queue.h"
#include "text/answer/reasoning.h"

namespace braid {

// The user's settings; the others come from the checkpoint's generation_config.json.
struct SamplingChoice {
  std::optional<int32_t> max_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
};

// A request with sampling, stop tokens and a length that fits the context.
Request RequestFor(const Engine& engine, std::vector<TokenId> prompt, const SamplingChoice& choice);

// The format of the model's thinking, detected in its chat template.
const ReasoningFormat& ReasoningOf(const Engine& engine);

struct TextPiece {
  std::string reasoning;
  std::string content;
};

struct GeneratedAnswer {
  RequestResult answer;
  TextPiece text;  // empty without a tokenizer
  bool interrupted = false;
  int64_t elapsed_us = 0;
};

struct GenerateOptions {
  const ReasoningFormat* reasoning = nullptr;  // null: thinking is not separated
  bool starts_in_reasoning = false;
  std::function<void(const TextPiece&)> on_piece = [](const TextPiece&) {};
  std::function<bool()> interrupted = [] { return false; };  // called about 20 times a second
};

Result<GeneratedAnswer> Generate(Engine& engine, Request request, const GenerateOptions& options);

}  // namespace braid
