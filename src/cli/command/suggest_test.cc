// Which words are near enough to suggest.
#include "cli/command/suggest.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(Suggest, CountsASwapAsOneEdit) {
  EXPECT_EQ(EditDistance("serve", "serve"), 0u);
  EXPECT_EQ(EditDistance("sevre", "serve"), 1u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
}

TEST(Suggest, FindsTheNearestWordAndNothingFarAway) {
  const std::string known[] = {"serve", "score", "run", "--max-tokens", "--max-model-len"};
  EXPECT_EQ(Nearest("srve", known), "serve");
  EXPECT_EQ(Nearest("scoer", known), "score");
  EXPECT_EQ(Nearest("--max-token", known), "--max-tokens");
  EXPECT_EQ(Nearest("--max-mod", known), "--max-model-len");
  EXPECT_EQ(Nearest("frobnicate", known), "");
}

}  // namespace
}  // namespace braid
