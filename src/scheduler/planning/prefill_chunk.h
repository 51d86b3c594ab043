// How many tokens of a prompt the next row takes. Pure.
#pragma once

#include <cstdint>

#include "scheduler/life_cycle/sequence.h"

namespace braid {

// Where the next chunk must end at the latest so that it leaves a state there: at the branch point
// that this request revealed, where a follower goes on, and where the same prompt, or the next turn
// after it, resumes. Without recurrent state: where the prefill ends.
int32_t PrefillCut(const Sequence& s, bool has_state);

// Tokens up to where a follower waits for them, or all that remain: it decides who goes first.
int32_t PrefillRemainder(const Sequence& s);

struct ChunkLimits {
  int32_t budget = 0;     // tokens that the step has left
  int32_t chunk_max = 0;  // of one sequence in one step; 0: the budget
  int32_t least = 1;      // what is worth a row that reaches neither a boundary nor the cut
  bool has_state = false;
};

// Chunks end at block boundaries where a budget of a block or more reaches one. Where it does not,
// they have `least` tokens or more, or `chunk_max`; 0 when the budget has not so many.
int32_t ChunkTokens(const Sequence& s, const ChunkLimits& limits);

}  // namespace braid
