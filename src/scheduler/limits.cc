// See the header. Errors name the figure and what would be right.
#include "scheduler/limits.h"

#include <fmt/core.h>

#include <algorithm>

#include "scheduler/config.h"

namespace braid {
namespace {

constexpr int64_t kSlotsMax = 1 << 20;

Error Bad(std::string message, std::string field) {
  return {ErrorCode::kInvalid, std::move(message), std::move(field)};
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
  if (request.stop.new_tokens_max < 0) {
    return Bad(fmt::format("new_tokens_max is {}, must be 0 or more", request.stop.new_tokens_max),
               "max_tokens");
  }
  RETURN_IF_ERROR(CheckPrompt(config, request));
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
  if (request.role == RequestRole::kDecode &&
      (request.prompt_logprobs >= 0 || request.stop.new_tokens_max == 0)) {
    return Bad(
        "a request whose prompt is computed elsewhere makes at least one token here, and "
        "its prompt is not scored here",
        request.prompt_logprobs >= 0 ? "prompt_logprobs" : "max_tokens");
  }
  if (!std::is_sorted(request.stop.stop_tokens.begin(), request.stop.stop_tokens.end())) {
    return Bad("the stop tokens are not sorted", "stop_tokens");
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
