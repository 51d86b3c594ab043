// Copies of pages in a bounded piece of the host's memory, made by a thread of its own: a copy from
// or to a device waits for the step that its queue has, which the partners' thread must not.
//
// Bytes are taken first-fit. Whoever finds no room waits and asks again in its turn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "handoff/pages/page_bytes.h"

namespace braid::handoff {

inline constexpr int64_t kStagingBytes = int64_t{64} << 20;
// Copied at once, if so much waits: as much as lies between host and device at a time.
inline constexpr int64_t kCopyBytes = int64_t{8} << 20;

// Two of the largest blocks find room, so one is copied while another travels.
int64_t StagingBytes(int64_t wanted, int64_t block_bytes_max);

class Staging final : public PageBytes {
 public:
  // The pages outlive it. `wake` is called from its thread when Progress has something to do.
  Staging(const EnginePages& pages, int64_t bytes, std::function<void()> wake);
  ~Staging() override { Finish(); }

  bool copies() const override { return true; }
  std::byte* Take(const Page& page) override;
  void Free(std::byte* bytes) override;
  void Fetch(const Page& page, std::byte* bytes, Done done) override;
  void Store(const Page& page, std::byte* bytes, Done done) override;
  void Progress() override;
  void Finish() override;

  int64_t bytes() const { return bytes_; }

 private:
  struct Task {
    bool in;  // to the page
    EnginePages::Copy copy;
    Done done;
    Status status;
  };
  void Add(Task task);
  void Work();
  std::vector<Task> TakeTasks();

  const EnginePages& pages_;
  const int64_t bytes_;
  const std::function<void()> wake_;
  const std::unique_ptr<std::byte[]> memory_;
  std::map<int64_t, int64_t> taken_;  // where, and how many
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<Task> ended_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace braid::handoff
