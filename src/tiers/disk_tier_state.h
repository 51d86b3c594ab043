// What disk_tier.cc (moves) and disk_segments.cc (what is in the directory) share. One mutex guards
// index and segments; bytes are read and written without it, through descriptors that stay open
// while somebody uses them.
//
// Files are opened, made and dropped under it, so the network thread never takes it, and the engine
// thread only when it attaches another arena. Else the engine thread takes the mutexes of the queue
// and of the memory, and notes when it cleared: whoever takes the other next (Lock) first forgets
// what was there then, and the thread that watches removes the files.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tiers/disk_tier.h"
#include "tiers/move_queue.h"
#include "tiers/part_file.h"
#include "tiers/segments/tier_segment.h"

namespace braid {

struct DiskTier::State {
  // Of what the bound is divided into at least.
  static constexpr int64_t kSegmentsLeast = 8;
  static constexpr int64_t kWarnEveryUs = 60'000'000;

  explicit State(const DiskTierOptions& o)
      : options(o),
        files(o.files != nullptr ? *o.files : system),
        identity{o.fingerprint.digits, o.cipher ? o.cipher->id() : ""},
        part_file(files, options.fingerprint.portable, options.cipher ? &*options.cipher : nullptr),
        queue([this](const PageMove& move, const PagePart& part,
                     int64_t began_us) { return CarryOut(move, part, began_us); },
              [this](const KnownPart& part, int64_t offset) { return ReadPiece(part, offset); }) {}

  struct Place {
    int32_t segment = 0;
    PartPlace at;
  };
  // A segment with entries that are not read yet.
  struct Grown {
    int32_t id = 0;
    SegmentName name;
    int64_t index_bytes = 0;  // of its index that were read
  };
  // A part that moves.
  struct Task {
    KnownPart part;
    PartPieces pieces;
    int64_t began_us = 0;    // when its move began
    bool in_memory = false;  // it came from there
    int64_t disk_bytes = 0;  // of files that were written or read
  };

  Status Open();
  std::unique_lock<std::mutex> Lock();
  void ForgetCleared();
  void RemoveCleared();
  void ClearUnseen(const std::vector<SegmentName>& listed);
  void WatchOthers();
  MoveQueue::Carried CarryOut(const PageMove& move, const PagePart& part, int64_t began_us);
  int64_t ReadPiece(const KnownPart& part, int64_t offset);
  PartPieces PiecesOf(const PagePart& part) const;
  Status CarryByCopy(bool in, Task& task);
  Status Read(Task& task);
  Status Write(Task& task);
  bool Keep(const Task& task);
  Status ReadFile(Task& task);
  Status ReadPlace(Task& task, const Place& place, std::unique_lock<std::mutex>& lock);
  Status WriteFile(Task& task);
  Status CheckCleared(const Task& task) const;
  Status WriteEntry(int32_t id, const KnownPart& part, const PartPlace& place);
  Result<int32_t> Reserve(int64_t bytes, int64_t& offset);
  Result<int32_t> NewSegment();
  void UseLines();
  Status MakeRoom(int64_t bytes);
  bool Remove(int32_t id);
  void Forget(int32_t id);
  void ForgetParts(int32_t id);
  void Leave(int32_t id);
  bool AddPlace(const KnownPart& part, const Place& place);
  bool DropPlace(const KnownPart& part, const Place& place);
  void Learn(int32_t id, const std::vector<SegmentEntry>& entries);
  void Look();
  std::vector<Grown> Compare(const std::vector<SegmentName>& listed,
                             const std::vector<int32_t>& before);
  void LookInto(Grown& grown);
  void Settle(int32_t id);
  void Tell();
  bool Warn(const Error& error);
  void WarnOf(int32_t id, const Error& error);
  bool on_disk() const { return !options.directory.empty(); }
  int64_t SegmentBytes() const {
    return std::clamp<int64_t>(options.bytes_max / kSegmentsLeast, kStoredAlignment,
                               options.segment_bytes_max);
  }

  DiskTierOptions options;
  FileLayer system;
  FileLayer& files;
  const SegmentIdentity identity;
  const PartFile part_file;
  Arena arena;
  const CacheGeometry* geometry = nullptr;

  std::mutex watch_mutex;  // held for a moment only
  std::condition_variable wake, removed;
  bool stopping = false;
  int64_t removed_us = -1;  // the last clear whose files are removed
  std::thread watch;

  // Moves that had begun by then write nothing any more.
  std::atomic<int64_t> cleared_us{-1};
  std::atomic<int64_t> ahead_bytes{0};

  std::mutex look_mutex;   // of listing files, and removing what was cleared; taken first
  std::mutex index_mutex;  // of writing entries; taken before the next
  std::mutex mutex;
  int64_t forgotten_us = -1;     // the last clear that was carried out here
  std::vector<int32_t> cleared;  // segments whose files are to be removed
  EventSink* events = nullptr;
  std::unordered_map<KnownPart, Place, PartHash> parts;
  std::unordered_multimap<KnownPart, Place, PartHash> copies;  // further places of some parts
  TierSegments segments;
  std::map<std::string, SegmentName> others;  // by stem: of other fingerprints, or not readable
  int32_t next_segment = 0;
  int32_t active = -1;
  int lines = -1;   // see UseLines
  PagesKnown news;  // that `events` has not been told
  DiskTierStats figures;
  std::string locked_out;  // why segments of this fingerprint cannot be read
  int64_t warned_us = -kWarnEveryUs;
  MoveQueue queue;  // last: its threads use the rest
};

}  // namespace braid
