// One request inside the scheduler: what it asked for, what came out so far, which blocks it owns
// and what of it is in flight. Engine thread; owned by the scheduler's map, so its address is
// stable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cache/block_tables.h"
#include "scheduler/life_cycle/acceptance.h"
#include "scheduler/life_cycle/phase.h"
#include "scheduler/output.h"
#include "scheduler/plan.h"
#include "scheduler/request.h"

namespace braid {

// A prompt's last few tokens may be the beginning of the answer ("<think>"), which a later turn
// does not repeat. So the state that is kept for the end of a prompt is that of the last boundary
// before them.
inline constexpr int32_t kPromptTailTokens = 8;
inline int32_t ResumedAt(int32_t prompt_tokens) {
  return std::max(prompt_tokens - kPromptTailTokens, 0) / kBlockTokens * kBlockTokens;
}

struct alignas(64) Sequence {
  Sequence(Request r, const CacheGeometry& geometry)
      : id(r.id),
        prompt_count(static_cast<int32_t>(r.prompt.size())),
        may_stop(!r.stop.stop_tokens.empty()),
        wants_logprobs(r.logprobs >= 0),
        wants_prompt_logprobs(r.prompt_logprobs >= 0),
        blocks(geometry),
        request(std::move(r)) {}

  // What every step reads and writes comes first, in three cache lines: of many sequences it then
  // stays near the core from step to step.
  Phase phase = Queued{};
  bool waiting = false;    // stands in the queue
  bool matched = false;    // of one that waits: what a tier has of it was looked for
  bool announced = false;  // the executor knows that it holds the slot
  bool reuses = false;     // finds prefixes and publishes its own
  bool changed = false;    // has something for TakeOutputs
  bool receives = false;   // its prompt's pages are to come from another engine
  const RequestId id;      // of the request, as the next four
  const int32_t prompt_count;
  const bool may_stop, wants_logprobs, wants_prompt_logprobs;
  SlotId slot;
  DpRankId dp_rank;            // the data-parallel rank that runs it, while it holds a slot
  int32_t length_max = 0;      // prompt + output at most
  int32_t stored_max = 0;      // tokens that ever need cache; the last one sampled does not
  int32_t prefill_end = 0;     // tokens known at admission: where the prefill ends
  int32_t planned = 0;         // tokens in place once every planned row has landed
  int32_t unresolved = 0;      // sampled tokens in flight
  int32_t rows_in_flight = 0;  // and its move
  MoveId move;                 // of its pages, under way
  int64_t computed = 0;        // tokens of its rows, less those that its tenant was charged for
  std::vector<TokenId> output;
  std::vector<TokenId> drafts;  // what may come next; the row in flight has the first of them
  DraftSource drafts_of = DraftSource::kGrammar;
  int32_t arriving = 0;   // tokens up to here come from a tier before any row; 0: none do
  int32_t branch_at = 0;  // a boundary that others have reached as well: leave a state there
  int32_t preemptions = 0;
  BlockTables blocks;
  PrefixKeys keys;  // of its tokens
  // While it waits for a prefix that a running sequence, its leader, is about to publish: up to
  // this many tokens. A leader knows who follows it.
  Sequence* leader = nullptr;
  int32_t awaited = 0;
  std::vector<Sequence*> followers;
  int32_t ranks_unready = 0;  // that have not compiled its grammar; it waits, set aside
  const Request request;
  int64_t arrival = 0;
  bool ever_admitted = false;
  Reuse reuse;  // of the first admission
  Acceptances acceptance;
  DraftCounts draft_counts;
  int32_t sampled_rows = 0;

  // Not yet taken by TakeOutputs.
  size_t tokens_taken = 0;
  int32_t prompt_logprobs_done = 0;  // positions that were reported, ever
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::string error;
  ErrorCode error_code = ErrorCode::kInternal;

  template <class P>
  bool Is() const {
    return std::holds_alternative<P>(phase);
  }
  int32_t prompt_tokens() const { return prompt_count; }
  TokenPieces tokens() const { return {request.prompt, output}; }
  int32_t known_tokens() const { return prompt_tokens() + static_cast<int32_t>(output.size()); }
  // No more of its tokens may be taken over: a prompt that is scored needs every position that was
  // not reported yet.
  int32_t reuse_limit() const {
    return wants_prompt_logprobs ? prompt_logprobs_done : known_tokens();
  }
  bool decode_ready() const {
    const int32_t length = known_tokens() + unresolved;
    return Is<Decoding>() && planned == length - 1 && length < length_max;
  }
  // kSampledInFlight for one that is not known yet.
  TokenId token(int32_t position) const {
    if (position < prompt_tokens()) return request.prompt[static_cast<size_t>(position)];
    const size_t i = static_cast<size_t>(position - prompt_tokens());
    return i < output.size() ? output[i] : kSampledInFlight;
  }
};

// Higher priorities first, then who came first.
struct ByPriority {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->request.priority != b->request.priority)
      return a->request.priority > b->request.priority;
    return a->arrival < b->arrival;
  }
};

}  // namespace braid
