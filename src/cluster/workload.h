// Requests for a simulated cluster: when they come, and what their prompts and answers are made of.
// Both are lists of segments; segments with the same key have the same tokens, so that prefixes are
// shared as far as the workload says. A seed decides all. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "scheduler/request.h"

namespace braid {

enum class ClusterLoad : uint8_t { kRandom, kShareGpt, kAgentic, kTrace };

struct TokenSegment {
  uint64_t key = 0;
  int32_t tokens = 0;
  int32_t first = 0;  // of the key's tokens
};

struct ClusterRequest {
  int64_t at_us = 0;     // arrival; of a later turn: after the turn before it has ended
  int32_t follows = -1;  // the request that is the turn before this one
  std::vector<TokenSegment> prompt, answer;
  int32_t answer_max = 0;      // tokens that it asks for at most, if that is more than `answer` has
  bool scores_prompt = false;  // and so reuses no prefix
  int32_t priority = 0;
  std::string tenant = {};  // to be served fairly; its prefixes are its own by their keys
  int32_t prompt_tokens() const;
  int32_t answer_tokens() const;
};

struct ClusterLoadOptions {
  ClusterLoad load = ClusterLoad::kRandom;
  double requests_per_second = 1;  // Poisson; of an agentic load: conversations
  double seconds = 600;            // during which requests come
  // Random: lengths are uniform from range_ratio times these to these.
  int32_t input_tokens = 1024, output_tokens = 128;
  double range_ratio = 1;
  uint64_t seed = 1;
};

std::vector<ClusterRequest> MakeRequests(const ClusterLoadOptions& options);

// Public traces: Mooncake's (JSON lines with timestamp in ms, input_length, output_length and
// hash_ids of blocks of 512 tokens) and Azure's (CSV with TIMESTAMP, ContextTokens,
// GeneratedTokens). The first request comes at 0; none may come before it. The error names the
// line. Requests after `seconds` are left out.
Result<std::vector<ClusterRequest>> ParseTrace(std::string_view text, std::string_view source,
                                               double seconds);

// Ends every answer.
inline constexpr TokenId kEndToken = 0;

// Token `i` of a key; never kEndToken.
TokenId SegmentToken(uint64_t key, int32_t i, int32_t vocabulary);
// The tokens of a prompt, and token `i` of an answer, whose last one is kEndToken.
std::vector<TokenId> PromptTokens(const ClusterRequest& request, int32_t vocabulary);
TokenId AnswerToken(const ClusterRequest& request, int32_t i, int32_t vocabulary);
// What an engine is asked for; it has no id yet.
Request RequestOf(const ClusterRequest& request, int32_t vocabulary);

}  // namespace braid
