// Pieces by example: their sizes, and weights that share an address.
#include "runtime/device/weight_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Of 100 bytes with weights at these places: where each piece begins, and its bytes.
std::vector<std::pair<int64_t, int64_t>> Cut(const std::vector<int64_t>& places,
                                             int64_t bytes_max) {
  static constexpr std::array<std::byte, 100> kMemory = {};
  std::vector<const std::byte*> begins;
  for (const int64_t place : places) begins.push_back(kMemory.data() + place);
  std::vector<std::pair<int64_t, int64_t>> cut;
  for (const auto piece : WeightPieces(begins, kMemory.data() + kMemory.size(), bytes_max)) {
    cut.emplace_back(piece.data() - kMemory.data(), std::ssize(piece));
  }
  return cut;
}

TEST(WeightPieces, HaveAsManyWeightsAsTheirBytesAllow) {
  EXPECT_THAT(Cut({60, 0, 10, 40}, 50), ElementsAre(Pair(0, 40), Pair(40, 20), Pair(60, 40)));
  EXPECT_THAT(Cut({60, 0, 10, 40}, 60), ElementsAre(Pair(0, 60), Pair(60, 40)));
  EXPECT_THAT(Cut({60, 0, 10, 40}, 100), ElementsAre(Pair(0, 100)));
  EXPECT_THAT(Cut({20}, 100), ElementsAre(Pair(20, 80)));
  EXPECT_THAT(Cut({}, 100), IsEmpty());
}

TEST(WeightPieces, AWeightThatIsLargerHasAPieceOfItsOwn) {
  EXPECT_THAT(Cut({0, 10, 90}, 30), ElementsAre(Pair(0, 10), Pair(10, 80), Pair(90, 10)));
}

// The embedding is its own piece and is named twice.
TEST(WeightPieces, WeightsThatShareAnAddressAreOne) {
  EXPECT_THAT(Cut({0, 60, 0}, 30), ElementsAre(Pair(0, 60), Pair(60, 40)));
  EXPECT_THAT(Cut({30, 30, 0}, 30), ElementsAre(Pair(0, 30), Pair(30, 70)));
}

}  // namespace
}  // namespace braid
