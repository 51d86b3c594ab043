// The scheduler's figures: what a user or the machine decides before the first request.
#pragma once

#include <cstdint>

#include "cache/geometry.h"

namespace braid {

// Data-parallel ranks have an arena, slots and a budget each; a request runs on one of them.
enum class Placement : uint8_t {
  kPrefixAffine,  // where most of its prefix is, if that is half of it; otherwise least loaded
  kLeastLoaded,   // where the fewest sequences run
  kRoundRobin,    // on one after the other
};

struct SchedulerConfig {
  CacheGeometry cache;             // of each rank
  int32_t context_tokens_max = 0;  // prompt + output of one sequence
  int32_t step_tokens_max = 2048;  // token budget of one step (decode rows first, then chunks)
  int32_t chunk_tokens_max = 0;    // tokens of one sequence in one step; 0: the step's budget
  int32_t running_max = 64;        // sequences of a rank that hold a slot; at most step_tokens_max
  int32_t waiting_max = 4096;      // queued requests; more are refused
  int32_t preemptions_max = 8;     // how often one request may lose its blocks
  int32_t vocabulary = 0;
  bool prefix_cache = true;  // off: every prompt is computed from its first token
  int32_t dp_ranks = 1;
  Placement placement = Placement::kPrefixAffine;
  // While somebody decodes, prompt tokens are rationed so that a step takes no longer than this, as
  // far as the steps measured so far tell; a block's worth always goes on. 0: no ration.
  int64_t decode_latency_us = 0;
  // Guesses that a decode row may carry, less than a block; 0: none. Rows with guesses take at most
  // half of the budget that one token for each sequence leaves. Where a plan is made before the
  // last step has come back, a sequence that may have guesses has no row in it: what they are, and
  // where they begin, is not known yet.
  int32_t draft_tokens_max = 0;
  bool report_freed = false;  // plans say which blocks became free, to be poisoned
  bool handoff = false;       // pages may go to other engines and come from there: see RequestRole
};

}  // namespace braid
