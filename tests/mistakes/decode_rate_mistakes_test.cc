// Proof that the cases of test_decode_rate.h can see: one fails with each mistake of
// decode_rate.toml, and none without them.
#include "model/loading/test_decode_rate.h"
#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr Mistake kMistakes[] = {
#include "decode_rate.inc"
};

bool Holds() { return DecodeRateCases::Failed().empty(); }

TEST(DecodeRateMistakes, AreFound) { ExpectEachFound(kMistakes, Holds); }

}  // namespace
}  // namespace braid
