// What a request produces, as the scheduler hands it out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cache/prefix_match.h"
#include "scheduler/request.h"

namespace braid {

// How much of a prompt came from the prefix cache, and why not more.
struct Reuse {
  int32_t tokens = 0;  // reused
  int32_t known = 0;   // keys and values were there up to here
  ReuseStop stop = ReuseStop::kOff;
};

// What a request produced since the last TakeOutputs. A request's last Output has `finish` set and
// is its last; a request that was refused at Submit has exactly one, with kError.
struct Output {
  RequestId id;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;         // one per token when asked for
  std::vector<TokenLogprob> prompt_logprobs;  // in order of position, once each
  std::optional<FinishReason> finish;
  ErrorCode error_code = ErrorCode::kInternal;
  std::string error;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, taken from the prefix cache: reuse.tokens
  Reuse reuse;
  int32_t output_tokens = 0;  // in all
  int32_t preemptions = 0;
};

}  // namespace braid
