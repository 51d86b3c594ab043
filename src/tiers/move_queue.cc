// See the header.
#include "tiers/move_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace braid {

void MoveQueue::Begin(int threads) {
  for (int i = 0; i < std::max(threads, 1); ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

void MoveQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
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
    // Somebody waits for what comes; what leaves has time.
    std::vector<Task> tasks;
    for (size_t i = 0; i < move.parts.size(); ++i) {
      tasks.push_back({job.get(), static_cast<int32_t>(i)});
    }
    tasks_.insert(move.in() ? tasks_.begin() : tasks_.end(), tasks.begin(), tasks.end());
    jobs_.emplace(job.get(), std::move(job));
  }
  wake_.notify_all();
}

void MoveQueue::Work() {
  ::pthread_setname_np(::pthread_self(), "braid-tier");
  while (true) {
    Task task{};
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = tasks_.front();
      tasks_.pop_front();
    }
    Run(task);
  }
}

void MoveQueue::Run(const Task& task) {
  Job& job = *task.job;
  const Carried carried =
      carry_out_(job.move, job.move.parts[static_cast<size_t>(task.part)], job.began_us);
  std::unique_ptr<Job> ended;
  {
    std::lock_guard lock(mutex_);
    if (!carried.status) {
      job.lost.push_back(task.part);
      job.error = carried.status.error().message;
    } else if (carried.in_memory) {
      job.in_memory.push_back(task.part);
    }
    if (--job.left == 0) {
      const auto at = jobs_.find(&job);
      ended = std::move(at->second);
      jobs_.erase(at);
    }
  }
  if (ended == nullptr) return;
  std::sort(ended->lost.begin(), ended->lost.end());
  std::sort(ended->in_memory.begin(), ended->in_memory.end());
  ended->events->Post(PagesMoved{.move = ended->move.id,
                                 .error = ended->error,
                                 .lost = ended->lost,
                                 .in_memory = ended->in_memory,
                                 .logprob = {},
                                 .duration_us = MonotonicUs() - ended->began_us});
}

}  // namespace braid
