// Proof that the exploration can see: it finds each mistake of protocol.toml, and nothing without
// them.
#include "tests/handoff/choice_checks.h"
#include "tests/handoff/deadline_checks.h"
#include "tests/handoff/explore.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "protocol.inc"
};

bool Holds() {
  using handoff::Bounds;
  for (const Bounds& bounds :
       {Bounds{.prefills = 2, .decodes = 1, .rooms = 1, .parts = 2, .faults = 2},
        Bounds{.prefills = 1, .decodes = 1, .rooms = 2, .parts = 1, .faults = 1}}) {
    if (!handoff::Explore(bounds).violation.empty()) return false;
  }
  return handoff::BrokenByChoice().empty() && handoff::BrokenByDeadlines().empty();
}

TEST(HandoffMistakes, AreFound) { ExpectEachFound(kMistakes, Holds); }

}  // namespace
}  // namespace braid
