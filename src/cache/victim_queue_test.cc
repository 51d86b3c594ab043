// The heap against a sorted set of the same ranks, over random filing and erasing.
#include "cache/victim_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace braid {
namespace {

using EvictionKey = EvictionKey;

constexpr int kNodes = 200;

EvictionKey RandomRank(std::mt19937& random, PrefixNodeId node, GroupKind part) {
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  // Few values, so that the order is often decided by the last members.
  return {.tier = below(2), .depth = below(4), .epoch = below(8), .node = node, .part = part};
}

void ExpectSame(const VictimQueue& queue, const std::set<EvictionKey>& model) {
  ASSERT_EQ(queue.size(), model.size());
  ASSERT_EQ(queue.empty(), model.empty());
  if (!model.empty()) {
    ASSERT_EQ(queue.first(), *model.begin());
  }
}

TEST(VictimQueueTest, GoesByRankWhateverWasFiledAndErased) {
  std::mt19937 random(1);
  VictimQueue queue;
  std::set<EvictionKey> model;
  for (int i = 0; i < 20000; ++i) {
    const PrefixNodeId node(static_cast<int32_t>(random() % kNodes));
    const GroupKind part = random() % 2 == 0 ? GroupKind::kFull : GroupKind::kState;
    // Grows, shrinks, and grows again.
    const bool grows = (i / 2000) % 2 == 0 ? random() % 4 != 0 : random() % 4 == 0;
    if (const EvictionKey* filed = queue.Find(node, part); filed != nullptr) {
      ASSERT_EQ(model.count(*filed), 1u);
      if (grows) continue;
      model.erase(*filed);
      queue.Erase(node, part);
      ASSERT_EQ(queue.Find(node, part), nullptr);
    } else if (grows) {
      const EvictionKey key = RandomRank(random, node, part);
      model.insert(key);
      queue.Insert(key);
      ASSERT_EQ(*queue.Find(node, part), key);
    }
    ExpectSame(queue, model);
  }
  for (; !model.empty(); ExpectSame(queue, model)) {
    queue.Erase(model.begin()->node, model.begin()->part);
    model.erase(model.begin());
  }
}

TEST(VictimQueueTest, WhatIsNotFiledIsNotFound) {
  VictimQueue queue;
  EXPECT_EQ(queue.Find(PrefixNodeId(7), GroupKind::kFull), nullptr);
  queue.Insert({.tier = 1, .epoch = 3, .node = PrefixNodeId(7), .part = GroupKind::kState});
  EXPECT_EQ(queue.Find(PrefixNodeId(7), GroupKind::kFull), nullptr);
  EXPECT_EQ(queue.Find(PrefixNodeId(1000), GroupKind::kState), nullptr);
}

}  // namespace
}  // namespace braid
