// See the header.
#include "tiers/move_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace braid {

void MoveQueue::Begin(int threads) {
  const int count = std::max(threads, 1);
  writers_ = count - (count > 1 ? std::max(count / 4, 1) : 0);
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

void MoveQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    hints_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : std::exchange(threads_, {})) thread.join();
}

void MoveQueue::Start(const PageMove& move, EventSink& events) {
  CHECK(!move.parts.empty(), "a move without parts");
  auto job = std::make_unique<Job>();
  job->move = move;
  job->events = &events;
  job->began_us = MonotonicUs();
  job->left = move.parts.size();
  {
    std::lock_guard lock(mutex_);
    std::deque<Task>& tasks = move.in() ? reads_ : writes_;
    for (size_t i = 0; i < move.parts.size(); ++i) {
      tasks.push_back({job.get(), static_cast<int32_t>(i)});
    }
    jobs_.emplace(job.get(), std::move(job));
  }
  wake_.notify_all();
}

void MoveQueue::ReadAhead(const PagesAhead& ahead) {
  {
    std::lock_guard lock(mutex_);
    if (ahead.parts.empty()) {
      std::erase_if(hints_, [&](const Hint& hint) { return hint.request == ahead.request; });
      return;
    }
    for (const KnownPart& part : ahead.parts) hints_.push_back({ahead.request, part});
  }
  wake_.notify_one();
}

bool MoveQueue::CanReadAhead() const {
  return !hints_.empty() && !reading_ahead_ && reading_ == 0 && writing_ < writers_;
}

void MoveQueue::Work() {
  ::pthread_setname_np(::pthread_self(), "braid-tier");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] {
      return stopping_ || !reads_.empty() || CanReadAhead() || CanWrite();
    });
    const bool read = !reads_.empty();
    if (!read && CanReadAhead()) {
      ReadHint(lock);
      continue;
    }
    if (!read && !CanWrite()) return;  // who writes takes what is left
    std::deque<Task>& tasks = read ? reads_ : writes_;
    const Task task = tasks.front();
    tasks.pop_front();
    ++(read ? reading_ : writing_);
    lock.unlock();
    Run(task);
    lock.lock();
    --(read ? reading_ : writing_);
  }
}

// A piece of the first, which another one may be by then.
void MoveQueue::ReadHint(std::unique_lock<std::mutex>& lock) {
  const Hint hint = hints_.front();
  reading_ahead_ = true;
  lock.unlock();
  const int64_t next = read_piece_(hint.part, hint.offset);
  lock.lock();
  reading_ahead_ = false;
  if (hints_.empty() || hints_.front() != hint) return;
  hints_.front().offset = next;
  if (next < 0) hints_.pop_front();
}

void MoveQueue::Run(const Task& task) {
  Job& job = *task.job;
  const Carried carried =
      carry_out_(job.move, job.move.parts[static_cast<size_t>(task.part)], job.began_us);
  std::unique_ptr<Job> ended;
  {
    std::lock_guard lock(mutex_);
    job.disk_bytes += carried.disk_bytes;
    job.memory_bytes += carried.memory_bytes;
    if (!carried.status) {
      job.lost.insert(std::upper_bound(job.lost.begin(), job.lost.end(), task.part), task.part);
      if (job.lost.front() == task.part) job.error = carried.status.error().message;
    } else if (carried.in_memory) {
      job.in_memory.push_back(task.part);
    }
    if (--job.left == 0) {
      const auto at = jobs_.find(&job);
      ended = std::move(at->second);
      jobs_.erase(at);
      ++posting_;
    }
  }
  if (ended == nullptr) return;
  std::sort(ended->in_memory.begin(), ended->in_memory.end());
  ended->events->Post(PagesMoved{.move = ended->move.id,
                                 .error = ended->error,
                                 .lost = ended->lost,
                                 .in_memory = ended->in_memory,
                                 .logprob = {},
                                 .duration_us = MonotonicUs() - ended->began_us,
                                 .disk_bytes = ended->disk_bytes,
                                 .memory_bytes = ended->memory_bytes});
  std::lock_guard lock(mutex_);
  --posting_;
  drained_.notify_all();
}

void MoveQueue::Drain() {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return jobs_.empty() && posting_ == 0; });
}

}  // namespace braid
