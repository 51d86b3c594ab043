// For tests: files whose writes, or reads, wait until they may go on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "tiers/file_layer.h"

namespace braid {

class HeldFiles final : public FileLayer {
 public:
  // Writes, or reads, after so many more wait.
  void Hold(int64_t after = 0) {
    std::lock_guard lock(mutex_);
    left_ = after;
  }
  void HoldReads(int64_t after = 0) {
    std::lock_guard lock(mutex_);
    reads_left_ = after;
  }
  void Release() {
    std::lock_guard lock(mutex_);
    left_ = reads_left_ = kAll;
    wake_.notify_all();
  }
  // Returns when so many wait.
  void AwaitHeld(int count = 1) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return held_ >= count; });
  }
  // Whether so many writes wait before the time is over.
  bool HeldWithin(int count, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, time, [&] { return held_ >= count; });
  }
  int held() const {
    std::lock_guard lock(mutex_);
    return held_;
  }
  int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) override {
    Await(reads_left_);
    return FileLayer::ReadAt(fd, data, size, offset);
  }
  int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) override {
    Await(left_);
    return FileLayer::WriteAt(fd, data, size, offset);
  }

 private:
  static constexpr int64_t kAll = int64_t{1} << 60;
  void Await(int64_t& left) {
    std::unique_lock lock(mutex_);
    if (left > 0) {
      --left;
      return;
    }
    ++held_;
    wake_.notify_all();
    wake_.wait(lock, [&] { return left > 0; });
    --held_;
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  int64_t left_ = kAll, reads_left_ = kAll;
  int held_ = 0;
};

}  // namespace braid
