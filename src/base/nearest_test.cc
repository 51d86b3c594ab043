// Which names are near enough to suggest.
#include "base/nearest.h"

#include <gtest/gtest.h>

#include <vector>

namespace braid {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("serve", "serve", 9), 0u);
  EXPECT_EQ(EditDistance("sevre", "serve", 9), 1u);
  EXPECT_EQ(EditDistance("", "abc", 9), 3u);
  EXPECT_EQ(EditDistance("abc", "", 9), 3u);
  EXPECT_EQ(EditDistance("abc", "ab", 9), 1u);
  EXPECT_EQ(EditDistance("kitten", "sitting", 9), 3u);
}

TEST(EditDistance, IsNeverMoreThanTheLimit) {
  EXPECT_EQ(EditDistance("kitten", "sitting", 3), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting", 2), 2u);
  EXPECT_EQ(EditDistance("abcdefgh", "stuvwxyz", 2), 2u);
  // The swap at the end is one edit although its first row has none left.
  EXPECT_EQ(EditDistance("abdc", "abcd", 2), 1u);
}

std::string Near(std::string_view name, const std::vector<std::string>& known, size_t edits_max) {
  const std::string* nearest = NearestName(name, known, edits_max);
  return nearest ? *nearest : "none";
}

TEST(NearestName, IsTheFirstWithTheFewestEdits) {
  const std::vector<std::string> known = {"serves", "serve", "store", "score"};
  EXPECT_EQ(Near("srve", known, 1), "serve");
  EXPECT_EQ(Near("scoer", known, 1), "score");
  EXPECT_EQ(Near("stare", known, 2), "store");
  EXPECT_EQ(Near("server", known, 1), "serves");
}

TEST(NearestName, IsNoneBeyondTheEditsAllowed) {
  EXPECT_EQ(Near("sxxve", {"serve"}, 2), "serve");
  EXPECT_EQ(Near("sxxve", {"serve"}, 1), "none");
  EXPECT_EQ(Near("frobnicate", {"serve", "score", "run"}, 3), "none");
  EXPECT_EQ(Near("serve", {}, 3), "none");
}

TEST(NearestName, CountsANameThatGoesOnAsOneEdit) {
  const std::vector<std::string> known = {"--max-tokens", "--max-model-len"};
  EXPECT_EQ(Near("--max-tok", known, 1), "--max-tokens");
  EXPECT_EQ(Near("--max-mod", known, 1), "--max-model-len");
  EXPECT_EQ(Near("--", known, 1), "none");
  EXPECT_EQ(Near("run", {"runs", "run"}, 1), "run");
}

TEST(NearestName, LeavesLongNamesAndLongListsAlone) {
  const std::string longest(160, 'a');
  EXPECT_EQ(Near(longest, {longest}, 1), longest);
  EXPECT_EQ(Near(longest + "a", {longest + "a"}, 1), "none");
  std::vector<std::string> known(512, "xyz");
  known.push_back("abd");
  EXPECT_EQ(Near("abc", known, 1), "none");
  known.erase(known.begin());
  EXPECT_EQ(Near("abc", known, 1), "abd");
}

}  // namespace
}  // namespace braid
