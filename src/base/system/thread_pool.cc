// One word, the gate, says which loop is open and how many members have joined it. The caller opens
// the gate, works, closes it and waits for those who joined; nobody can join a closed loop, so a
// loop's state is never reused while somebody still reads it.
#include "base/system/thread_pool.h"

#include <fmt/core.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/system/topology.h"
#include "base/trace.h"

namespace braid {
namespace {

// Ticks of the time-stamp counter (2 to 4 per nanosecond) to spin for before sleeping: several
// times the cost of a futex call, and as long as the serial parts of a step.
constexpr uint64_t kSpinTicks = 150'000;

// The gate: generation << 32 | closed << 31 | members that joined.
constexpr uint64_t kClosed = uint64_t{1} << 31;
constexpr uint64_t kJoinedMask = kClosed - 1;
constexpr uint64_t GenerationOf(uint64_t gate) { return gate >> 32; }

using Futex = std::atomic<uint32_t>;
static_assert(sizeof(Futex) == sizeof(uint32_t));

void SleepWhile(Futex& word, uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void WakeAll(Futex& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// True when `done` came true within the spin.
template <class F>
bool SpinUntil(uint64_t ticks, const F& done) {
  const uint64_t start = __rdtsc();
  while (!done()) {
    if (__rdtsc() - start > ticks) return false;
    _mm_pause();
  }
  return true;
}

void Bind(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  // If the affinity mask has shrunk since it was read, the kernel places the thread.
  ::sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

struct ThreadPool::State {
  alignas(64) std::atomic<uint64_t> gate{kClosed};
  Futex opened{0};  // the generation, to sleep on
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  // Tasks of one node's memory, or all of them.
  struct alignas(64) Range {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::vector<Range> ranges;  // one per node
  size_t ranges_used = 1;
  alignas(64) Futex finished{0};  // members that have left the open loop
  std::atomic<bool> caller_sleeps{false};
  alignas(64) const TaskRef* task = nullptr;
  Trace* trace = nullptr;
  uint64_t spin_ticks = kSpinTicks;
  ThreadPlaces places;
  std::vector<int> nodes;
  std::vector<size_t> node_of;  // of each member, in `nodes`
  std::vector<std::thread> members;

  void Work(int member) {
    const TaskRef& f = *task;
    const int64_t start_ns = trace ? MonotonicNs() : 0;
    int64_t count = 0;
    const size_t own = node_of[static_cast<size_t>(member)];
    for (size_t n = 0; n < ranges_used; ++n) {
      Range& range = ranges[(own + n) % ranges_used];
      const int64_t end = range.end;
      for (int64_t i; (i = range.next.fetch_add(1, std::memory_order_relaxed)) < end; ++count) {
        f(i, member);
      }
    }
    if (trace && count > 0) trace->Record(member, trace->label(), start_ns, count);
  }

  // Waits until the gate's generation differs from `seen`.
  void AwaitLoop(uint64_t seen) {
    const auto opens = [&] { return GenerationOf(gate.load(std::memory_order_acquire)) != seen; };
    if (SpinUntil(spin_ticks, opens)) return;
    sleepers.fetch_add(1);
    while (GenerationOf(gate.load()) == seen) SleepWhile(opened, static_cast<uint32_t>(seen));
    sleepers.fetch_sub(1);
  }

  bool Join(uint64_t generation) {
    uint64_t now = gate.load(std::memory_order_acquire);
    while (GenerationOf(now) == generation && !(now & kClosed)) {
      if (gate.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
  }

  void MemberLoop(int member) {
    ::pthread_setname_np(::pthread_self(), fmt::format("braid-{}", member).c_str());
    if (!places.cpus.empty()) Bind(places.cpus[static_cast<size_t>(member)]);
    uint64_t seen = 0;
    while (true) {
      AwaitLoop(seen);
      seen = GenerationOf(gate.load(std::memory_order_acquire));
      // Only now: the loop that the destructor opens is the last, so nobody may wait behind it.
      if (stop.load()) return;
      if (!Join(seen)) continue;
      Work(member);
      finished.fetch_add(1);
      if (caller_sleeps.load()) WakeAll(finished);
    }
  }

  void Open() {
    const uint64_t generation = (GenerationOf(gate.load(std::memory_order_relaxed)) + 1);
    gate.store(generation << 32);
    opened.store(static_cast<uint32_t>(generation));
    if (sleepers.load() > 0) WakeAll(opened);
  }

  void CloseAndWait() {
    const auto joined = static_cast<uint32_t>(gate.fetch_or(kClosed) & kJoinedMask);
    const auto all = [&] { return finished.load(std::memory_order_acquire) == joined; };
    if (SpinUntil(spin_ticks, all)) return;
    caller_sleeps.store(true);
    for (uint32_t now; (now = finished.load()) != joined;) SleepWhile(finished, now);
    caller_sleeps.store(false);
  }
};

ThreadPool::ThreadPool(int threads, ThreadPlaces places) : state_(std::make_unique<State>()) {
  CHECK(threads >= 1, "{} threads", threads);
  const auto count = static_cast<size_t>(threads);
  CHECK(places.cpus.empty() || places.cpus.size() == count, "CPUs for {} of {} threads",
        places.cpus.size(), threads);
  if (places.nodes.empty()) places.nodes.assign(count, 0);
  CHECK(places.nodes.size() == count, "nodes for {} of {} threads", places.nodes.size(), threads);
  const std::set<int> nodes(places.nodes.begin(), places.nodes.end());
  state_->nodes.assign(nodes.begin(), nodes.end());
  for (int node : places.nodes) {
    state_->node_of.push_back(static_cast<size_t>(std::distance(nodes.begin(), nodes.find(node))));
  }
  state_->ranges = std::vector<State::Range>(nodes.size());
  state_->places = std::move(places);
  // With fewer CPUs than threads, a spinning thread takes the CPU of the thread that it waits for.
  if (threads > static_cast<int>(AffinityMask().size())) state_->spin_ticks = 0;
  for (int member = 1; member < threads; ++member) {
    state_->members.emplace_back([state = state_.get(), member] { state->MemberLoop(member); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->Open();
  for (std::thread& member : state_->members) member.join();
}

const std::vector<int>& ThreadPool::nodes() const { return state_->nodes; }
int ThreadPool::threads() const { return static_cast<int>(state_->members.size()) + 1; }
void ThreadPool::set_trace(Trace* trace) { state_->trace = trace; }
Trace* ThreadPool::trace() const { return state_->trace; }

void ThreadPool::BindCaller() const {
  if (!state_->places.cpus.empty()) Bind(state_->places.cpus[0]);
}

void ThreadPool::Run(int64_t tasks, TaskRef f, std::span<const int64_t> ends) {
  State& s = *state_;
  if (tasks <= 1 || s.members.empty()) {
    for (int64_t i = 0; i < tasks; ++i) f(i, 0);
    return;
  }
  CHECK(ends.empty() || (ends.size() == s.nodes.size() && ends.back() == tasks),
        "ends of {} parts, {} nodes", ends.size(), s.nodes.size());
  s.task = &f;
  s.ranges_used = ends.empty() ? 1 : ends.size();
  for (size_t n = 0; n < s.ranges_used; ++n) {
    s.ranges[n].next.store(n == 0 ? 0 : ends[n - 1], std::memory_order_relaxed);
    s.ranges[n].end = ends.empty() ? tasks : ends[n];
  }
  s.finished.store(0, std::memory_order_relaxed);
  s.Open();
  s.Work(0);
  s.CloseAndWait();
}

}  // namespace braid
