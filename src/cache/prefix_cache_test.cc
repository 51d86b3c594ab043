// Which prefixes are found, which blocks go first, and who owns what in between. Numbers in names
// (C1.n, C2.n, C3.n, C5.n) are those of the behavioural scenarios.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"
#include "cache/block_tables.h"
#include "cache/page_directory.h"

namespace braid {
namespace {

using Text = std::vector<TokenId>;

// Blocks of the named kinds: "ab" are two blocks, of tokens 'a' and of tokens 'b'.
Text Blocks(const std::string& kinds) {
  Text text;
  for (char kind : kinds) text.insert(text.end(), kBlockTokens, kind);
  return text;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  explicit PrefixCacheTest(int32_t packed = 1, int32_t pages = 31)
      : geometry_{
            .groups = {{"full", GroupKind::kFull, 64, packed}, {"state", GroupKind::kState, 64, 1}},
            .page_bytes = 64 * packed,
            .pages = pages} {}

  // The path of a text that was computed in one step, with a state at its end.
  struct Holder {
    Holder(PrefixCacheTest& t, const std::string& kinds, int64_t epoch,
           Snapshot snapshot = Snapshot::kPassing)
        : test(t), tables(t.geometry_), text(Blocks(kinds)) {
      const auto size = static_cast<int32_t>(text.size());
      const PrefixMatch match = t.Match(text);
      tables.Enter({}, match, t.cache_);
      tables.Stamp(match, epoch, t.cache_);
      std::vector<TableChange> changes;
      EXPECT_TRUE(tables.Cover(match.tokens, size, t.cache_, changes));
      tables.Publish(match.tokens, size, {text, {}}, snapshot, t.cache_);
    }
    ~Holder() { tables.ReleaseAll(test.cache_); }
    PrefixCacheTest& test;
    BlockTables tables;
    Text text;
  };
  void Store(const std::string& kinds, int64_t epoch) { Holder(*this, kinds, epoch); }

  PrefixMatch Match(const Text& text) const { return cache_.Match({}, {text, {}}, 1 << 20); }
  // How many blocks of a longer text are found.
  int32_t Found(const std::string& kinds) const {
    Text text = Blocks(kinds);
    text.push_back('.');
    return Match(text).tokens / kBlockTokens;
  }
  int32_t Known(const std::string& kinds) const {
    Text text = Blocks(kinds);
    text.push_back('.');
    return Match(text).known / kBlockTokens;
  }
  // Blocks of a group that are neither in use nor stored.
  void MakeRoom(int32_t full, int32_t state) {
    EXPECT_TRUE(cache_.MakeRoom({{full, state}}));
    EXPECT_TRUE(cache_.Audit().ok()) << cache_.Audit().error().message;
  }
  int32_t Free() const {
    return cache_.pool().pages_total() - cache_.pool().pages_used() - cache_.pool().pages_cached();
  }

  const CacheGeometry geometry_;
  PrefixCache cache_{geometry_};
};

TEST_F(PrefixCacheTest, C1_7_ABlockOfSeveralReadersLivesUntilTheLastHasLeft) {
  Store("ab", 1);
  {
    const Holder one(*this, "abx", 2);
    {
      const Holder two(*this, "aby", 3);
      EXPECT_FALSE(cache_.MakeRoom({{28, 0}}));
    }
    EXPECT_FALSE(cache_.MakeRoom({{28, 0}}));
    EXPECT_EQ(Found("abx"), 3);
  }
  MakeRoom(30, 0);
  EXPECT_EQ(Found("abx"), 0);
}

TEST_F(PrefixCacheTest, C1_10_WhoLeavesGivesBackWhatIsHisAndLeavesWhatIsPublished) {
  {
    Holder holder(*this, "abc", 1);
    EXPECT_TRUE(holder.tables.Reserve({{9, 4}}, cache_));
    EXPECT_EQ(cache_.pool().pages_used(), 13);
  }
  EXPECT_EQ(cache_.pool().pages_used(), 0);
  EXPECT_EQ(cache_.pool().pages_cached(), 4);
  cache_.Flush();
  EXPECT_EQ(Free(), 30);
  EXPECT_EQ(cache_.index().nodes(), 0);
}

TEST_F(PrefixCacheTest, C2_11_C2_13_AHitEndsAtTheDeepestStateAndSaysHowFarKeysGo) {
  Store("ab", 1);
  Store("abcd", 2);
  EXPECT_EQ(Found("abc"), 2);
  EXPECT_EQ(Known("abc"), 3);
  EXPECT_EQ(Found("abcd"), 4);
  EXPECT_EQ(Known("abcd"), 4);
}

TEST_F(PrefixCacheTest, C2_12_C2_26_KeysWithoutAStateAreNoHit) {
  Store("abcd", 1);
  EXPECT_EQ(Found("abc"), 0);
  EXPECT_EQ(Known("abc"), 3);
  EXPECT_EQ(Match(Blocks("abc.")).stop, ReuseStop::kNoSnapshot);
  EXPECT_EQ(Match(Blocks("abcd..")).stop, ReuseStop::kNeverSeen);
  EXPECT_EQ(Match(Blocks("x.")).stop, ReuseStop::kNeverSeen);
}

TEST_F(PrefixCacheTest, C2_16_LessThanABlockIsNotLookedUp) {
  Store("ab", 1);
  for (size_t tokens : {1, 63, 64}) {
    const PrefixMatch match = Match(Text(tokens, 'a'));
    EXPECT_EQ(match.tokens, 0) << tokens;
    EXPECT_EQ(match.stop, ReuseStop::kComplete) << tokens;
  }
}

TEST_F(PrefixCacheTest, C2_23_ADeepStateIsFoundPastBoundariesWithoutOne) {
  Store("abcdef", 1);
  EXPECT_EQ(Found("abcdefg"), 6);
}

// Keys of another text lead nowhere: they are taken as they are, and extended where they end.
TEST_F(PrefixCacheTest, ASearchThatIsRepeatedHashesNothingAgain) {
  Store("abc", 1);
  Text text = Blocks("abcd");
  PrefixKeys keys;
  EXPECT_EQ(cache_.Match({}, {text, {}}, 128, keys).known, 128);
  EXPECT_EQ(keys.blocks.size(), 2u);
  EXPECT_EQ(cache_.Match({}, {text, {}}, 1000, keys).tokens, 192);
  EXPECT_EQ(keys.blocks.size(), 3u);
  EXPECT_EQ(cache_.Match({}, {text, {}}, 1000, keys).tokens, 192);
  PrefixKeys others;
  cache_.Match({}, {Blocks("xyz"), {}}, 1000, others);
  EXPECT_EQ(cache_.Match({}, {text, {}}, 1000, others).known, 0);
}

TEST_F(PrefixCacheTest, SpacesComeAndGoInAnyOrder) {
  PrefixIndex index(geometry_);
  std::vector<PrefixNodeId> roots;
  for (int32_t i = 0; i < 100; ++i) roots.push_back(index.Root({.tenant = std::to_string(i)}));
  for (size_t i = 0; i < 100; i += 3) index.Unrefer(roots[i]);
  for (int32_t i = 1; i < 100; i += 3) {
    const PrefixNodeId again = index.Root({.tenant = std::to_string(i)});
    EXPECT_EQ(again, roots[static_cast<size_t>(i)]);
    index.Unrefer(again);
  }
  EXPECT_EQ(index.nodes(), 66);
  for (size_t i = 0; i < 100; ++i) {
    if (i % 3 != 0) index.Unrefer(roots[i]);
  }
  EXPECT_EQ(index.nodes(), 0);
}

// Against a map of what is there: nodes of the index are found after any others have gone, and
// however many there are.
TEST_F(PrefixCacheTest, NodesThatComeAndGoAreFoundByTheirTokens) {
  PrefixIndex index(geometry_);
  const PrefixNodeId root = index.Root({});
  Rng rng(11);
  std::map<int32_t, PrefixNodeId> there;
  const auto tokens_of = [](int32_t i) {
    BlockTokens tokens;
    for (size_t n = 0; n < tokens.size(); ++n) tokens[n] = static_cast<TokenId>(n) * 7 + i;
    return tokens;
  };
  for (int32_t round = 0; round < 20000; ++round) {
    const auto i = static_cast<int32_t>(rng.Below(6000));
    const PrefixNodeId node = index.Child(root, tokens_of(i));
    const auto [at, added] = there.try_emplace(i, node);
    ASSERT_EQ(node, at->second) << "block " << i << " has two nodes";
    if (!added) index.Unrefer(node);
    if (added || rng.Below(2) == 0) continue;
    index.Unrefer(node);
    there.erase(at);
  }
  EXPECT_GT(there.size(), 1000u);
  ASSERT_EQ(index.nodes(), static_cast<int64_t>(there.size()) + 1);
  for (const auto& [i, node] : there) {
    ASSERT_EQ(index.Child(root, tokens_of(i)), node) << i;
    index.Unrefer(node);
    index.Unrefer(node);
  }
  index.Unrefer(root);
  EXPECT_EQ(index.nodes(), 0);
}

TEST_F(PrefixCacheTest, NothingIsKeptOfWhatWasEvicted) {
  for (int i = 0; i < 20; ++i) Store(std::string{'a', static_cast<char>('a' + i)}, i);
  EXPECT_GT(cache_.evictions(GroupKind::kFull), 0);
  MakeRoom(30, 0);
  EXPECT_EQ(cache_.index().nodes(), 0);
  EXPECT_EQ(cache_.index().parts(GroupKind::kFull), 0);
  EXPECT_EQ(cache_.index().parts(GroupKind::kState), 0);
  EXPECT_EQ(Free(), 30);
}

// Against a list of what was stored: the deepest boundary at which some text ended, up to which
// the tokens agree. Nothing is evicted, so nothing else may be found.
TEST_F(PrefixCacheTest, C2_19_FindsWhatALinearSearchFinds) {
  Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    PrefixCache cache(geometry_);
    std::vector<std::string> stored;
    for (int64_t i = 0; i < 6; ++i) {
      std::string kinds;
      for (int64_t n = 1 + rng.Below(4); n > 0; --n) kinds += "ab"[rng.Below(2)];
      const Text text = Blocks(kinds);
      const auto size = static_cast<int32_t>(text.size());
      BlockTables tables(geometry_);
      PrefixMatch match = cache.Match({}, {text, {}}, size);
      int32_t brute = 0;
      for (const std::string& s : stored) {
        const auto depth = static_cast<int32_t>(s.size());
        if (kinds.starts_with(s) && depth * kBlockTokens < size) brute = std::max(brute, depth);
      }
      ASSERT_EQ(match.tokens, brute * kBlockTokens) << kinds;
      tables.Enter({}, match, cache);
      tables.Stamp(match, i, cache);
      std::vector<TableChange> changes;
      ASSERT_TRUE(tables.Cover(match.tokens, size, cache, changes));
      tables.Publish(match.tokens, size, {text, {}}, Snapshot::kPassing, cache);
      tables.ReleaseAll(cache);
      ASSERT_TRUE(cache.Audit().ok()) << cache.Audit().error().message;
      stored.push_back(kinds);
    }
  }
}

TEST_F(PrefixCacheTest, C2_27_ALookUpThatIsGivenUpLeavesTheOrderOfEviction) {
  Store("aa", 1);
  Store("bb", 2);
  Text text = Blocks("aa");
  text.push_back('.');
  BlockTables tables(geometry_);
  tables.Enter({}, Match(text), cache_);  // admission fails: no Stamp
  tables.ReleaseAll(cache_);
  MakeRoom(30 - 3, 0);
  EXPECT_EQ(Found("aa"), 0);
  EXPECT_EQ(Found("bb"), 2);
}

TEST_F(PrefixCacheTest, C3_37_ASnapshotThatSomebodyUsedKeepsItsRank) {
  Store("aa", 1);
  Store("aab", 2);  // resumes at "aa", which is now superseded, and hit
  Store("c", 3);
  Store("cd", 4);
  Store("cde", 5);
  // "aa" and "c" were hit. Nobody has used "aab", "cd" or "cde".
  MakeRoom(30 - 10, 0);
  EXPECT_EQ(Found("aa"), 2);
  EXPECT_EQ(Found("c"), 1);
}

TEST_F(PrefixCacheTest, C3_42_OneBlockStaysOfTwoThatWereComputedAtTheSameTime) {
  {
    const Holder one(*this, "abc", 1);
    BlockTables two(geometry_);
    two.Enter({}, {}, cache_);
    std::vector<TableChange> changes;
    ASSERT_TRUE(two.Cover(0, 192, cache_, changes));
    two.Publish(0, 192, {one.text, {}}, Snapshot::kPassing, cache_);
    EXPECT_EQ(cache_.pool().pages_used(), 8);
    two.ReleaseAll(cache_);
    EXPECT_EQ(cache_.pool().pages_used(), 4);
  }
  EXPECT_EQ(cache_.pool().pages_cached(), 4);
  EXPECT_EQ(Found("abc"), 3);
}

TEST_F(PrefixCacheTest, C3_46_AStateThatIsThereAlreadyIsTakenOnceOnly) {
  const Holder one(*this, "a", 1);
  BlockTables two(geometry_);
  two.Enter({}, {}, cache_);
  std::vector<TableChange> changes;
  ASSERT_TRUE(two.Cover(0, 64, cache_, changes));
  two.Publish(0, 64, {one.text, {}}, Snapshot::kPassing, cache_);
  two.ReleaseAll(cache_);
  EXPECT_EQ(cache_.index().parts(GroupKind::kState), 1);
  EXPECT_TRUE(cache_.Audit().ok());
}

TEST_F(PrefixCacheTest, C3_47_C5_66_ASnapshotThatADeeperOneReplacedGoesFirst) {
  {
    Holder holder(*this, "a", 9);
    const Text text = Blocks("abc");
    std::vector<TableChange> changes;
    for (int32_t end : {128, 192}) {  // the same sequence, chunk by chunk
      ASSERT_TRUE(holder.tables.Cover(end - 64, end, cache_, changes));
      holder.tables.Publish(end - 64, end, {text, {}}, Snapshot::kPassing, cache_);
    }
  }
  Store("x", 1);  // older, but its only snapshot
  EXPECT_EQ(Found("a"), 1);
  MakeRoom(30 - 7, 0);
  EXPECT_EQ(Found("a"), 0);
  EXPECT_EQ(Found("ab"), 2);
  MakeRoom(30 - 6, 0);
  EXPECT_EQ(Found("ab"), 0);
  EXPECT_EQ(Found("abc"), 3);
  EXPECT_EQ(Found("x"), 1);
}

TEST_F(PrefixCacheTest, C3_48_ABranchInTheMiddleLeavesTheDeeperPartAsItIs) {
  Store("abcd", 1);
  Store("abx", 2);
  EXPECT_EQ(Found("abcd"), 4);
  EXPECT_EQ(Found("abx"), 3);
  EXPECT_EQ(Known("aby"), 2);
}

TEST_F(PrefixCacheTest, C5_70_TheStateUsedLongestAgoGoesAndWhatIsPinnedStays) {
  Store("a", 1);
  Store("b", 2);
  const Holder pinned(*this, "ax", 3);  // resumed from "a"
  Store("c", 4);
  MakeRoom(0, 30 - 8 + 1);
  EXPECT_EQ(Found("b"), 0);
  EXPECT_EQ(Known("b"), 1);  // its keys are there
  EXPECT_EQ(Found("ax"), 2);
  EXPECT_EQ(Found("c"), 1);
}

TEST_F(PrefixCacheTest, C5_71_KeysGoFromTheEndAndTheStatesBehindThemAreNoHit) {
  Store("abcd", 1);
  MakeRoom(30 - 3, 0);  // of four blocks and a state, three pages stay
  EXPECT_EQ(Found("abcd"), 0);
  EXPECT_LT(Known("abcd"), 4);
  EXPECT_GT(Known("abcd"), 0);
}

TEST_F(PrefixCacheTest, WhatIsEvictedRemembersWhenItWasUsedLast) {
  Store("ab", 1);
  EXPECT_EQ(Match(Blocks("ab.")).evicted_epoch, 0);
  Store("abc", 7);  // uses "ab"
  cache_.Flush();
  Store("x", 9);
  const PrefixMatch match = Match(Blocks("ab."));
  EXPECT_EQ(match.stop, ReuseStop::kEvicted);
  EXPECT_EQ(match.evicted_epoch, 7);
}

// More blocks in a page than a word has bits.
class WidePackedCacheTest : public PrefixCacheTest {
 protected:
  WidePackedCacheTest() : PrefixCacheTest(150, 7) {}
};

TEST_F(WidePackedCacheTest, BlocksOfAllWordsOfAParentAreCounted) {
  std::string kinds;
  for (int i = 0; i < 140; ++i) kinds += static_cast<char>(' ' + i % 90);
  Store(kinds, 1);
  EXPECT_TRUE(cache_.Audit().ok()) << cache_.Audit().error().message;
  EXPECT_EQ(Found(kinds), 140);
  EXPECT_EQ(cache_.pool().pages_cached(), 2);
}

TEST_F(PrefixCacheTest, BlocksThatAreFreedAreToldOnlyWhenAskedFor) {
  {
    Holder holder(*this, "a", 1);
    EXPECT_TRUE(holder.tables.Reserve({{2, 1}}, cache_));
  }
  cache_.Flush();
  EXPECT_TRUE(cache_.TakeFreed().empty());
  cache_.RememberFreed(true);
  Store("b", 2);
  cache_.Flush();
  EXPECT_EQ(cache_.TakeFreed().size(), 2u);  // its keys and its state
  EXPECT_TRUE(cache_.TakeFreed().empty());
}

// Somebody who knows the cache only by what it says of its changes.
struct Reader {
  void Take(const PrefixChanges& changes) {
    if (changes.cleared) texts.clear();
    for (const uint64_t hash : changes.removed) EXPECT_EQ(texts.erase(hash), 1u);
    for (const StoredBlock& block : changes.stored) {
      const std::string before = block.parent ? texts.at(*block.parent) : "";
      const std::string text = before + static_cast<char>(block.tokens[0]);
      EXPECT_TRUE(texts.emplace(block.hash, text).second) << text;
    }
  }
  bool Knows(const std::string& text) const {
    return std::any_of(texts.begin(), texts.end(),
                       [&](const auto& at) { return at.second == text; });
  }
  std::map<uint64_t, std::string> texts;
};

TEST_F(PrefixCacheTest, ChangesTellAReaderExactlyWhatCanBeResumedBehind) {
  cache_.RememberChanges();
  Reader reader;
  Rng rng(7);
  std::set<std::string> stored;
  for (int32_t round = 0; round < 600; ++round) {
    for (uint64_t act = 0, acts = rng.Below(3); act <= acts; ++act) {
      std::string text;
      for (uint64_t i = 0, size = 1 + rng.Below(6); i < size; ++i) {
        text += static_cast<char>('a' + rng.Below(i < 2 ? 2 : 4));
      }
      if (rng.Below(8) == 0) {
        cache_.Flush();
      } else if (rng.Below(4) == 0) {
        cache_.MakeRoom({{static_cast<int32_t>(rng.Below(28)), 2}});
      } else if (cache_.MakeRoom({{8, 3}})) {
        Store(text, round);
        stored.insert(text);
      }
    }
    reader.Take(cache_.TakeChanges());
    std::set<std::string> expected;
    for (const std::string& text : stored) {
      for (int32_t i = Found(text); i > 0; --i) expected.insert(text.substr(0, i));
    }
    ASSERT_EQ(reader.texts.size(), expected.size()) << round;
    for (const std::string& text : expected) ASSERT_TRUE(reader.Knows(text)) << text;
  }
  EXPECT_GT(cache_.evictions(GroupKind::kFull), 100);
  EXPECT_GT(cache_.evictions(GroupKind::kState), 100);
}

TEST_F(PrefixCacheTest, ANewCacheSaysThatAllIsGoneAndASilentOneSaysNothing) {
  EXPECT_TRUE(cache_.TakeChanges().empty());
  cache_.RememberChanges();
  EXPECT_TRUE(cache_.TakeChanges().cleared);
  EXPECT_TRUE(cache_.TakeChanges().empty());
  Store("ab", 1);
  cache_.Flush();  // before anybody asked
  EXPECT_TRUE(cache_.TakeChanges().empty());
}

TEST_F(PrefixCacheTest, PrefixesOfATenantAreMarkedAndHaveHashesOfTheirOwn) {
  cache_.RememberChanges();
  for (const char* tenant : {"", "t"}) {
    const Text text = Blocks("a");
    BlockTables tables(geometry_);
    const PrefixSpace space{.tenant = tenant};
    tables.Enter(space, cache_.Match(space, {text, {}}, 1 << 20), cache_);
    std::vector<TableChange> changes;
    EXPECT_TRUE(tables.Cover(0, kBlockTokens, cache_, changes));
    tables.Publish(0, kBlockTokens, {text, {}}, Snapshot::kPassing, cache_);
    tables.ReleaseAll(cache_);
  }
  const PrefixChanges changes = cache_.TakeChanges();
  ASSERT_EQ(changes.stored.size(), 2u);
  EXPECT_TRUE(changes.stored[0].shared);
  EXPECT_FALSE(changes.stored[1].shared);
  EXPECT_NE(changes.stored[0].hash, changes.stored[1].hash);
}

// A tier below that holds pages which the arena may lack.
class TieredCacheTest : public PrefixCacheTest {
 protected:
  static PageKey KeyOf(const std::string& kinds, std::string_view tenant = "") {
    PageKey key = RootPageKey(tenant, "");
    for (const char kind : kinds) {
      BlockTokens block;
      std::fill(block.begin(), block.end(), kind);
      key = ChildPageKey(key, block);
    }
    return key;
  }
  void Add(const std::string& kinds, GroupKind part) { tier_.Add({KeyOf(kinds), part}); }
  int32_t Stored(const Text& text, const std::string& tenant = "") const {
    const PrefixCache cache(geometry_, &tier_);
    const PrefixMatch match = cache.Match({.tenant = tenant}, {text, {}}, 1 << 20);
    EXPECT_EQ(match.tokens, 0);
    return match.stored;
  }
  PageDirectory tier_;
};

TEST_F(TieredCacheTest, ATierIsFollowedWithoutAGapToItsDeepestState) {
  for (const char* kinds : {"a", "ab", "abc"}) Add(kinds, GroupKind::kFull);
  EXPECT_EQ(Stored(Blocks("abcd")), 0) << "keys without a state are of no use";
  Add("ab", GroupKind::kState);
  EXPECT_EQ(Stored(Blocks("abcd")), 128);
  EXPECT_EQ(Stored(Blocks("axcd")), 0);
  EXPECT_EQ(Stored(Blocks("abcd"), "somebody else"), 0);
  tier_.Drop({KeyOf("a"), GroupKind::kFull});
  EXPECT_EQ(Stored(Blocks("abcd")), 0) << "the first block is missing";
}

// There would be nothing to sample from.
TEST_F(TieredCacheTest, ThePromptsLastTokenIsComputedThoughATierHasItsBlock) {
  for (const char* kinds : {"a", "ab"}) {
    Add(kinds, GroupKind::kFull);
    Add(kinds, GroupKind::kState);
  }
  EXPECT_EQ(Stored(Blocks("ab")), 64);
  Text longer = Blocks("ab");
  longer.push_back('.');
  EXPECT_EQ(Stored(longer), 128);
}

class PackedCacheTest : public PrefixCacheTest {
 protected:
  PackedCacheTest() : PrefixCacheTest(4, 7) {}
};

TEST_F(PackedCacheTest, C5_64_FreePlacesAndEmptyParentsAreUsedBeforeAnythingIsEvicted) {
  Store("ab", 1);   // half a page, and a state
  MakeRoom(2, 0);   // the other half
  MakeRoom(18, 0);  // and four empty pages
  EXPECT_EQ(cache_.evictions(GroupKind::kFull) + cache_.evictions(GroupKind::kState), 0);
  EXPECT_EQ(Found("ab"), 2);
  MakeRoom(19, 0);
  EXPECT_GT(cache_.evictions(GroupKind::kFull) + cache_.evictions(GroupKind::kState), 0);
}

TEST_F(PackedCacheTest, C5_67_WhatWasEvictedInVainIsPutBack) {
  Store("a", 1);
  const Holder pinned(*this, "b", 2);  // in the page of "a": evicting that frees no page
  Store("c", 3);
  // Parents: one of keys, three of states, two empty. A third empty one can come from a state.
  MakeRoom(0, 3);
  EXPECT_EQ(cache_.evictions(GroupKind::kState), 1);
  EXPECT_EQ(cache_.evictions(GroupKind::kFull), 0);
  EXPECT_EQ(Known("a"), 1);
  EXPECT_EQ(Found("c"), 1);
}

// Keys share a page with others that are in use: evicting them makes no room, so they come back,
// and all counts with them.
TEST_F(PackedCacheTest, KeysThatWereEvictedInVainAreFoundAgain) {
  Store("a", 1);
  const Holder pinned(*this, "b", 2);
  Store("cd", 3);  // the first page has a, b, c and d
  Store("e", 4);   // the second one; the other four have states
  MakeRoom(0, 3);  // of which one is in use
  for (const char* kinds : {"a", "cd", "e"}) EXPECT_EQ(Found(kinds), 0) << kinds;
  const int64_t before = cache_.evictions(GroupKind::kFull);
  MakeRoom(0, 4);  // that of "e" too
  EXPECT_EQ(cache_.evictions(GroupKind::kFull) - before, 1);
  EXPECT_EQ(Known("a"), 1);
  EXPECT_EQ(Known("cd"), 2);
  EXPECT_EQ(Known("e"), 0);
  EXPECT_EQ(cache_.index().parts(GroupKind::kFull), 4);
  Store("cde", 5);
  EXPECT_EQ(Found("cde"), 3) << "what came back can be extended";
  EXPECT_TRUE(cache_.Audit().ok()) << cache_.Audit().error().message;
}

}  // namespace
}  // namespace braid
