// A generation counter announces a loop; members add themselves to `done` when they have seen the
// task counter run out. The caller leaves only when every member has, so a loop's state is never
// reused while somebody still reads it.
#include "base/thread_pool.h"

#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace braid {
namespace {

// About 20 to 50 microseconds of pauses before sleeping.
constexpr int kSpins = 2000;

}  // namespace

struct ThreadPool::State {
  std::atomic<uint64_t> generation{0};
  std::atomic<int64_t> next{0};
  std::atomic<int> done{0};
  int64_t tasks = 0;
  const TaskRef* task = nullptr;
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> members;

  void Work(int member) {
    const TaskRef& f = *task;
    int64_t n = tasks;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) f(i, member);
  }

  // Waits until the generation differs from `seen`; false when the pool stops.
  bool AwaitLoop(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen) return !stop.load();
      _mm_pause();
    }
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    wake.wait(lock, [&] { return generation.load() != seen; });
    sleepers.fetch_sub(1);
    return !stop.load();
  }

  void MemberLoop(int member) {
    uint64_t seen = 0;
    while (AwaitLoop(seen)) {
      ++seen;
      Work(member);
      done.fetch_add(1, std::memory_order_release);
    }
  }

  void Announce() {
    generation.fetch_add(1);
    if (sleepers.load() > 0) {
      {
        std::lock_guard lock(mutex);
      }
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  CHECK(threads >= 1, "{} threads", threads);
  for (int member = 1; member < threads; ++member) {
    state_->members.emplace_back([state = state_.get(), member] { state->MemberLoop(member); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->Announce();
  for (std::thread& member : state_->members) member.join();
}

int ThreadPool::threads() const { return static_cast<int>(state_->members.size()) + 1; }

void ThreadPool::Run(int64_t tasks, TaskRef f) {
  State& s = *state_;
  if (tasks <= 1 || s.members.empty()) {
    for (int64_t i = 0; i < tasks; ++i) f(i, 0);
    return;
  }
  s.tasks = tasks;
  s.task = &f;
  s.next.store(0, std::memory_order_relaxed);
  s.done.store(0, std::memory_order_relaxed);
  s.Announce();
  s.Work(0);
  int spins = 0;
  while (s.done.load(std::memory_order_acquire) != static_cast<int>(s.members.size())) {
    // With more runnable threads than cores a member may not have been scheduled yet.
    if (++spins > kSpins) {
      std::this_thread::yield();
    } else {
      _mm_pause();
    }
  }
}

}  // namespace braid
