// Blocks that engines publish are found by the keys of prompts, whatever the blocks' size, and are
// gone when the engine says so.
#include "router/placement/held_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "router/placement/prompt_blocks.h"

namespace braid {
namespace {

std::vector<TokenId> Tokens(int32_t count, int32_t first = 10) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<uint64_t> KeysOf(const std::vector<TokenId>& tokens, const PrefixSpace& space = {}) {
  PromptKeys keys;
  SetTokens(tokens, space, &keys);
  return keys.blocks;
}

kv::EventBatch Stored(std::vector<uint64_t> hashes, const std::vector<TokenId>& tokens,
                      std::optional<uint64_t> parent = {}, int32_t size = 64) {
  return {.dp_rank = 0,
          .events = {kv::BlocksStored{std::move(hashes), parent, tokens, size, true}}};
}

class Held : public testing::Test {
 protected:
  int64_t Resumable(const std::vector<TokenId>& tokens) const {
    return known.Find(KeysOf(tokens)).resumable;
  }
  void Apply(const kv::EventBatch& batch) { held.Apply(batch, known); }

  KnownPrefixes known{1000};
  HeldBlocks held;
};

TEST_F(Held, HashesOfThisProgramAreTheKeysOfPrompts) {
  const auto tokens = Tokens(3 * 64);
  Apply(Stored(KeysOf(tokens), tokens));
  EXPECT_EQ(Resumable(tokens), 3);
  EXPECT_EQ(Resumable(Tokens(4 * 64)), 3);
  EXPECT_EQ(Resumable(Tokens(2 * 64)), 0) << "there is a state at the end only";
  // From then on tokens are not looked at: blocks are known by their hashes.
  const auto others = Tokens(64, 5000);
  Apply(Stored(KeysOf(others), Tokens(64, 9000)));
  EXPECT_EQ(Resumable(others), 1);
  EXPECT_EQ(Resumable(Tokens(64, 9000)), 0);
  const PrefixSpace salted{.tenant = "ann", .salt = "s"};
  kv::BlocksStored run{KeysOf(tokens, salted), {}, tokens, 64, false};
  Apply({.dp_rank = 0, .events = {run}});
  EXPECT_EQ(known.Find(KeysOf(tokens, salted)).resumable, 3);
  EXPECT_EQ(known.Find(KeysOf(tokens, {.tenant = "bob", .salt = {}})).blocks, 0);
}

TEST_F(Held, APrivateBlockThatComesFirstIsKnownByItsHash) {
  const auto tokens = Tokens(64);
  const PrefixSpace mine{.tenant = "ann", .salt = {}};
  Apply({.dp_rank = 0, .events = {kv::BlocksStored{KeysOf(tokens, mine), {}, tokens, 64, false}}});
  EXPECT_EQ(known.Find(KeysOf(tokens, mine)).resumable, 1);
  EXPECT_EQ(Resumable(tokens), 0);
}

TEST_F(Held, BlocksOfAnySizeAreCountedInOurs) {
  for (const int32_t size : {16, 48, 64, 128}) {
    held.Clear();
    known.Clear();
    const auto tokens = Tokens(384);
    std::vector<uint64_t> names(static_cast<size_t>(384 / size));
    std::iota(names.begin(), names.end(), 1000);
    // In two runs, the second behind the first.
    const auto half = static_cast<ptrdiff_t>(names.size() / 2);
    Apply(Stored({names.begin(), names.begin() + half},
                 {tokens.begin(), tokens.begin() + half * size}, {}, size));
    Apply(Stored({names.begin() + half, names.end()}, {tokens.begin() + half * size, tokens.end()},
                 names[static_cast<size_t>(half - 1)], size));
    EXPECT_EQ(known.Find(KeysOf(tokens)).blocks, 6) << size;
    EXPECT_EQ(Resumable(tokens), 6) << size;
    Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{names.back()}}}});
    EXPECT_EQ(known.Find(KeysOf(tokens)).blocks, size == 128 ? 4 : 5) << size;
  }
}

TEST_F(Held, WhatFollowsUnknownBlocksIsNotNamed) {
  Apply(Stored({7}, Tokens(64), 6));
  EXPECT_EQ(known.size(), 0);
  EXPECT_EQ(held.size(), 1);
  Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{7, 8}}}});
  EXPECT_EQ(held.size(), 0);
}

TEST_F(Held, PromptsPartWhereAStateIsKept) {
  auto one = Tokens(3 * 64), other = one;
  for (size_t i = 128; i < other.size(); ++i) other[i] += 5000;
  const auto keys = KeysOf(one), others = KeysOf(other);
  Apply(Stored(keys, one));
  EXPECT_EQ(Resumable(Tokens(2 * 64)), 0);
  Apply(Stored({others[2]}, {other.begin() + 128, other.end()}, keys[1]));
  EXPECT_EQ(Resumable(Tokens(2 * 64)), 2);
  EXPECT_EQ(Resumable(other), 3);
}

TEST_F(Held, ABlockWhoseFollowerIsGoneIsNoPlaceWherePromptsPart) {
  const auto one = Tokens(2 * 64);
  auto other = one;
  for (size_t i = 64; i < other.size(); ++i) other[i] += 5000;
  const auto keys = KeysOf(one), others = KeysOf(other);
  Apply(Stored(keys, one));
  Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{keys[1]}}}});
  Apply(Stored({others[1]}, {other.begin() + 64, other.end()}, keys[0]));
  EXPECT_EQ(Resumable(Tokens(64)), 0);
  EXPECT_EQ(Resumable(other), 2);
}

TEST_F(Held, ABlockIsThereWhileSomeRankHasIt) {
  const auto tokens = Tokens(64);
  kv::EventBatch batch = Stored(KeysOf(tokens), tokens);
  Apply(batch);
  Apply(batch);  // said twice, it is there once
  batch.dp_rank = 1;
  Apply(batch);
  Apply({.dp_rank = 0, .events = {kv::BlocksCleared{}}});
  EXPECT_EQ(Resumable(tokens), 1);
  Apply({.dp_rank = -1, .events = {kv::BlocksCleared{}}});
  EXPECT_EQ(Resumable(tokens), 0);
  EXPECT_EQ(held.size(), 0);
}

TEST_F(Held, EachKeyOfABlockIsThereWhileSomeRankHasIt) {
  const auto tokens = Tokens(192);
  kv::EventBatch batch = Stored({1}, tokens, {}, 192);
  Apply(batch);
  batch.dp_rank = 1;
  Apply(batch);
  Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{1}}}});
  EXPECT_EQ(known.Find(KeysOf(tokens)).blocks, 3);
  Apply({.dp_rank = 1, .events = {kv::BlocksRemoved{{1}}}});
  EXPECT_EQ(known.size(), 0);
}

TEST_F(Held, NoMoreBlocksAreFollowedThanTheMost) {
  held = HeldBlocks(3);
  kv::EventBatch batch = Stored({1, 2}, Tokens(32), {}, 16);
  Apply(batch);
  batch.dp_rank = 1;
  Apply(batch);
  EXPECT_EQ(held.size(), 3) << "of both ranks";
  held.Clear();
  Apply(Stored({1, 2, 3}, Tokens(3 * 256), {}, 256));
  EXPECT_EQ(held.size(), 1) << "it has four keys";
  held.Clear();
  Apply(Stored({1, 2}, Tokens(2 * 192), {}, 192));
  EXPECT_EQ(held.size(), 1) << "it has three";
}

// What is removed makes room.
TEST_F(Held, BlocksThatComeAndGoAreFollowed) {
  held = HeldBlocks(3);
  for (int32_t i = 0; i < 10; ++i) {
    const auto tokens = Tokens(64, 1000 * i);
    Apply(Stored(KeysOf(tokens), tokens));
    EXPECT_EQ(held.size(), 1);
    EXPECT_EQ(Resumable(tokens), 1) << i;
    Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{KeysOf(tokens)}}});
    EXPECT_EQ(known.size(), 0);
  }
}

TEST_F(Held, NoMoreRanksAreFollowedThanTheMost) {
  const auto tokens = Tokens(64);
  kv::EventBatch batch = Stored(KeysOf(tokens), tokens);
  const auto ranks = static_cast<int32_t>(HeldBlocks::kRanksMax);
  for (int32_t rank = 0; rank < ranks + 2; ++rank) {
    batch.dp_rank = 3 * rank;
    Apply(batch);
  }
  EXPECT_EQ(held.size(), ranks);
  batch.dp_rank = 3 * (ranks - 1);
  batch.events = {kv::BlocksRemoved{KeysOf(tokens)}};
  Apply(batch);
  EXPECT_EQ(held.size(), ranks - 1) << "those that are followed are heard";
  EXPECT_EQ(Resumable(tokens), 1) << "other ranks have it";
}

// An engine publishes a block once more when a state at it was stored.
TEST_F(Held, ABlockIsAnEndAgainWhenWhatFollowedItIsGone) {
  const auto tokens = Tokens(128);
  const auto keys = KeysOf(tokens);
  Apply(Stored(keys, tokens));
  const kv::EventBatch first = Stored({keys[0]}, Tokens(64));
  Apply(first);
  EXPECT_EQ(Resumable(Tokens(64)), 0) << "the second block follows it";
  Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{keys[1]}}}});
  Apply(Stored({keys[1]}, {tokens.begin() + 64, tokens.end()}, keys[0]));
  EXPECT_EQ(Resumable(Tokens(64)), 0) << "one block follows it again: prompts do not part there";
  Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{keys[1]}}}});
  Apply(first);
  EXPECT_EQ(Resumable(Tokens(64)), 1);
}

TEST_F(Held, WhatFollowsABlockWithinABatchIsSeenWhateverTheOrder) {
  const auto tokens = Tokens(128);
  const auto keys = KeysOf(tokens);
  kv::EventBatch batch = Stored({keys[0]}, Tokens(64));
  batch.events.push_back(
      kv::BlocksStored{{keys[1]}, keys[0], {tokens.begin() + 64, tokens.end()}, 64, true});
  batch.events.push_back(kv::BlocksStored{});
  batch.events.insert(batch.events.begin(), kv::BlocksRemoved{{7}});
  Apply(batch);
  EXPECT_EQ(Resumable(Tokens(64)), 0);
  EXPECT_EQ(Resumable(tokens), 2);
}

// Their tokens alone do not name them, and their hashes are those of another program.
TEST_F(Held, PrivateBlocksOfAnotherSizeAreNotNamed) {
  const auto tokens = Tokens(64);
  Apply({.dp_rank = 0, .events = {kv::BlocksStored{{1, 2}, {}, tokens, 32, false}}});
  EXPECT_EQ(held.size(), 2);
  EXPECT_EQ(known.size(), 0);
  // Nor is what follows them.
  Apply(Stored({3}, tokens, 2));
  EXPECT_EQ(held.size(), 3);
  EXPECT_EQ(known.size(), 0);
}

TEST_F(Held, BlocksThatAreGoneMakeRoomForOthers) {
  held = HeldBlocks(3);
  for (int32_t i = 0; i < 10; ++i) {
    const auto tokens = Tokens(64, 100 * i);
    const uint64_t hash = 1000 + static_cast<uint64_t>(i);
    Apply(Stored({hash}, tokens));
    EXPECT_EQ(held.size(), 1) << i;
    EXPECT_EQ(Resumable(tokens), 1) << i;
    Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{hash}}}});
    EXPECT_EQ(Resumable(tokens), 0) << i;
  }
}

TEST(PromptBlocks, AreTheWholeOnesOfItsTokens) {
  PromptKeys keys{.blocks = {7}, .tokens = 7};
  SetTokens(Tokens(130), {}, &keys);
  EXPECT_EQ(keys.tokens, 130);
  EXPECT_EQ(keys.blocks.size(), 2u);
  EXPECT_EQ(KeysOf(Tokens(128)), keys.blocks);
  EXPECT_EQ(KeysOf(Tokens(127)), std::vector<uint64_t>{keys.blocks.front()});
  SetTokens({}, {}, &keys);
  EXPECT_EQ(keys.tokens, 0);
  EXPECT_TRUE(keys.blocks.empty());
}

// The network thread clears: a cache of many blocks must not take longer than to tell of them.
TEST_F(Held, ManyBlocksAreClearedInLessTimeThanTheyAreStored) {
  constexpr int32_t kBlocks = 1 << 17;
  std::vector<uint64_t> hashes(kBlocks);
  std::iota(hashes.begin(), hashes.end(), 1);
  const kv::EventBatch all = Stored(hashes, Tokens(kBlocks), {}, 1);
  double least = 1e9;  // of the times that a clear takes, in those that a store takes
  for (int i = 0; i < 3; ++i) {
    const int64_t begin_us = MonotonicUs();
    Apply(all);
    const int64_t stored_us = MonotonicUs();
    ASSERT_EQ(held.size(), kBlocks);
    Apply({.dp_rank = 0, .events = {kv::BlocksCleared{}}});
    ASSERT_EQ(held.size(), 0);
    least = std::min(least, static_cast<double>(MonotonicUs() - stored_us) /
                                static_cast<double>(stored_us - begin_us));
  }
  EXPECT_LT(least, 2);
}

TEST_F(Held, WhatWasSentIsKnownUntilTheEngineSaysOtherwise) {
  const auto tokens = Tokens(128);
  const auto keys = KeysOf(tokens);
  known.Add(keys);
  EXPECT_EQ(Resumable(tokens), 2) << "it is on its way";
  Apply(Stored(keys, tokens));
  EXPECT_EQ(Resumable(tokens), 2);
  Apply({.dp_rank = 0, .events = {kv::BlocksRemoved{{keys[1], keys[0]}}}});
  EXPECT_EQ(known.Find(keys).blocks, 0);
}

}  // namespace
}  // namespace braid
