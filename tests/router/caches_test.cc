// Whatever happens to messages, the router knows what an engine holds; and this test would see
// mistakes (caches.toml).
#include "tests/router/caches.h"

#include "tests/mistakes/each_found.h"

namespace braid {
namespace {

constexpr int32_t kSeeds = 200;
constexpr Mistake kMistakes[] = {
#include "caches.inc"
};

TEST(Caches, AreKnownAsEnginesSay) { EXPECT_EQ(RunCaches(kSeeds), ""); }

TEST(CachesMistakes, AreFound) {
  ExpectEachFound(kMistakes, [] { return RunCaches(kSeeds).empty(); });
}

}  // namespace
}  // namespace braid
