// Against a plain list of the blocks by use.
#include "router/placement/known_prefixes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "base/rng.h"

namespace braid {
namespace {

// The same, slowly.
class ListedPrefixes {
 public:
  explicit ListedPrefixes(int64_t blocks_max) : blocks_max_(blocks_max) {}

  KnownPrefixes::Match Find(std::span<const uint64_t> keys) const {
    KnownPrefixes::Match match;
    for (const uint64_t key : keys) {
      const auto at = std::ranges::find(blocks_, key, &Block::key);
      if (at == blocks_.end()) break;
      ++match.blocks;
      if (at->resumable) match.resumable = match.blocks;
    }
    return match;
  }
  void Add(std::span<const uint64_t> keys) {
    keys = keys.first(std::min(keys.size(), static_cast<size_t>(blocks_max_)));
    const int64_t known = Find(keys).blocks;
    for (auto i = std::ssize(keys) - 1; i >= 0; --i) {
      const uint64_t key = keys[static_cast<size_t>(i)];
      const auto at = std::ranges::find(blocks_, key, &Block::key);
      const bool resumable =
          (at != blocks_.end() && at->resumable) || i + 1 == known || i + 1 == std::ssize(keys);
      if (at != blocks_.end()) blocks_.erase(at);
      blocks_.push_front({key, resumable});
    }
    SetCapacity(blocks_max_);
  }
  void Store(uint64_t key, bool resumable) {
    const auto at = std::ranges::find(blocks_, key, &Block::key);
    if (at == blocks_.end()) {
      blocks_.push_front({key, resumable});
    } else {
      at->resumable |= resumable;
    }
    SetCapacity(blocks_max_);
  }
  void Remove(uint64_t key) {
    blocks_.remove_if([&](const Block& block) { return block.key == key; });
  }
  void SetCapacity(int64_t blocks_max) {
    blocks_max_ = blocks_max;
    if (size() > blocks_max) blocks_.resize(static_cast<size_t>(blocks_max));
  }
  void Clear() { blocks_.clear(); }
  int64_t size() const { return std::ssize(blocks_); }

 private:
  struct Block {
    uint64_t key = 0;
    bool resumable = false;
  };
  int64_t blocks_max_;
  std::list<Block> blocks_;  // the newest first
};

// Prompts of a tree in which each block has two that may follow it.
std::vector<uint64_t> DrawPrompt(Rng& rng) {
  std::vector<uint64_t> keys;
  uint64_t key = 1;
  for (int64_t left = rng.Below(8); left > 0; --left) {
    key = 2 * key + static_cast<uint64_t>(rng.Below(2));
    keys.push_back(key);
  }
  return keys;
}

TEST(KnownPrefixes, AreThoseOfAListByUse) {
  Rng rng(3);
  for (int run = 0; run < 20; ++run) {
    const int64_t most = 1 + rng.Below(60);
    KnownPrefixes known(most);
    ListedPrefixes listed(most);
    for (int turn = 0; turn < 500; ++turn) {
      const std::vector<uint64_t> keys = DrawPrompt(rng);
      const uint64_t key = 2 + static_cast<uint64_t>(rng.Below(60));
      const int64_t action = rng.Below(100);
      if (action < 40) {
        known.Add(keys);
        listed.Add(keys);
      } else if (action < 65) {
        const bool resumable = rng.Below(2) == 1;
        known.Store(key, resumable);
        listed.Store(key, resumable);
      } else if (action < 96) {
        known.Remove(key);
        listed.Remove(key);
      } else if (action < 99) {
        const int64_t capacity = 1 + rng.Below(60);
        known.SetCapacity(capacity);
        listed.SetCapacity(capacity);
        EXPECT_EQ(known.capacity(), capacity);
      } else {
        known.Clear();
        listed.Clear();
      }
      ASSERT_EQ(known.size(), listed.size()) << "run " << run << ", turn " << turn;
      for (int look = 0; look < 8; ++look) {
        const std::vector<uint64_t> prompt = DrawPrompt(rng);
        const KnownPrefixes::Match found = known.Find(prompt), expected = listed.Find(prompt);
        ASSERT_EQ(found.blocks, expected.blocks) << "run " << run << ", turn " << turn;
        ASSERT_EQ(found.resumable, expected.resumable) << "run " << run << ", turn " << turn;
      }
    }
  }
}

}  // namespace
}  // namespace braid
