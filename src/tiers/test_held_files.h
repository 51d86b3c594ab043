// For tests: files whose writes wait until they may go on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "tiers/file_layer.h"

namespace braid {

class HeldFiles final : public FileLayer {
 public:
  // Writes after so many more wait.
  void Hold(int64_t after = 0) {
    std::lock_guard lock(mutex_);
    left_ = after;
  }
  void Release() {
    std::lock_guard lock(mutex_);
    left_ = kAll;
    wake_.notify_all();
  }
  // Returns when so many writes wait.
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
  int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) override {
    {
      std::unique_lock lock(mutex_);
      if (left_ > 0) {
        --left_;
      } else {
        ++held_;
        wake_.notify_all();
        wake_.wait(lock, [&] { return left_ > 0; });
        --held_;
      }
    }
    return FileLayer::WriteAt(fd, data, size, offset);
  }

 private:
  static constexpr int64_t kAll = int64_t{1} << 60;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  int64_t left_ = kAll;
  int held_ = 0;
};

}  // namespace braid
