// Proof that the cases of test_device_plan.h can see: one fails with each mistake of
// device_plan.toml, and none without them.
#include "model/loading/test_device_plan.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "device_plan.inc"
};

bool Holds() { return DevicePlanCases::Failed().empty(); }

TEST(DevicePlanMistakes, AreFound) { ExpectEachFound(kMistakes, Holds); }

}  // namespace
}  // namespace braid
