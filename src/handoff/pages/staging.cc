// See the header.
#include "handoff/pages/staging.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/math.h"

namespace braid::handoff {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

int64_t StagingBytes(int64_t wanted, int64_t block_bytes_max) {
  return std::max(wanted, 2 * RoundUp(block_bytes_max, kAlignment));
}

Staging::Staging(const EnginePages& pages, int64_t bytes, std::function<void()> wake)
    : pages_(pages),
      bytes_(bytes),
      wake_(std::move(wake)),
      memory_(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes))),
      thread_([this] { Work(); }) {}

std::byte* Staging::Take(const Page& page) {
  const int64_t size = RoundUp(static_cast<int64_t>(page.size), kAlignment);
  int64_t at = 0;
  for (const auto& [begin, count] : taken_) {
    if (begin - at >= size) break;
    at = begin + count;
  }
  if (at + size > bytes_) return nullptr;
  taken_[at] = size;
  return memory_.get() + at;
}

void Staging::Free(std::byte* bytes) {
  CHECK(taken_.erase(bytes - memory_.get()) == 1, "bytes that nobody has are given back");
}

void Staging::Fetch(const Page& page, std::byte* bytes, Done done) {
  Add({.in = false, .copy = {page, bytes}, .done = std::move(done), .status = {}});
}

void Staging::Store(const Page& page, std::byte* bytes, Done done) {
  Add({.in = true, .copy = {page, bytes}, .done = std::move(done), .status = {}});
}

void Staging::Add(Task task) {
  {
    std::lock_guard lock(mutex_);
    CHECK(!stopping_, "a copy begins after the last");
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void Staging::Work() {
  ::pthread_setname_np(::pthread_self(), "braid-pages");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::vector<Task> now = TakeTasks();
    lock.unlock();
    std::vector<EnginePages::Copy> copies;
    for (const Task& task : now) copies.push_back(task.copy);
    // After an error nobody knows which were copied.
    const Status status = now[0].in ? pages_.Store(copies) : pages_.Fetch(copies);
    for (Task& task : now) task.status = status;
    lock.lock();
    std::ranges::move(now, std::back_inserter(ended_));
    lock.unlock();
    wake_();
    lock.lock();
  }
}

// What is copied at once: the first ones, all in one direction. The mutex is held.
std::vector<Staging::Task> Staging::TakeTasks() {
  std::vector<Task> now;
  for (int64_t bytes = 0; !tasks_.empty() && (now.empty() || tasks_.front().in == now[0].in);) {
    bytes += static_cast<int64_t>(tasks_.front().copy.page.size);
    if (!now.empty() && bytes > kCopyBytes) break;
    now.push_back(std::move(tasks_.front()));
    tasks_.pop_front();
  }
  return now;
}

void Staging::Progress() {
  std::vector<Task> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (Task& task : ended) task.done(task.status);
}

void Staging::Finish() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  Progress();
}

}  // namespace braid::handoff
