// Moving experts between ranks that can fail: without faults every placement is reached, with them
// the old one stays or the group ends, and no rank ever computes with wrong weights. And the proof
// that this can see: each mistake of moves.toml, planted alone, is found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/experts/world.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "moves.inc"
};

struct Seen {
  int64_t reached = 0, kept = 0, ended = 0, swaps = 0;
};

// A move in peace, one with the fault, and one in peace while late pieces may still be under way.
Status RunSeed(uint64_t seed, Fault fault, int32_t when, Seen* seen) {
  World world(seed);
  RETURN_IF_ERROR(world.Move(Fault::kNone, 0));
  World ahead = world;
  RETURN_IF_ERROR(ahead.Move(Fault::kNone, 0));
  const int32_t steps = ahead.steps();
  // At the begin, in the middle, in the last step.
  RETURN_IF_ERROR(world.Move(fault, when == 0 ? 0 : when == 1 ? steps / 2 : steps - 1));
  if (seen != nullptr)
    ++(world.ended() ? seen->ended : world.reached() ? seen->reached : seen->kept);
  if (world.ended()) return {};
  RETURN_IF_ERROR(world.Move(Fault::kNone, 0));
  if (seen != nullptr) seen->swaps += world.swaps();
  return {};
}

// Runs `seeds` of every fault in every phase; the first error.
Status RunFaults(uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const Fault fault : kFaults) {
      for (const int32_t when : {0, 1, 2}) {
        const Status status = RunSeed(seed, fault, when, nullptr);
        if (!status) return status;
      }
    }
  }
  return {};
}

TEST(Moves, FaultsInEveryPhaseLeaveTheOldPlacementOrEndTheGroup) {
  for (const Fault fault : kFaults) {
    for (const int32_t when : {0, 1, 2}) {
      Seen seen;
      for (uint64_t seed = 1; seed <= 100; ++seed) {
        const Status status = RunSeed(seed, fault, when, &seen);
        ASSERT_TRUE(status) << "fault " << static_cast<int>(fault) << " phase " << when << " seed "
                            << seed << ": " << status.error().message;
      }
      EXPECT_EQ(seen.ended > 50, fault == Fault::kKill);
      EXPECT_EQ(seen.kept > 10,
                fault != Fault::kKill && fault != Fault::kNone && fault != Fault::kRepeat)
          << static_cast<int>(fault) << " " << when << ": " << seen.kept << " kept";
    }
  }
}

TEST(Moves, EveryPlantedMistakeIsFound) {
  ExpectEachFound(kMistakes, [] { return RunFaults(60).ok(); });
}

}  // namespace
}  // namespace braid
