// The compute threads: a fixed team that runs one parallel loop at a time. The caller is member 0.
// Tasks are taken from an atomic counter, so a loop's result must not depend on who runs which
// task. A member that is late joins while tasks are left and is not waited for otherwise: what
// delays one member (another process, a server thread on its core) costs the team at most the task
// in its hands. Waiting is a short spin, then sleep.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/system/topology.h"

namespace braid {

class Trace;

// A borrowed callable; the callee must outlive the call.
class TaskRef {
 public:
  template <class F>
  TaskRef(const F& f)
      : object_(&f), call_([](const void* o, int64_t task, int member) {
          (*static_cast<const F*>(o))(task, member);
        }) {}
  void operator()(int64_t task, int member) const { call_(object_, task, member); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int);
};

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller. Members are named braid-1, braid-2 … for perf and top.
  explicit ThreadPool(int threads, ThreadPlaces places = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // The NUMA nodes of the members, ascending; one where nothing is known of them.
  const std::vector<int>& nodes() const;

  // Binds the calling thread, which is going to call Run, to member 0's CPUs. Threads that it
  // starts afterwards inherit that.
  void BindCaller() const;

  // f(task, member) for every task in [0, tasks), member in [0, threads()). Returns when all are
  // done. Runs on the caller alone when there is one task. Not reentrant; one caller at a time.
  // `ends`, one per node: tasks up to ends[n], from ends[n - 1] on, read memory of nodes()[n];
  // members of that node take them first, and then help the others. Empty: they are everybody's.
  void Run(int64_t tasks, TaskRef f, std::span<const int64_t> ends = {});

  // Records every member's part of every loop; null ends that. Between loops only.
  void set_trace(Trace* trace);
  Trace* trace() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
