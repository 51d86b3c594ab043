// What copies of pages promise (handoff/pages/staging.h), on a device that is memory of the host's
// behind a gate: for a test and for the test that planted mistakes are found.
#pragma once

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "handoff/pages/staging.h"

namespace braid::handoff {

class GatedDevice final : public ArenaAccess {
 public:
  explicit GatedDevice(size_t bytes) : arena(bytes) {}

  Status Fetch(std::span<const Piece> pieces) override { return Copy(pieces, false); }
  Status Store(std::span<const Piece> pieces) override { return Copy(pieces, true); }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // The calls so far.
  struct Call {
    bool in;
    size_t pieces;
  };
  std::vector<Call> calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }

  std::vector<std::byte> arena;
  std::string error;  // not empty: of every call

 private:
  Status Copy(std::span<const Piece> pieces, bool in) {
    std::unique_lock lock(mutex_);
    calls_.push_back({in, pieces.size()});
    changed_.wait(lock, [this] { return open_; });
    if (!error.empty()) return Error{ErrorCode::kUnavailable, error};
    for (const Piece& piece : pieces) {
      std::byte* here = piece.here.data();
      in ? std::memcpy(piece.there, here, piece.here.size())
         : std::memcpy(here, piece.there, piece.here.size());
    }
    return {};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  bool open_ = false;
};

// Eight blocks of 4 MiB, each full of its own number, and room for two copies.
struct StagedPages {
  static constexpr size_t kBlock = size_t{4} << 20;
  StagedPages() : device(8 * kBlock), pages(std::nullopt) {
    geometry.groups = {{"attention", GroupKind::kFull, kBlock, 1}};
    geometry.page_bytes = kBlock;
    geometry.pages = 8;
    for (size_t i = 0; i < 8; ++i) std::memset(Block(i), static_cast<int>(i), kBlock);
    pages.Attach(0, {device.arena.data(), &device}, geometry);
    staging = std::make_unique<Staging>(pages, StagingBytes(1, kBlock), [] {});
  }
  std::byte* Block(size_t i) { return device.arena.data() + i * kBlock; }
  Page At(int32_t block) const { return pages.At(GroupId(0), BlockId(block)); }
  template <class F>
  bool Until(F done) {
    for (const int64_t end_us = MonotonicUs() + 10'000'000; !done() && MonotonicUs() < end_us;) {
      staging->Progress();
    }
    return done();
  }

  GatedDevice device;
  CacheGeometry geometry;
  EnginePages pages;
  std::unique_ptr<Staging> staging;
};

inline bool IsFullOf(const std::byte* bytes, size_t count, int value) {
  return std::all_of(bytes, bytes + count, [&](std::byte b) { return b == std::byte(value); });
}

// Two find room and do not share it; a third does when one is given back.
inline bool RoomIsBounded() {
  StagedPages with;
  with.device.Open();
  Staging& staging = *with.staging;
  std::byte *first = staging.Take(with.At(0)), *second = staging.Take(with.At(1));
  if (first == nullptr || second == nullptr || staging.Take(with.At(2)) != nullptr) return false;
  std::memset(first, 1, StagedPages::kBlock);
  std::memset(second, 2, StagedPages::kBlock);
  if (!IsFullOf(first, StagedPages::kBlock, 1)) return false;
  staging.Free(first);
  return staging.Take(with.At(2)) == first && staging.Take(with.At(3)) == nullptr;
}

// In the order of the calls, in one direction at a time, each block by its own bytes; nothing is
// done before the device has done it.
inline bool CopiesAreInOrder() {
  StagedPages with;
  Staging& staging = *with.staging;
  std::byte *out = staging.Take(with.At(3)), *in = staging.Take(with.At(5));
  std::memset(in, 50, StagedPages::kBlock);
  std::vector<int> done;
  bool right = true;
  // The device is at this one while the others come.
  staging.Fetch(with.At(2), out, [&](const Status&) { done.push_back(0); });
  with.Until([&] { return !with.device.calls().empty(); });
  staging.Fetch(with.At(3), out, [&](const Status& status) {
    right &= status.ok() && IsFullOf(out, StagedPages::kBlock, 3);
    done.push_back(1);
  });
  staging.Store(with.At(5), in, [&](const Status& status) {
    right &= status.ok() && IsFullOf(with.Block(5), StagedPages::kBlock, 50);
    done.push_back(2);
  });
  staging.Store(with.At(3), in, [&](const Status& status) {
    right &= status.ok() && IsFullOf(with.Block(3), StagedPages::kBlock, 50);
    done.push_back(3);
  });
  staging.Progress();
  if (!done.empty() || with.device.calls().size() != 1) return false;
  with.device.Open();
  if (!with.Until([&] { return done.size() == 4; })) return false;
  const auto calls = with.device.calls();
  return right && done == std::vector{0, 1, 2, 3} && calls.size() == 3 && !calls[1].in &&
         calls[1].pieces == 1 && calls[2].in && calls[2].pieces == 2 &&
         IsFullOf(with.Block(4), StagedPages::kBlock, 4);
}

// Whoever waits for a copy hears of the device's error; Finish ends what began.
inline bool ErrorsAreTold() {
  StagedPages with;
  with.device.error = "the device is lost";
  with.device.Open();
  std::vector<std::string> errors;
  const auto note = [&](const Status& status) {
    errors.push_back(status ? "" : status.error().message);
  };
  std::byte* bytes = with.staging->Take(with.At(0));
  with.staging->Store(with.At(0), bytes, note);
  with.staging->Fetch(with.At(0), bytes, note);
  with.staging->Finish();
  return errors == std::vector<std::string>(2, "the device is lost");
}

inline bool StagingHolds() { return RoomIsBounded() && CopiesAreInOrder() && ErrorsAreTold(); }

}  // namespace braid::handoff
