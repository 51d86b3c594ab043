// The compute threads: a fixed team that runs one parallel loop at a time. The caller is member 0.
// Tasks are taken from an atomic counter, so a loop's result must not depend on who runs which
// task. Members spin for a short while between loops (a step is a chain of many small loops), then
// sleep.
#pragma once

#include <cstdint>
#include <memory>

namespace braid {

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
  // `threads` >= 1 counts the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // f(task, member) for every task in [0, tasks), member in [0, threads()). Returns when all are
  // done. Runs on the caller alone when there is one task. Not reentrant; one caller at a time.
  void Run(int64_t tasks, TaskRef f);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
