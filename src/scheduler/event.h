// Everything that can happen to the scheduler. Events are plain values: a log of them replays a
// run.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cache/page_key.h"
#include "scheduler/request.h"

namespace braid {

struct Submit {
  Request request;
};

// Ends a request as soon as no step that uses its pages is in flight. Unknown ids are ignored, for
// an abort may cross the request's own end.
struct Abort {
  RequestId id;
  FinishReason reason = FinishReason::kAbort;  // kStop when a stop string was found in the text
};

// The result of one row of a finished step. Rows that do not sample have token -1. Sampling agrees
// with the first `accepted` of the row's drafts; `token` comes after them, and what the row
// computed for later drafts is void.
struct RowResult {
  RequestId request;
  int32_t accepted = 0;
  TokenId token = -1;
  std::string error;                            // non-empty: this row failed (non-finite logits, …)
  ErrorCode error_code = ErrorCode::kInternal;  // kInvalid: by what the request asks for
  TokenLogprob logprob;                         // filled when the request asked for logprobs
  std::vector<TokenLogprob> prompt_logprobs;  // one per token of the row: the distribution after it
  std::vector<TokenLogprob> accepted_logprobs;    // as `logprob`, of the drafts that were accepted
  std::vector<TokenId> drafts;                    // drafts of what follows `token`; may be none
  DraftSource drafts_of = DraftSource::kGrammar;  // who proposed them
};

struct StepDone {
  StepId step;
  std::vector<RowResult> rows;  // in the plan's order
  int64_t duration_us = 0;      // what the step took, measured by the driver; 0: not measured
};

// A move that a plan started is over. The scheduler ignores repetitions.
struct PagesMoved {
  MoveId move;
  std::string error;                    // non-empty: not all of the pages are where they were to go
  std::vector<int32_t> lost;            // those that are not, by their place among the move's parts
  std::vector<int32_t> in_memory = {};  // those that a tier had in memory, by their place
  TokenId token = -1;                   // the prompt's first token, when a whole prompt has arrived
  TokenLogprob logprob;                 // its log-probability, when the request asked for logprobs
  int64_t duration_us = 0;              // from Mover::Start to the end; 0: not measured
  // Of a tier, all ranks together: bytes of files that were written or read, and of its memory that
  // were read.
  int64_t disk_bytes = 0, memory_bytes = 0;
};

// A rank can sample by the request's grammar now, or cannot (SchedulerConfig::grammar_ranks).
struct GrammarReady {
  RequestId request;
  std::string error;  // non-empty: it cannot, and the request ends with this
  ErrorCode error_code = ErrorCode::kInternal;
};

// Time passes only by events. Microseconds of a monotonic clock.
struct Tick {
  int64_t now_us = 0;
};

// What a tier below the arena has come to hold, or holds no more, other than by a move: what was
// there before, what another server wrote, what made way.
struct PagesKnown {
  std::vector<KnownPart> added, dropped;
};

// Forgets every cached prefix that no running request uses.
struct FlushCache {
  bool tiers = false;  // those in tiers, too
};

// Forgets every block and every cached prefix, and starts with empty arenas. Only while no request
// is alive; the driver's repair when an audit has found inconsistent accounting.
struct ResetCache {};

// The memory that the arenas lie in is lost, with all that was in it: requests that have blocks end
// with this error, and every cached prefix is forgotten. Only while no step is in flight.
struct ArenasLost {
  std::string error;
};

// No plan has work in it while the scheduler is paused. A stop ends the pause.
struct PauseRequested {
  bool paused = false;
};

// The run ends as soon as nothing is alive or in flight; `now` ends every request by kAbort.
struct StopRequested {
  bool now = false;
};

// The experts of each layer that has some are to lie where `slots` says (experts/expert_map.h): all
// ranks begin to move them with the next step.
struct MoveExperts {
  std::vector<std::vector<int32_t>> slots;
};

using Event = std::variant<Submit, Abort, StepDone, PagesMoved, PagesKnown, Tick, FlushCache,
                           ResetCache, PauseRequested, StopRequested, MoveExperts, ArenasLost,
                           GrammarReady>;

// Takes what happens, from any thread.
struct EventSink {
  virtual ~EventSink() = default;
  virtual void Post(Event event) = 0;
};

}  // namespace braid
