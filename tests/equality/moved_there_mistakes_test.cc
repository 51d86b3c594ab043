// Proof that the tests of pages on a device can see: with each mistake of moved_there.toml, and
// with none but those, bytes, drafts or the ends of moves are wrong. A process for each, which
// alone opens the device.
#include <gtest/gtest.h>

#include "tests/equality/moved_there.h"
#include "tests/mistakes/each_found.h"
#include "vulkan/test_transfer.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "moved_there.inc"
};

bool BytesArrive() {
  const auto gpu = vulkan::TransferCases::OpenAny();
  return vulkan::TransferCases::Failed(*gpu).empty();
}

bool PagesMove() {
  return BytesArrive() && PagesLeaveWithWhatWasRecorded() && MovesEndBeforeALoss() &&
         HeadsGoOnBehindRestoredPages();
}

TEST(MovedThereMistakes, AreFound) {
  if (Passed(StartWith(kNoMistake, [] { return ArithmeticsOnDevice().empty(); }, 60))) {
    GTEST_SKIP() << "no Vulkan device can be used";
  }
  ExpectEachFound(kMistakes, PagesMove);
}

}  // namespace
}  // namespace braid
