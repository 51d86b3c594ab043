// What prompts, sessions and texts are called: alike where they are alike, and otherwise not.
#include "router/placement/prompt_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "cache/block_keys.h"

namespace braid {
namespace {

TEST(PromptBlocks, OfTokensAreTheWholeOnesOfTheEnginesCache) {
  std::vector<TokenId> tokens(3 * kBlockTokens - 1);
  std::iota(tokens.begin(), tokens.end(), 5);
  const PrefixSpace space{.tenant = "ann", .salt = "s"};
  PromptKeys keys{.blocks = {1, 2, 3, 4}, .tokens = 7};
  SetTokens(tokens, space, &keys);
  EXPECT_EQ(keys.tokens, std::ssize(tokens));
  std::vector<uint64_t> expected;
  BlockKey key = RootBlockKey(space);
  for (ptrdiff_t begin : {0, int{kBlockTokens}}) {
    BlockTokens block;
    std::copy_n(tokens.begin() + begin, kBlockTokens, block.begin());
    key = ChildBlockKey(key, block);
    expected.push_back(key.low);
  }
  EXPECT_EQ(keys.blocks, expected);
  SetTokens(std::span(tokens).first(kBlockTokens), {}, &keys);
  ASSERT_EQ(keys.blocks.size(), 1u);
  EXPECT_NE(keys.blocks[0], expected[0]) << "another space";
}

TEST(PromptBlocks, EveryByteOfATextAndItsLengthChangeItsHash) {
  std::set<uint64_t> seen;
  const std::string text = "a text of 21 bytes...";
  for (size_t size = 0; size <= text.size(); ++size) seen.insert(HashText(1, text.substr(0, size)));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    seen.insert(HashText(1, other));
  }
  for (const size_t zeros : {1, 2, 8, 9}) seen.insert(HashText(1, std::string(zeros, '\0')));
  seen.insert(HashText(2, text));
  EXPECT_EQ(seen.size(), 2 * text.size() + 1 + 4 + 1);
  EXPECT_EQ(HashText(1, text), HashText(1, std::string(text)));
}

TEST(PromptBlocks, ASessionIsATenantsOwnAndNoneHasNoName) {
  EXPECT_EQ(SessionKey("ann", ""), 0u);
  EXPECT_NE(SessionKey("ann", "chat"), 0u);
  EXPECT_EQ(SessionKey("ann", "chat"), SessionKey("ann", "chat"));
  EXPECT_NE(SessionKey("ann", "chat"), SessionKey("bob", "chat"));
  EXPECT_NE(SessionKey("ann", "chat"), SessionKey("ann", "chat2"));
  EXPECT_NE(SessionKey("ann", "chat"), SessionKey("annc", "hat"));
  for (int i = 0; i < 64; ++i) EXPECT_NE(SessionKey("", std::to_string(i)), 0u);
}

}  // namespace
}  // namespace braid
