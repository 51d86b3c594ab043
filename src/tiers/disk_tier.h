// Pages in a directory, in memory beside the arena, or in both: the mover to and from Place::kDisk.
// Threads of its own read and write; the engine thread only queues. Several servers may share a
// directory: each appends to segments of its own, which it locks (flock), and reads all that have
// its fingerprint.
//
// What is written is never changed and never moved. When the bound is reached the segment that was
// used longest ago goes as a whole, of whichever server or fingerprint, unless somebody writes to
// it; so no byte is written twice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "scheduler/mover.h"
#include "tiers/host_pages.h"
#include "tiers/page_cipher.h"
#include "tiers/segments/segment.h"

namespace braid {

struct DiskTierOptions {
  std::string directory;      // made, if it is not there; empty: pages are in memory only
  HostPages* host = nullptr;  // memory that is looked in first; null: none; outlives the tier
  int64_t bytes_max = 0;      // of all segments in it
  TierFingerprint fingerprint;
  std::optional<PageCipher> cipher;  // none: pages are written as they are
  int threads = 8;
  FileLayer* files = nullptr;    // null: the system's; outlives the tier
  int64_t watch_us = 2'000'000;  // how often it looks for what other servers wrote
  int64_t segment_bytes_max = 256 << 20;
};

struct DiskTierStats {
  int64_t parts = 0;   // that can be read
  int64_t states = 0;  // of them
  int64_t segments = 0;
  int64_t bytes = 0;                       // of all segments in the directory
  int64_t host_parts = 0, host_bytes = 0;  // in memory
  int64_t read_bytes = 0, written_bytes = 0;
  int64_t ahead_bytes = 0;  // that the kernel has read ahead, or had
  int64_t read_errors = 0, write_errors = 0;  // parts
  int64_t damaged = 0;                        // places of parts whose checksum did not agree
  int64_t dropped = 0;                        // parts that made way
  int64_t read_us = 0, write_us = 0;          // from Start to the end of a part, summed
};

class DiskTier final : public Mover {
 public:
  // Reads the indexes of what is there. kInvalid when the directory cannot be used.
  static Result<std::unique_ptr<DiskTier>> Open(const DiskTierOptions& options);
  ~DiskTier() override;  // ends what is under way

  // From now on `events` is told what the tier holds: at once, and when other servers or the bound
  // change it, and again all of it when another arena is attached. It outlives the tier.
  void Watch(EventSink& events);
  void Attach(const Arena& arena, const CacheGeometry& geometry) override;
  void Start(const PageMove& move, EventSink& events) override;
  // Any number of bytes at a time: who names them bounds them.
  void ReadAhead(const PagesAhead& ahead) override;
  void Drain() override;
  // Removes all of this fingerprint but what other servers are writing. Of moves that have begun,
  // nothing will be there either: what they were to write is lost. Any thread; it waits for no
  // disk: a thread of the tier removes the files.
  void BeginClear();
  // Returns when the files of what was cleared are removed. Not the engine thread.
  void AwaitCleared();

  DiskTierStats stats() const;  // may wait for a disk
  int64_t ahead_bytes() const;  // as in `stats`; any thread; it waits for no disk

 private:
  struct State;
  explicit DiskTier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
