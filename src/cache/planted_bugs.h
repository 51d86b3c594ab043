// The mistakes that somebody could make in the cache and the scheduler, one name each; see
// cache/planted_bug.h.
#pragma once

#include <cstdint>

namespace braid {

enum class PlantedBug : uint8_t {
  kNone,
  kSnapshotNotRestored,     // the executor is not told where the state of a hit is
  kPublishedTooEarly,       // blocks are published when their step is planned
  kBoundaryOffByOne,        // a state is published one block before where it belongs
  kFreedInFlight,           // states are given back while the next row still reads them
  kStaleAfterPreemption,    // a resumed request's table misses the blocks it found again
  kWrongTenant,             // all tenants share one space
  kWrongDpRank,             // prefixes are looked up at the first rank
  kPromotedTooShallow,      // a branch snapshot is filed one block too early
  kPinnedEvicted,           // eviction ignores pins
  kNotZeroed,               // the executor keeps what a new block held before
  kPublishedTwice,          // a second request's block takes the place of the canonical one
  kHeadroomNotReserved,     // a request preempted often comes back without all it can need
  kSharedFreed,             // a request frees the blocks that it only borrowed
  kPinsForgotten,           // a request that ends leaves its pins
  kFailedRowPublished,      // a row that failed publishes what it wrote
  kTokensNotCompared,       // a weak hash alone decides
  kWholePromptReused,       // no token is left to compute
  kInteriorEvicted,         // keys and values are evicted from the middle of a prefix
  kLastTokenPublished,      // the sampled token counts as stored
  kSlotReusedInFlight,      // a slot is free before the last row has landed
  kPreemptedInFlight,       // a victim's blocks are free before its rows have landed
  kIdleRankLeftOut,         // a plan does not count the rows of a rank that has none
  kStaleToken,              // a row repeats the last known token instead of the one in flight
  kDraftPublished,          // guesses complete a block, which is published before they are accepted
  kRefusedCommitted,        // guesses count as computed whether they were accepted or not
  kRefusedKept,             // the executor keeps the rows of refused guesses
  kCommitOffByOne,          // one accepted guess too few counts as computed
  kDraftsNotAwaited,        // a row is planned over guesses that are in flight
  kStopAmongDraftsMissed,   // only the last token of a row is looked at for an end
  kReadBeforeArrival,       // pages are published when they are awaited, not when they are there
  kSentPagesFreed,          // pages are given back when they begin to be sent
  kAwaitedPagesFreed,       // an abort gives pages back that are still being written
  kTransferFailureIgnored,  // pages that did not arrive are used
  kFollowerNotWoken,        // who waits for a prefix is left waiting when its leader goes
  kFollowsAnotherTenant,    // a request waits for the same tokens of another tenant
  kFollowerTooEarly,        // a follower is admitted when its prefix is planned
  kNoStateForFollower,      // the leader leaves no state where its follower goes on
  kCount,
};

}  // namespace braid
