// What a request produces, as the scheduler hands it out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
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
  int32_t stored = 0;  // of those, from a tier below the arena
  int32_t host = 0;    // of those, the tier had them in memory
  int32_t known = 0;   // keys and values were there up to here
  ReuseStop stop = ReuseStop::kOff;
};

// Places in a row that drafts are counted by; those behind the last count there.
inline constexpr size_t kDraftPlaces = 8;

// By place: drafts that rows carried, and those that were right and became output.
struct DraftCounts {
  std::array<int64_t, kDraftPlaces> drafted = {}, accepted = {};

  void Count(int32_t drafts, int32_t right) {
    for (size_t i = 0; i < static_cast<size_t>(drafts); ++i) {
      const size_t place = std::min(i, kDraftPlaces - 1);
      ++drafted[place];
      accepted[place] += i < static_cast<size_t>(right) ? 1 : 0;
    }
  }
  DraftCounts& operator+=(const DraftCounts& other) {
    for (size_t i = 0; i < kDraftPlaces; ++i) {
      drafted[i] += other.drafted[i];
      accepted[i] += other.accepted[i];
    }
    return *this;
  }
  int64_t drafted_total() const {
    return std::accumulate(drafted.begin(), drafted.end(), int64_t{0});
  }
  int64_t accepted_total() const {
    return std::accumulate(accepted.begin(), accepted.end(), int64_t{0});
  }
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
  DraftCounts drafts;  // in all
};

}  // namespace braid
