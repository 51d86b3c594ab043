// Requests for a simulated cluster: when they come, what their prompts are made of and how long
// their answers are. A prompt is a list of segments; segments with the same key have the same
// tokens, so that prefixes are shared as far as the workload says. A seed decides all. Pure but for
// the trace files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace braid {

enum class ClusterLoad : uint8_t { kRandom, kShareGpt, kAgentic, kTrace };

struct PromptSegment {
  uint64_t key = 0;
  int32_t tokens = 0;
};

struct ClusterRequest {
  int64_t at_us = 0;     // arrival; of a later turn: after the turn before it has ended
  int32_t follows = -1;  // the request that is the turn before this one
  std::vector<PromptSegment> prompt;
  int32_t output_tokens = 1;
  uint64_t answer_key = 0;  // of its output, as a segment of later prompts
  int32_t prompt_tokens() const;
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

// Mooncake's traces (JSON lines with timestamp in ms, input_length, output_length and hash_ids of
// blocks of 512 tokens) and Azure's (CSV with TIMESTAMP, ContextTokens, GeneratedTokens). The first
// request comes at 0; none may come before it. The error names the line. Requests after `seconds`
// are left out.
Result<std::vector<ClusterRequest>> ParseTrace(std::string_view text, std::string_view source,
                                               double seconds);

// The tokens of a prompt, and token `i` of a segment; never 0.
TokenId SegmentToken(uint64_t key, int32_t i, int32_t vocabulary);
std::vector<TokenId> PromptTokens(const ClusterRequest& request, int32_t vocabulary);

}  // namespace braid
