// A prompt's blocks are used from the last to the first, so that the oldest block of a path is its
// deepest: dropping it leaves a prefix.
#include "router/placement/known_prefixes.h"

#include "base/check.h"

namespace braid {

KnownPrefixes::Match KnownPrefixes::Find(std::span<const uint64_t> keys) const {
  Match match;
  for (const uint64_t key : keys) {
    const auto found = index_.find(key);
    if (found == index_.end()) break;
    ++match.blocks;
    if (nodes_[found->second].resumable) match.resumable = match.blocks;
  }
  return match;
}

void KnownPrefixes::Unlink(uint32_t at) {
  const Node& node = nodes_[at];
  (node.newer == kNone ? newest_ : nodes_[node.newer].older) = node.older;
  (node.older == kNone ? oldest_ : nodes_[node.older].newer) = node.newer;
}

void KnownPrefixes::LinkNewest(uint32_t at) {
  nodes_[at].newer = kNone;
  nodes_[at].older = newest_;
  (newest_ == kNone ? oldest_ : nodes_[newest_].newer) = at;
  newest_ = at;
}

void KnownPrefixes::Drop(uint32_t at) {
  Unlink(at);
  index_.erase(nodes_[at].key);
  free_.push_back(at);
}

void KnownPrefixes::DropOldest() {
  CHECK(oldest_ != kNone);
  Drop(oldest_);
}

uint32_t KnownPrefixes::Insert(uint64_t key) {
  uint32_t at = static_cast<uint32_t>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
  } else {
    at = free_.back();
    free_.pop_back();
  }
  nodes_[at] = {.key = key};
  index_.emplace(key, at);
  LinkNewest(at);
  return at;
}

void KnownPrefixes::Store(uint64_t key, bool resumable) {
  const auto found = index_.find(key);
  const uint32_t at = found == index_.end() ? Insert(key) : found->second;
  if (resumable) nodes_[at].resumable = true;
  while (size() > blocks_max_) DropOldest();
}

void KnownPrefixes::Remove(uint64_t key) {
  if (const auto found = index_.find(key); found != index_.end()) Drop(found->second);
}

void KnownPrefixes::Add(std::span<const uint64_t> keys) {
  // What does not fit is not kept there either: the beginning is.
  if (std::ssize(keys) > blocks_max_) keys = keys.first(static_cast<size_t>(blocks_max_));
  if (keys.empty()) return;
  const int64_t known = Find(keys).blocks;
  for (auto i = std::ssize(keys) - 1; i >= 0; --i) {
    const uint64_t key = keys[static_cast<size_t>(i)];
    if (const auto found = index_.find(key); found != index_.end()) {
      Unlink(found->second);
      LinkNewest(found->second);
      continue;
    }
    Insert(key);
  }
  const auto mark = [&](int64_t block) {
    nodes_[index_.at(keys[static_cast<size_t>(block)])].resumable = true;
  };
  if (known > 0) mark(known - 1);
  mark(std::ssize(keys) - 1);
  while (size() > blocks_max_) DropOldest();
}

void KnownPrefixes::SetCapacity(int64_t blocks_max) {
  blocks_max_ = blocks_max;
  while (size() > blocks_max_) DropOldest();
}

void KnownPrefixes::Clear() {
  index_.clear();
  nodes_.clear();
  free_.clear();
  newest_ = oldest_ = kNone;
}

}  // namespace braid
