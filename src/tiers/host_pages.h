// Copies of parts in memory beside the arena, for what it has no room for: a ring, in which the
// part that was put in longest ago makes way. Any thread; bytes are copied without the mutex, and a
// part that somebody copies does not make way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tiers/part_file.h"

namespace braid {

class HostPages {
 public:
  // Reserves so much memory, in huge pages where the system has them; what is not used costs
  // nothing. Of a NUMA node as long as that has some; -1: of any. kUnavailable when it cannot be
  // had.
  static Result<std::unique_ptr<HostPages>> Create(int64_t bytes, int node = -1);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  bool Has(const KnownPart& part) const;
  std::vector<KnownPart> All() const;  // that can be read, in any order
  // Copies the part out; false: it is not there.
  bool Read(const KnownPart& part, const PartPieces& pieces);
  // Copies the part in, of a move that began at a time, and appends to `gone` what made way. True:
  // it is there now, or was before. False: there is no room for it, or it was cleared meanwhile.
  bool Write(const KnownPart& part, const PartPieces& pieces, int64_t began_us,
             std::vector<KnownPart>& gone);
  // Forgets all, also what moves that have begun by `now_us` are still to write.
  void Clear(int64_t now_us);

  struct Stats {
    int64_t parts = 0, bytes = 0;
  };
  Stats stats() const;
  const std::byte* memory() const { return memory_; }

 private:
  struct Entry {
    int64_t offset = 0, bytes = 0;
    int32_t users = 0;   // that copy it in or out
    bool whole = false;  // it may be read
    bool gone = false;   // cleared; the last user takes it away
  };
  HostPages(std::byte* memory, int64_t bytes) : memory_(memory), size_(bytes) {}
  bool MakeRoom(int64_t bytes, std::vector<KnownPart>& gone);
  bool EvictOldest(std::vector<KnownPart>& gone);
  void Leave(const KnownPart& part, Entry& entry);

  std::byte* const memory_;
  const int64_t size_;
  mutable std::mutex mutex_;
  std::unordered_map<KnownPart, Entry, PartHash> entries_;
  std::deque<KnownPart> order_;  // from the oldest on, which is the first behind head_
  int64_t head_ = 0;             // where the next part begins
  int64_t used_ = 0;
  int64_t cleared_us_ = -1;
};

}  // namespace braid
