// Who runs next, on which blocks: a pure function of the events applied so far. Integers and ids
// only; no clock, random number, thread, device or float. The same code runs in production, on
// every rank, in the simulator and in the replay tool.
//
// Invariants: a block in a running sequence's table is owned or pinned by that sequence until every
// step that was planned with it has come back; a plan never needs memory that is not already
// reserved.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "cache/prefix_changes.h"
#include "cache/prefix_match.h"
#include "scheduler/config.h"
#include "scheduler/event.h"
#include "scheduler/output.h"
#include "scheduler/plan.h"

namespace braid {

// What went to the tier below the arena and came from there; failed: did not get there.
struct TierCounts {
  int64_t parts_out = 0, parts_in = 0;
  // Of files, as all ranks wrote and read them, and read from memory.
  int64_t bytes_written = 0, bytes_read = 0, bytes_in_memory = 0;
  int64_t failed_out = 0, failed_in = 0;
  int64_t unwritten = 0;  // paths not written in full: evicted first, or too many waited
  // Of requests, for what came: how often, and how long together; from memory alone, and else.
  int64_t waits_in_memory = 0, wait_in_memory_us = 0, waits = 0, wait_us = 0;
};

// A snapshot for metrics and /server_info.
struct SchedulerStats {
  int32_t running = 0, waiting = 0;
  int32_t waiting_preempted = 0;  // of those that wait: they ran before
  // Used: running requests need it. Cached: kept until the room is needed. The rest is free.
  int32_t pages_total = 0, pages_used = 0, pages_cached = 0;
  std::vector<int64_t> blocks_used, blocks_cached;  // by group
  int64_t prompt_tokens = 0, reused_tokens = 0;     // of requests at their first admission
  // The others, once it is known: computed here, or another engine has handed their pages over.
  int64_t computed_tokens = 0, received_tokens = 0;
  std::array<int64_t, kReuseStops> reuse_stops{};   // the same requests, by why not more
  std::array<int64_t, kReuseStops> lost_tokens{};   // their tokens that were computed, by why
  int64_t evictions_full = 0, evictions_state = 0;
  int64_t steps = 0, prefill_tokens = 0, decode_tokens = 0, preemptions = 0, finished = 0;
  int64_t drafts = 0, drafts_accepted = 0;  // drafts computed; of those, accepted ones
  DraftCounts drafts_by_place;              // in rows that have come back
  int64_t moves = 0, moves_failed = 0;      // over; of those, failed
  int64_t tier_parts = 0;                   // parts of pages that the tier is known to hold
  TierCounts tier;
  int64_t stored_tokens = 0;  // of the reused ones: they came from the tier
  int64_t host_tokens = 0;    // of those: it had them in memory
};

// Order and starvation. Of those that wait the highest priority comes first, and of it the one
// whose tenant was served least, in tokens computed, counted from when it came to wait; then who
// came first. So a tenant's first request waits for at most one more of each other tenant of its
// priority. An admission takes the blocks of the whole known prefix and of one block of output, or
// waits, and nobody else is admitted to where it might go. A request that begins as a running one
// does follows it until the blocks they share are published; others pass it. Running sequences
// are ordered by priority, then by arrival. Each step first gives every decoding sequence its
// token. Of the rest the first prefill gets at least half: n tokens take at most 2n / rest + 1
// steps; the others share the other half, shortest remainder first: a short one waits for shorter
// ones only, a long one at most until it is first. When a decoding sequence finds no block, the
// last one of its rank loses its blocks and is replayed later; after preemptions_max times it comes
// back with all that it can ever need and is not chosen again, so every request ends.
class Scheduler {
 public:
  // Validates once; afterwards only CHECKs.
  static Result<Scheduler> Create(const SchedulerConfig& config);
  Scheduler(Scheduler&&) noexcept;
  Scheduler& operator=(Scheduler&&) noexcept;
  ~Scheduler();

  // Whether a request could ever run here; an error with numbers otherwise. Pure: changes nothing.
  Status Admissible(const Request& request) const;

  void Apply(const Event& event);
  // The next step's work; empty when nothing can run. May be called once more before StepDone of
  // the previous plan (overlap depth one).
  Plan NextPlan();
  // What came out since the last call, a request's tokens in order. The caller may move them out of
  // the vector, which is valid until the next call.
  std::vector<Output>& TakeOutputs();

  // What can be resumed now and could not at the last call, and the reverse.
  PrefixChanges TakePrefixChanges(DpRankId rank);

  // Whether the request is alive, or a step or a move in flight uses its blocks.
  bool has(RequestId id) const;
  bool idle() const;        // no request is alive, and no step or move in flight
  bool in_flight() const;   // a step or a move
  int32_t moves() const;    // in flight
  int32_t unready() const;  // requests that wait for GrammarReady
  bool paused() const;      // no plan has work in it until PauseRequested or StopRequested
  bool stopping() const;    // StopRequested has come
  const SchedulerConfig& config() const;
  SchedulerStats stats() const;

  // Recounts every block and slot; an error that names what does not agree. Takes time linear in
  // the arena.
  Status Audit() const;

 private:
  struct State;
  explicit Scheduler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
