// See the header. Errors name the figure and what would be right.
#include "scheduler/limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>

#include "scheduler/config.h"

namespace braid {
namespace {

constexpr int64_t kSlotsMax = 1 << 20;

// Whatever the logits are, within these no sum and no product of the sampler is NaN. Interfaces may
// allow less.
constexpr float kFactorMin = std::numeric_limits<float>::min(), kFactorMax = 1e6f;
constexpr float kSummandMax = 1e6f;
constexpr int32_t kTopLogprobsMax = 1024;
constexpr int32_t kIntMax = std::numeric_limits<int32_t>::max();

Error Bad(std::string message, std::string field) {
  return {ErrorCode::kInvalid, std::move(message), std::move(field)};
}

// NaN lies in no range.
template <class T>
Status CheckRange(const char* field, T value, T least, T most) {
  if (value >= least && value <= most) return {};
  return Bad(fmt::format("{} is {}, must be {} to {}", field, value, least, most), field);
}

Status CheckSampling(const SchedulerConfig& config, const SamplingParams& p) {
  if (p.temperature != 0) {
    RETURN_IF_ERROR(CheckRange("temperature", p.temperature, kFactorMin, kFactorMax));
  }
  RETURN_IF_ERROR(CheckRange("top_k", p.top_k, 0, kIntMax));
  RETURN_IF_ERROR(CheckRange("top_p", p.top_p, kFactorMin, 1.0f));
  RETURN_IF_ERROR(CheckRange("min_p", p.min_p, 0.0f, 1.0f));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", p.repetition_penalty, kFactorMin, kFactorMax));
  RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty, -kSummandMax, kSummandMax));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty, -kSummandMax, kSummandMax));
  if (std::ssize(p.logit_bias) > config.vocabulary) {
    return Bad(fmt::format("logit_bias has {} entries, there are {} tokens", p.logit_bias.size(),
                           config.vocabulary),
               "logit_bias");
  }
  for (const auto& [token, bias] : p.logit_bias) {
    RETURN_IF_ERROR(CheckRange("logit_bias", token, 0, config.vocabulary - 1));
    RETURN_IF_ERROR(CheckRange("logit_bias", bias, -kSummandMax, kSummandMax));
  }
  return {};
}

Status CheckStops(const SchedulerConfig& config, const StopParams& stop) {
  if (stop.new_tokens_max < 0) {
    return Bad(fmt::format("new_tokens_max is {}, must be 0 or more", stop.new_tokens_max),
               "max_tokens");
  }
  RETURN_IF_ERROR(CheckRange("min_tokens", stop.new_tokens_min, 0, kIntMax));
  const auto out_of_order = std::adjacent_find(stop.stop_tokens.begin(), stop.stop_tokens.end(),
                                               std::greater<TokenId>());
  if (out_of_order != stop.stop_tokens.end()) {
    return Bad("the stop tokens are not sorted", "stop_tokens");
  }
  for (const TokenId token : stop.stop_tokens) {
    RETURN_IF_ERROR(CheckRange("stop_tokens", token, 0, config.vocabulary - 1));
  }
  return {};
}

// What is said of the output besides: scores, the grammar and the thought before the answer.
Status CheckOutput(const SchedulerConfig& config, const Request& request) {
  RETURN_IF_ERROR(CheckRange("logprobs", request.logprobs, -1, kTopLogprobsMax));
  RETURN_IF_ERROR(CheckRange("prompt_logprobs", request.prompt_logprobs, -1, kTopLogprobsMax));
  RETURN_IF_ERROR(CheckRange("draft_tokens", request.draft_tokens, -1, kIntMax));
  RETURN_IF_ERROR(CheckRange("priority", request.priority, -kIntMax, kIntMax));
  const TokenId last = config.vocabulary - 1;
  RETURN_IF_ERROR(CheckRange("grammar_after", request.grammar_after, -1, last));
  const ThinkingLimit& thinking = request.thinking;
  RETURN_IF_ERROR(CheckRange("thinking_budget", thinking.tokens_max, -1, kIntMax));
  RETURN_IF_ERROR(CheckRange("the token that opens a thought", thinking.open, -1, last));
  const TokenId least = thinking.tokens_max < 0 ? -1 : 0;
  return CheckRange("the token that closes a thought", thinking.close, least, last);
}

Status CheckPrompt(const SchedulerConfig& config, const Request& request) {
  if (request.prompt.empty())
    return Bad("the prompt is empty, at least one token is needed", "prompt");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] < 0 || request.prompt[i] >= config.vocabulary) {
      return Bad(fmt::format("prompt token {} is {}, ids go from 0 to {}", i, request.prompt[i],
                             config.vocabulary - 1),
                 "prompt");
    }
  }
  const int64_t least =
      static_cast<int64_t>(request.prompt.size()) + (request.stop.new_tokens_max > 0);
  if (least > config.context_tokens_max) {
    return Bad(fmt::format("the prompt has {} tokens{}; the context holds {} in all",
                           request.prompt.size(),
                           request.stop.new_tokens_max > 0 ? " and leaves no room for output" : "",
                           config.context_tokens_max),
               "prompt");
  }
  return {};
}

}  // namespace

Status CheckConfig(const SchedulerConfig& config) {
  RETURN_IF_ERROR(CheckGeometry(config.cache));
  RETURN_IF_ERROR(CheckSettings(config));
  if (int64_t{config.dp_ranks} * config.running_max > kSlotsMax) {
    return Bad(fmt::format("{} ranks of {} sequences are more than {} slots", config.dp_ranks,
                           config.running_max, kSlotsMax),
               "dp_ranks");
  }
  if (config.step_tokens_max < config.running_max) {
    return Bad(fmt::format("step_tokens_max is {}, and {} running sequences need a token each",
                           config.step_tokens_max, config.running_max),
               "step_tokens_max");
  }
  return {};
}

bool MayReceive(const SchedulerConfig& config, const Request& request) {
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  return config.handoff && request.role == RequestRole::kBoth && request.prompt_logprobs < 0 &&
         tokens >= kBlockTokens && LengthMax(config, request) >= tokens + 2;
}

int32_t LengthMax(const SchedulerConfig& config, const Request& request) {
  return static_cast<int32_t>(
      std::min(static_cast<int64_t>(request.prompt.size()) + request.stop.new_tokens_max,
               static_cast<int64_t>(config.context_tokens_max)));
}

int32_t StoredMax(const Request& request, int32_t length_max) {
  return std::max(length_max - 1, static_cast<int32_t>(request.prompt.size()));
}

Status CheckRequest(const SchedulerConfig& config, const Request& request) {
  RETURN_IF_ERROR(CheckStops(config, request.stop));
  RETURN_IF_ERROR(CheckPrompt(config, request));
  RETURN_IF_ERROR(CheckSampling(config, request.sampling));
  RETURN_IF_ERROR(CheckOutput(config, request));
  if (request.dp_rank < -1 || request.dp_rank >= config.dp_ranks) {
    return Bad(fmt::format("dp_rank is {}, must be -1 (any) to {}: there are {} data-parallel "
                           "ranks",
                           request.dp_rank, config.dp_ranks - 1, config.dp_ranks),
               "dp_rank");
  }
  if (request.role != RequestRole::kBoth && !config.handoff) {
    return Bad(
        "the request's other part is another engine's; this engine neither sends pages nor "
        "receives them",
        "role");
  }
  if (request.role != RequestRole::kBoth &&
      (request.prompt_logprobs >= 0 || request.stop.new_tokens_max == 0)) {
    return Bad(
        "a request that two engines share makes at least one token, and its prompt is not scored",
        request.prompt_logprobs >= 0 ? "prompt_logprobs" : "max_tokens");
  }
  const int32_t stored = StoredMax(request, LengthMax(config, request));
  const int64_t need = PagesFor(config.cache, BlocksOfSequence(config.cache, stored));
  if (need > config.cache.pages - 1) {
    const int64_t fits = SequenceTokensMax(config.cache);
    return Bad(fmt::format("prompt and output of up to {} tokens need {} cache pages and the arena "
                           "has {}: {} tokens fit",
                           LengthMax(config, request), need, config.cache.pages - 1,
                           fits + (request.stop.new_tokens_max > 0)),
               static_cast<int64_t>(request.prompt.size()) > fits ? "prompt" : "max_tokens");
  }
  return {};
}

}  // namespace braid
