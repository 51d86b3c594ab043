// Where requests go: to their prefix while it pays, elsewhere when it does not.
#include "router/placement/placer.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace braid {
namespace {

using Reason = Placer::Reason;

// A prompt of so many blocks that begins as all others of the same `seed`.
PromptKeys Prompt(uint64_t seed, int64_t blocks, uint64_t session = 0) {
  PromptKeys keys{.tokens = blocks * kTextBlockTokens, .session = session, .generates = true};
  for (int64_t i = 0; i < blocks; ++i) {
    keys.blocks.push_back(RandomBits(seed, static_cast<uint64_t>(i)));
  }
  return keys;
}

std::vector<EngineLoad> Idle(int32_t engines) {
  std::vector<EngineLoad> loads;
  for (int32_t i = 0; i < engines; ++i) loads.push_back({.engine = i});
  return loads;
}

Placer MakePlacer(int32_t engines, Policy policy = Policy::kPrefix, int64_t blocks = 1000) {
  Placer placer(policy);
  for (int32_t i = 0; i < engines; ++i) placer.AddEngine(i, blocks);
  return placer;
}

Placer::Choice Place(Placer& placer, const PromptKeys& prompt, std::span<const EngineLoad> loads) {
  const Placer::Choice choice = placer.Choose(prompt, loads);
  placer.Sent(prompt, choice);
  return choice;
}

TEST(Placer, FollowsAPrefixAndSaysWhatIsReused) {
  Placer placer = MakePlacer(3);
  const int32_t first = Place(placer, Prompt(1, 10), Idle(3)).engine;
  const Placer::Choice next = Place(placer, Prompt(1, 14), Idle(3));
  EXPECT_EQ(next.engine, first);
  EXPECT_EQ(next.reason, Reason::kPrefix);
  EXPECT_EQ(next.reused_tokens, 10 * kTextBlockTokens);
  EXPECT_EQ(next.computed_tokens, 4 * kTextBlockTokens);
}

TEST(Placer, NewConversationsSpread) {
  Placer placer = MakePlacer(4);
  std::vector<int> count(4);
  EXPECT_EQ(placer.Choose(Prompt(0, 10), Idle(4)).engine, 0) << "of equals the first";
  for (uint64_t i = 0; i < 40; ++i) ++count[Place(placer, Prompt(i, 10), Idle(4)).engine];
  for (const int of : count) EXPECT_EQ(of, 10);
}

TEST(Placer, ASharedBeginningDoesNotDrawEverythingToOneEngine) {
  Placer placer = MakePlacer(4);
  std::vector<int> count(4);
  for (uint64_t i = 0; i < 80; ++i) {
    PromptKeys prompt = Prompt(7, 8);
    const PromptKeys own = Prompt(100 + i, 12);
    prompt.blocks.insert(prompt.blocks.end(), own.blocks.begin(), own.blocks.end());
    prompt.tokens += own.tokens;
    ++count[Place(placer, prompt, Idle(4)).engine];
  }
  for (const int of : count) EXPECT_NEAR(of, 20, 3);
}

TEST(Placer, ABeginningIsNotCopiedForASmallWait) {
  Placer placer = MakePlacer(2);
  const int32_t home = Place(placer, Prompt(1, 20), Idle(2)).engine;
  std::vector<EngineLoad> loads = Idle(2);
  // Behind its work, and the work that it was given, the prompt costs a little more than elsewhere.
  loads[home].backlog_tokens = 15 * kTextBlockTokens;
  EXPECT_EQ(placer.Choose(Prompt(1, 22), loads).engine, home);
}

TEST(Placer, LeavesAPrefixWhenTheWaitCostsMore) {
  Placer placer = MakePlacer(2);
  const int32_t home = Place(placer, Prompt(1, 20), Idle(2)).engine;
  std::vector<EngineLoad> loads = Idle(2);
  loads[home].backlog_tokens = 5 * kTextBlockTokens;
  EXPECT_EQ(placer.Choose(Prompt(1, 22), loads).engine, home) << "a short wait";
  loads[home].backlog_tokens = 40 * kTextBlockTokens;
  EXPECT_EQ(placer.Choose(Prompt(1, 22), loads).engine, 1 - home) << "a long one";
  loads[home] = {.engine = home, .requests = 60};
  EXPECT_EQ(placer.Choose(Prompt(1, 22), loads).engine, 1 - home) << "many requests";
}

TEST(Placer, OnlyStatesCountAsReuse) {
  // The second prompt leaves the first in its middle, where no state is; the third leaves it at the
  // same place, where the second has left one.
  KnownPrefixes sent(100);
  const PromptKeys trunk = Prompt(1, 10);
  sent.Add(trunk.blocks);
  PromptKeys branch = Prompt(1, 6);
  branch.blocks.push_back(1);
  branch.blocks.push_back(2);
  EXPECT_EQ(sent.Find(branch.blocks).blocks, 6);
  EXPECT_EQ(sent.Find(branch.blocks).resumable, 0);
  sent.Add(branch.blocks);
  PromptKeys third = Prompt(1, 6);
  third.blocks.push_back(3);
  EXPECT_EQ(sent.Find(third.blocks).resumable, 6);
  EXPECT_EQ(sent.Find(trunk.blocks).resumable, 10);
}

TEST(Placer, TheLeastRecentlyUsedBlocksGoDeepestFirst) {
  KnownPrefixes sent(20);
  sent.Add(Prompt(1, 10).blocks);
  sent.Add(Prompt(2, 8).blocks);
  sent.Add(Prompt(3, 6).blocks);
  EXPECT_EQ(sent.size(), 20);
  EXPECT_EQ(sent.Find(Prompt(1, 10).blocks).blocks, 6);
  EXPECT_EQ(sent.Find(Prompt(1, 10).blocks).resumable, 0) << "its state is gone";
  EXPECT_EQ(sent.Find(Prompt(2, 8).blocks).resumable, 8);
  sent.Add(Prompt(1, 6).blocks);
  sent.Add(Prompt(5, 4).blocks);
  EXPECT_EQ(sent.Find(Prompt(1, 6).blocks).resumable, 6) << "it was used again";
  EXPECT_EQ(sent.Find(Prompt(2, 8).blocks).blocks, 4);
  sent.Add(Prompt(4, 50).blocks);
  EXPECT_EQ(sent.size(), 20) << "a prompt that is longer than the cache";
  EXPECT_EQ(sent.Find(Prompt(4, 50).blocks).resumable, 20) << "its beginning is kept";
  sent.SetCapacity(5);
  EXPECT_EQ(sent.size(), 5);
  EXPECT_EQ(sent.Find(Prompt(4, 5).blocks).blocks, 5);
  sent.Clear();
  EXPECT_EQ(sent.Find(Prompt(4, 5).blocks).blocks, 0);
  sent.Add(Prompt(2, 3).blocks);
  EXPECT_EQ(sent.Find(Prompt(2, 3).blocks).resumable, 3);
  sent.Add(Prompt(3, 3).blocks);
  EXPECT_EQ(sent.size(), 5);
  EXPECT_EQ(sent.Find(Prompt(2, 3).blocks).blocks, 2) << "it was there before";
  EXPECT_EQ(sent.Find(Prompt(3, 3).blocks).blocks, 3);
}

TEST(Placer, BlocksThatAreUsedAgainAreTheNewest) {
  KnownPrefixes sent(3);
  const auto use = [&](uint64_t key) { sent.Add(std::vector<uint64_t>{key}); };
  const auto has = [&](uint64_t key) {
    return sent.Find(std::vector<uint64_t>{key}).blocks == 1;
  };
  for (const uint64_t key : {1, 2, 3, 1, 1, 2, 1}) use(key);
  use(4);
  EXPECT_TRUE(has(1) && has(2) && !has(3) && has(4));
  use(5);
  EXPECT_TRUE(has(1) && !has(2) && has(4) && has(5));
  use(1);
  use(6);
  EXPECT_TRUE(has(1) && !has(4) && has(5) && has(6));
}

TEST(Placer, OnlyPromptsThatAreComputedAreInACache) {
  Placer placer = MakePlacer(1);
  PromptKeys prompt = Prompt(1, 10, 77);
  prompt.generates = false;
  Place(placer, prompt, Idle(1));
  EXPECT_EQ(placer.prefix_blocks(0), 0);
  EXPECT_EQ(placer.Choose(Prompt(2, 1, 77), Idle(1)).reason, Reason::kLoad);
  prompt.generates = true;
  prompt.blocks.clear();  // shorter than a block
  Place(placer, prompt, Idle(1));
  EXPECT_EQ(placer.prefix_blocks(0), 0);
  EXPECT_EQ(placer.Choose(Prompt(2, 1, 77), Idle(1)).reason, Reason::kSession);
  placer.Sent(Prompt(1, 10), {.engine = 5});  // it has left
  EXPECT_EQ(placer.prefix_blocks(0), 0);
}

TEST(Placer, ASessionStaysAsLongAsItsEngineIsNotBehind) {
  Placer placer = MakePlacer(2);
  const int32_t home = Place(placer, Prompt(1, 2, 77), Idle(2)).engine;
  const Placer::Choice next = placer.Choose(Prompt(2, 20, 77), Idle(2));
  EXPECT_EQ(next.engine, home) << "another text";
  EXPECT_EQ(next.reason, Reason::kSession);
  std::vector<EngineLoad> loads = Idle(2);
  loads[home].backlog_tokens = 10'000;
  EXPECT_EQ(placer.Choose(Prompt(2, 20, 77), loads).engine, 1 - home);
}

TEST(Placer, AStoredResponseIsAtItsEngineWhateverTheLoad) {
  Placer placer = MakePlacer(3);
  placer.Stored("resp_1", 2);
  PromptKeys prompt = Prompt(1, 1);
  prompt.stored_id = "resp_1";
  std::vector<EngineLoad> loads = Idle(3);
  loads[2].backlog_tokens = 1'000'000;
  EXPECT_EQ(placer.Choose(prompt, loads).engine, 2);
  EXPECT_EQ(placer.Choose(prompt, loads).reason, Reason::kStored);
  loads.pop_back();
  EXPECT_NE(placer.Choose(prompt, loads).reason, Reason::kStored) << "it is not there";
  prompt.stored_id = "resp_2";
  EXPECT_NE(placer.Choose(prompt, Idle(3)).reason, Reason::kStored);
}

TEST(Placer, RoundRobinTakesTurnsAndLeastLoadIgnoresPrefixes) {
  Placer turns = MakePlacer(3, Policy::kRoundRobin);
  std::vector<EngineLoad> loads = Idle(3);
  loads[0].backlog_tokens = 1'000'000;
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(Place(turns, Prompt(1, 10), loads).engine, i % 3) << "whatever the load";
  }
  Placer least = MakePlacer(2, Policy::kLeastLoad);
  const int32_t first = Place(least, Prompt(1, 10), Idle(2)).engine;
  EXPECT_EQ(Place(least, Prompt(1, 12), Idle(2)).engine, 1 - first);
}

TEST(Placer, ForgetsAnEngineThatWasStartedAgain) {
  Placer placer = MakePlacer(2);
  const int32_t home = Place(placer, Prompt(1, 10), Idle(2)).engine;
  placer.Forget(home);
  EXPECT_EQ(placer.Choose(Prompt(1, 10), Idle(2)).reused_tokens, 0);
}

TEST(Placer, AnEngineThatJoinsDoesNotGetEverything) {
  Placer placer = MakePlacer(2);
  for (uint64_t i = 0; i < 100; ++i) Place(placer, Prompt(i, 10), Idle(2));
  placer.AddEngine(2, 1000);
  std::vector<int> count(3);
  for (uint64_t i = 200; i < 230; ++i) ++count[Place(placer, Prompt(i, 10), Idle(3)).engine];
  for (const int of : count) EXPECT_NEAR(of, 10, 2);
}

TEST(Placer, WhatAnEngineWasGivenIsForgottenAsOthersGetWork) {
  Placer placer = MakePlacer(2, Policy::kLeastLoad);
  PromptKeys prompt{.tokens = 50'000, .generates = true};
  placer.Sent(prompt, {.engine = 0, .computed_tokens = 50'000});
  prompt.tokens = 640;
  int others = 0;
  while (others < 200 && Place(placer, prompt, Idle(2)).engine == 1) ++others;
  // 704 for each; if nothing were forgotten, 71 would be as much.
  EXPECT_NEAR(others, 60, 1);
}

TEST(Placer, ARequestThatGeneratesNothingLeavesNoTrace) {
  Placer placer = MakePlacer(2);
  PromptKeys prompt = Prompt(1, 10, 77);
  prompt.generates = false;
  EXPECT_EQ(Place(placer, prompt, Idle(2)).engine, 0);
  EXPECT_EQ(placer.prefix_blocks(0), 0);
  const Placer::Choice next = placer.Choose(Prompt(2, 10, 77), Idle(2));
  EXPECT_EQ(next.engine, 0) << "it was given no work";
  EXPECT_EQ(next.reason, Reason::kLoad) << "nor a session";
}

TEST(Placer, NoMoreIsReusedThanThePromptHas) {
  Placer placer = MakePlacer(1);
  PromptKeys prompt = Prompt(1, 10);
  Place(placer, prompt, Idle(1));
  prompt.tokens = 500;  // an estimate
  const Placer::Choice choice = placer.Choose(prompt, Idle(1));
  EXPECT_EQ(choice.reused_tokens, 500);
  EXPECT_EQ(choice.computed_tokens, 0);
}

TEST(Placer, AnEngineThatIsGoneIsNotChosenAndTakesNothing) {
  Placer placer = MakePlacer(2);
  const PromptKeys prompt = Prompt(1, 10, 77);
  const Placer::Choice choice = Place(placer, prompt, Idle(2));
  placer.RemoveEngine(choice.engine);
  placer.Sent(prompt, choice);  // it was on its way
  placer.Held(choice.engine, {.dp_rank = 0, .events = {kv::BlocksCleared{}}});
  const std::vector<EngineLoad> left = {{.engine = 1 - choice.engine}};
  EXPECT_EQ(placer.Choose(prompt, left).engine, 1 - choice.engine);
  EXPECT_EQ(placer.Choose(prompt, left).reused_tokens, 0);
  placer.AddEngine(choice.engine, 1000);
  EXPECT_EQ(placer.prefix_blocks(choice.engine), 0) << "it comes back empty";
}

TEST(Placer, WhatAnEngineSaysOfItsCacheCounts) {
  Placer placer = MakePlacer(2);
  std::vector<TokenId> tokens(128);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  PromptKeys prompt{.generates = true};
  SetTokens(tokens, {}, &prompt);
  placer.Held(1, {.dp_rank = 0, .events = {kv::BlocksStored{prompt.blocks, {}, tokens, 64, true}}});
  EXPECT_EQ(placer.held_blocks(1), 2);
  EXPECT_EQ(placer.held_blocks(0), 0);
  const Placer::Choice choice = placer.Choose(prompt, Idle(2));
  EXPECT_EQ(choice.engine, 1);
  EXPECT_EQ(choice.reused_tokens, 128);
  placer.SetCapacity(1, 1);
  EXPECT_EQ(placer.prefix_blocks(1), 1);
  placer.Forget(1);
  EXPECT_EQ(placer.prefix_blocks(1), 0);
  EXPECT_EQ(placer.held_blocks(1), 0);
}

TEST(Placer, ThePolicyMayChange) {
  Placer placer = MakePlacer(2, Policy::kRoundRobin);
  const PromptKeys prompt = Prompt(1, 10);
  EXPECT_EQ(placer.Choose(prompt, Idle(2)).reason, Reason::kOrder);
  placer.SetPolicy(Policy::kLeastLoad);
  EXPECT_EQ(placer.Choose(prompt, Idle(2)).reason, Reason::kLoad);
  EXPECT_EQ(NameOf(Policy::kLeastLoad), "least_load");
  EXPECT_EQ(NameOf(Reason::kStored), "stored");
}

// The last 2^18 responses are known, whatever happens to others.
TEST(Placer, TheMostRecentResponsesAreKnown) {
  constexpr int kMost = 1 << 18;
  Placer placer = MakePlacer(2);
  const auto reason = [&](int response) {
    PromptKeys prompt = Prompt(1, 1);
    prompt.stored_id = std::to_string(response);
    return placer.Choose(prompt, Idle(2)).reason;
  };
  for (int i = 0; i < kMost; ++i) placer.Stored(std::to_string(i), 1);
  placer.Stored("5", 0);  // one that it knows takes no place
  EXPECT_EQ(reason(0), Reason::kStored);
  placer.Stored("new", 1);
  EXPECT_NE(reason(0), Reason::kStored);
  EXPECT_EQ(reason(1), Reason::kStored);
  placer.Stored("newer", 1);
  EXPECT_NE(reason(1), Reason::kStored);
  EXPECT_EQ(reason(2), Reason::kStored);
  EXPECT_EQ(reason(kMost - 1), Reason::kStored);
}

TEST(Placer, NoEngineNoChoice) {
  for (const Policy policy : {Policy::kPrefix, Policy::kRoundRobin, Policy::kLeastLoad}) {
    Placer placer = MakePlacer(1, policy);
    EXPECT_EQ(placer.Choose(Prompt(1, 1), {}).engine, -1) << NameOf(policy);
  }
}

}  // namespace
}  // namespace braid
