// Which parts of which pages a tier below the arena holds, as far as events have told. It may be
// wrong: a part that is not there any more is found out when it is read, and costs a miss. Engine
// thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "cache/page_key.h"

namespace braid {

class PageDirectory {
 public:
  bool Has(const PageKey& key, GroupKind kind) const {
    const auto at = kinds_.find(key);
    return at != kinds_.end() && (at->second & Bit(kind)) != 0;
  }
  void Add(const KnownPart& part) {
    uint8_t& kinds = kinds_[part.key];
    parts_ += (kinds & Bit(part.kind)) == 0;
    kinds |= Bit(part.kind);
  }
  void Drop(const KnownPart& part) {
    const auto at = kinds_.find(part.key);
    if (at == kinds_.end() || (at->second & Bit(part.kind)) == 0) return;
    --parts_;
    at->second = static_cast<uint8_t>(at->second & ~Bit(part.kind));
    if (at->second == 0) kinds_.erase(at);
  }
  void Clear() {
    kinds_.clear();
    parts_ = 0;
  }
  int64_t parts() const { return parts_; }

 private:
  struct Hash {
    size_t operator()(const PageKey& key) const { return static_cast<size_t>(key.low); }
  };
  static uint8_t Bit(GroupKind kind) { return kind == GroupKind::kFull ? 1 : 2; }

  std::unordered_map<PageKey, uint8_t, Hash> kinds_;  // never iterated
  int64_t parts_ = 0;
};

}  // namespace braid
