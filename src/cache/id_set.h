// A set of small integers with O(log n) lowest member: a tree of 64-bit words, each bit of an upper
// level saying whether the word below has members. Four levels hold sixteen million ids. Engine
// thread.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace braid {

class IdSet {
 public:
  // Members are in [0, capacity).
  explicit IdSet(int32_t capacity) : capacity_(capacity) {
    int64_t words = capacity;
    do {
      words = (words + 63) / 64;
      levels_.emplace_back(static_cast<size_t>(words > 0 ? words : 1), 0);
    } while (words > 1);
  }

  bool Contains(int32_t id) const { return (levels_[0][Word(id)] & Bit(id)) != 0; }
  int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void Insert(int32_t id) {
    CHECK(id >= 0 && id < capacity_ && !Contains(id), "id {} of {}", id, capacity_);
    ++size_;
    for (auto& level : levels_) {
      level[Word(id)] |= Bit(id);
      id >>= 6;
    }
  }

  void Erase(int32_t id) {
    CHECK(id >= 0 && id < capacity_ && Contains(id), "id {} of {}", id, capacity_);
    --size_;
    for (auto& level : levels_) {
      level[Word(id)] &= ~Bit(id);
      if (level[Word(id)] != 0) return;
      id >>= 6;
    }
  }

  // -1 when empty.
  int32_t Lowest() const {
    if (size_ == 0) return -1;
    int32_t id = 0;
    for (size_t i = levels_.size(); i-- > 0;) {
      id = id * 64 + std::countr_zero(levels_[i][static_cast<size_t>(id)]);
    }
    return id;
  }

 private:
  static size_t Word(int32_t id) { return static_cast<size_t>(id) >> 6; }
  static uint64_t Bit(int32_t id) { return uint64_t{1} << (id & 63); }

  int32_t capacity_;
  int32_t size_ = 0;
  std::vector<std::vector<uint64_t>> levels_;  // [0] has one bit per id
};

}  // namespace braid
