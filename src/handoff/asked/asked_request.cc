// Nothing that a partner says is believed: the request passes the checks that a client's passes.
// What is this engine's own affair is set here.
#include "handoff/asked/asked_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/block.h"
#include "scheduler/event_codec.h"
#include "scheduler/limits.h"

namespace braid::handoff {

Result<Request> RequestOf(const Ask& ask, const SchedulerConfig& config) {
  std::optional<Submit> submit = EventIn<Submit>(ask.request);
  if (!submit) return Error{ErrorCode::kInvalid, "the request cannot be read"};
  Request& request = submit->request;
  const auto end = static_cast<int64_t>(request.prompt.size());
  if (ask.begin < 0 || ask.begin >= end || ask.begin % kBlockTokens != 0) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("pages from token {} on of {} cannot be sent", ask.begin, end)};
  }
  request.id = RequestId();
  request.role = RequestRole::kPrefill;
  request.stop.new_tokens_max = 2;
  request.draft_tokens = 0;
  request.dp_rank = -1;
  RETURN_IF_ERROR(CheckRequest(config, request));
  // One that ends with its first token ends before its pages are sent.
  if (LengthMax(config, request) < end + 2) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("prompt has {} tokens; a context of {} sends pages of at most {}", end,
                             config.context_tokens_max, config.context_tokens_max - 2)};
  }
  if (!request.grammar.empty() && request.grammar_after >= 0) {
    // The grammar holds only after the first token; until then it keeps the stop tokens out.
    request.grammar.clear();
    request.grammar_after = -1;
    request.stop.new_tokens_min = std::max(request.stop.new_tokens_min, 1);
  }
  return std::move(request);
}

}  // namespace braid::handoff
