// What a client asks of the engine: one sequence to continue, how to sample it and when to stop.
// Immutable after Submit; every limit was checked by whoever built it (see scheduler/scheduler.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace braid {

// Who proposes drafts, in the order in which the executor asks.
enum class DraftSource : uint8_t {
  kGrammar,  // what the request's grammar leaves no choice about
  kLookup,   // what followed the same tokens earlier in the sequence
  kHead,     // the model's draft head
};
inline constexpr int kDraftSources = 3;

// How one token is chosen. All zero penalties and temperature 0 is greedy decoding.
struct SamplingParams {
  float temperature = 0.0f;         // 0: greedy
  int32_t top_k = 0;                // 0: all
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; over prompt and output (HF, CTRL paper)
  float presence_penalty = 0.0f;    // over output tokens (OpenAI)
  float frequency_penalty = 0.0f;   // over output tokens (OpenAI)
  uint64_t seed = 0;                // draws are a function of (seed, position) only
  std::vector<std::pair<TokenId, float>> logit_bias;
  bool operator==(const SamplingParams&) const = default;
};

struct StopParams {
  std::vector<TokenId> stop_tokens;  // sorted; EOS set of the model joined with the request's
  int32_t new_tokens_max = 16;       // >= 0; 0 with prompt_logprobs scores the prompt only
  int32_t new_tokens_min = 0;        // stop tokens are masked until so many tokens came out
  bool operator==(const StopParams&) const = default;
};

// Which part of a request is this engine's. The other part is another engine's, and the pages of
// the prompt go from one to the other.
enum class RequestRole : uint8_t {
  kBoth,     // all of it
  kPrefill,  // the prompt and the first token; then the prompt's pages are sent
  kDecode,   // the prompt's pages and the first token arrive; it goes on from there
};

// Bounds the thought that an answer begins with: after so many tokens the next is its end.
struct ThinkingLimit {
  int32_t tokens_max = -1;  // -1: none
  TokenId open = -1;  // begins the thought, among the first tokens; -1: the prompt has begun it
  TokenId close = -1;
  bool operator==(const ThinkingLimit&) const = default;
};

struct Request {
  RequestId id;
  std::vector<TokenId> prompt;  // >= 1 token, each in [0, vocabulary)
  SamplingParams sampling;
  StopParams stop;
  int32_t logprobs = -1;  // >= 0: report the chosen token's log-probability and so many top ones
  int32_t prompt_logprobs = -1;  // >= 0: the same for every prompt position
  int32_t draft_tokens = -1;     // drafts that a row of it may carry at most; -1: as the engine's
  int32_t priority = 0;          // higher first
  std::string tenant;            // whom fairness and the prefix cache know; made by the server
  std::string cache_salt;        // parts the tenant's prefixes further; made by the client
  int32_t dp_rank = -1;  // the data-parallel rank that must run it; -1: the scheduler chooses
  RequestRole role = RequestRole::kBoth;
  // What the output must match, as the executor's ConstraintSource reads it; empty: anything. It
  // holds from the token after `grammar_after` on (the end of thinking), or from the first if -1.
  std::string grammar;
  TokenId grammar_after = -1;
  ThinkingLimit thinking;
};

// A token's log-probability with the most probable alternatives, best first, ties by smaller id.
// Log-probabilities are of the model's distribution, before temperature, penalties and bias.
struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;
  std::vector<std::pair<TokenId, float>> top;
  bool operator==(const TokenLogprob&) const = default;
};

enum class FinishReason : uint8_t {
  kStop,    // a stop token; it is the last token reported
  kLength,  // new_tokens_max or the context's end
  kAbort,   // the client's or the server's wish
  kError,   // the engine could not go on with this request; see Output::error
  kSent,    // its prompt's pages have reached the engine that goes on with it
};

}  // namespace braid
