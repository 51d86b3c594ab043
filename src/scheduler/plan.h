// One step's work, as data: which tokens of which sequences run, and what changed in the tables
// since the last plan. The executor keeps a mirror of every running sequence's block tables by
// slot, so a plan's size depends on what changed, not on how long the sequences are.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/block.h"
#include "base/ids.h"
#include "cache/page_part.h"
#include "scheduler/request.h"

namespace braid {

// A row's token that the step before this one samples; the executor replaces it.
inline constexpr TokenId kSampledInFlight = -1;

// A sequence enters a slot. The executor forgets the slot's tables and tokens, also when its last
// sequence was never listed in `released`.
struct Admission {
  SlotId slot;
  const Request* request = nullptr;  // owned by the scheduler, stable until the request is gone
  std::vector<TokenId> output;  // tokens generated before (a resumed request), after the prompt
};

// Entry `index` of the slot's table of one group becomes `block`.
struct TableUpdate {
  SlotId slot;
  GroupId group;
  int32_t index = 0;
  BlockId block;
};

// Tokens [token_begin, token_begin + token_count) of Plan::tokens, at sequence positions start, ….
// The last `drafts` of them are draft tokens, to be verified by the row's sampling; they never
// complete a block. Invariant: start is the number of tokens of the sequence whose KV and state are
// in place, rejected drafts not counted.
struct Row {
  SlotId slot;
  RequestId request;
  int32_t token_begin = 0;
  int32_t token_count = 0;
  int32_t start = 0;
  int32_t drafts = 0;
  bool sample = false;           // sample the token after the last known or accepted one
  bool prompt_logprobs = false;  // report each token's distribution
  // How many drafts of what follows the row are wanted, at most, by source: the first that has any
  // gives them.
  std::array<int8_t, kDraftSources> propose = {};
};

// How many drafts from position `first` on a row may carry: they stay inside that position's block
// and never complete it.
inline int32_t DraftsInBlock(int32_t first) { return kBlockTokens - 1 - first % kBlockTokens; }

// Where pages can be besides the arena; a mover knows each (scheduler/mover.h).
enum class Place : uint8_t {
  kPeer,  // another engine, which computes the prompt or goes on with it
  kDisk,  // the tier below the arena
};
inline constexpr size_t kPlaces = 2;

enum class Direction : uint8_t { kOut, kIn };  // of the arena

// The bytes of `parts` go from the arena to a place, or come from there. Every block of them is
// pinned until the PagesMoved of the same id is applied.
struct PageMove {
  MoveId id;
  Place place = Place::kPeer;
  Direction direction = Direction::kOut;
  DpRankId dp_rank;  // whose arena
  // Whose pages they are; nobody's, if they are cached prefixes on their way to a tier. What comes
  // is in place when the move is over, and the sequence goes on at `end`.
  SlotId slot;
  RequestId request;
  int32_t begin = 0, end = 0;  // tokens
  std::vector<PagePart> parts;
  bool in() const { return direction == Direction::kIn; }
};

// Parts that a tier will be asked for when a request that waits is admitted, so that it may begin
// to read them: a hint, which it may ignore and which may be wrong. Without parts: the request
// waits no more, and what was named for it need not be read ahead any more.
struct PagesAhead {
  RequestId request;
  DpRankId dp_rank;  // where it is likely to run
  std::vector<KnownPart> parts;
};

// Nobody needs the block's contents any more. A table of this plan may name the block again.
struct FreedBlock {
  DpRankId dp_rank;
  GroupId group;
  BlockId block;
};

struct Plan {
  StepId step;
  std::vector<FreedBlock> freed;      // before everything else; empty unless the config asks for it
  std::vector<Admission> admissions;  // applied first, in order
  std::vector<TableUpdate> tables;    // then these, in order
  // By rank; of each rank decode rows first, then prefill chunks.
  std::vector<Row> rows;
  // How many of the rows are each rank's; a rank without any takes part in the step all the same.
  // The rank of a slot is slot / running_max.
  std::vector<int32_t> dp_rank_rows;
  std::vector<TokenId> tokens;   // the rows' tokens, back to back
  std::vector<PagesAhead> ahead;  // of Place::kDisk; handed over in order, before the moves
  std::vector<PageMove> moves;    // started when the step is launched, side by side with it
  std::vector<SlotId> released;   // slots whose sequence has left; applied last
  // Where experts are to lie (MoveExperts): moving them begins with this step. Empty: nothing new.
  std::vector<std::vector<int32_t>> experts;
  bool empty() const { return rows.empty() && moves.empty(); }
};

}  // namespace braid
