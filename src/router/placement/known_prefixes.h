// What one engine's prefix cache probably holds: the blocks of the prompts that were sent to it,
// the least recently used dropped beyond its capacity, and those that it says it has. A block is
// resumable where a hybrid model's engine keeps the recurrent state too: at the end of a prompt,
// and where prompts part. Without a state the keys and values of a block are of no use. Pure; not
// thread-safe.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <span>
#include <vector>

namespace braid {

class KnownPrefixes {
 public:
  // `blocks_max` > 0: of the engine's cache.
  explicit KnownPrefixes(int64_t blocks_max) : blocks_max_(blocks_max) {}

  struct Match {
    int64_t blocks = 0;     // of the prompt, that the engine has
    int64_t resumable = 0;  // the deepest of them with a state: what it will not compute again
  };
  // `keys` are chained (PromptKeys): a key stands for its block and all before it.
  Match Find(std::span<const uint64_t> keys) const;
  // The prompt was sent to this engine.
  void Add(std::span<const uint64_t> keys);
  // The engine says that it has a block, and perhaps a state at its end; or that it has it no more.
  void Store(uint64_t key, bool resumable);
  void Remove(uint64_t key);
  void SetCapacity(int64_t blocks_max);
  void Clear();

  int64_t size() const { return static_cast<int64_t>(index_.size()); }
  int64_t capacity() const { return blocks_max_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A place in the list by use; the newest comes first.
  struct Node {
    uint64_t key = 0;
    uint32_t newer = kNone, older = kNone;
    bool resumable = false;
  };
  void Unlink(uint32_t at);
  void LinkNewest(uint32_t at);
  void Drop(uint32_t at);
  void DropOldest();
  // The node of a block that is not there yet.
  uint32_t Insert(uint64_t key);

  int64_t blocks_max_;
  boost::unordered_flat_map<uint64_t, uint32_t> index_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> free_;
  uint32_t newest_ = kNone, oldest_ = kNone;
};

}  // namespace braid
