// Mirrors of what the scheduler knows of every running sequence: its tokens and, per cache group,
// where its blocks lie in memory. Kept up to date by the deltas of the plans; engine thread only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/geometry.h"
#include "ops/sequence.h"
#include "scheduler/plan.h"

namespace braid {

struct Slot {
  RequestId request;
  RequestRole role = RequestRole::kBoth;
  SamplingParams sampling;
  StopParams stop;
  int32_t logprobs = -1;
  int32_t prompt_logprobs = -1;
  int32_t prompt_count = 0;
  std::string grammar;  // as in Request
  TokenId grammar_after = -1;
  ThinkingLimit thinking;
  // Prompt, then output as far as it is known, then, while a step runs, the drafts of its row.
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::byte*>> blocks;  // [group][index], null for holes

  // The token that must come after the first `length`, for the thought is as long as it may be; -1:
  // any may.
  TokenId ForcedToken(int32_t length) const;

  std::span<const TokenId> prompt() const {
    return std::span(tokens).first(static_cast<size_t>(prompt_count));
  }
  // The output as it is after the first `length` tokens of the sequence.
  std::span<const TokenId> output(int32_t length) const {
    return std::span(tokens)
        .first(static_cast<size_t>(length))
        .subspan(static_cast<size_t>(prompt_count));
  }
  int32_t length() const { return static_cast<int32_t>(tokens.size()); }
};

class Slots {
 public:
  // `arena` is the address of page 0.
  Slots(const CacheGeometry& geometry, std::byte* arena, int32_t slots, int32_t context_tokens_max);

  // Admissions and table updates of a plan; before its rows run.
  void Begin(const Plan& plan);
  // Releases of a plan; after its rows have run.
  void End(const Plan& plan);

  Slot& operator[](SlotId id);
  // The span of a row whose tokens begin at `token_begin` of the batch.
  ops::SequenceSpan SpanOf(const Row& row, int32_t token_begin);

 private:
  const CacheGeometry& geometry_;
  std::byte* arena_;
  IdVector<SlotId, Slot> slots_;
};

}  // namespace braid
