// Threads that carry out moves, part by part; the thread that does the last part of a move posts
// its end. The engine thread only queues, under a mutex that is held for a moment each time.
//
// Somebody waits for what comes in; what leaves has time. So parts that come in go first, and one
// thread in four (of two or more, one at least) takes nothing else: a disk that keeps all others
// with writing delays no reading.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "scheduler/event.h"
#include "scheduler/plan.h"

namespace braid {

class MoveQueue {
 public:
  // What became of a part.
  struct Carried {
    Status status;                             // an error: it is not where it was to go
    bool in_memory = false;                    // it came from there
    int64_t disk_bytes = 0, memory_bytes = 0;  // as PagesMoved has them
  };
  // Moves a part, of a move that began at a time. Any of the threads.
  using CarryOut =
      std::function<Carried(const PageMove& move, const PagePart& part, int64_t began_us)>;

  explicit MoveQueue(CarryOut carry_out) : carry_out_(std::move(carry_out)) {}
  ~MoveQueue() { Stop(); }
  void Begin(int threads);
  // Ends what is under way.
  void Stop();
  // As Mover::Start.
  void Start(const PageMove& move, EventSink& events);
  // Returns when the ends of all moves are posted.
  void Drain();

 private:
  // A move in work; its parts are done by any thread, the last one ends it.
  struct Job {
    PageMove move;
    EventSink* events = nullptr;
    int64_t began_us = 0;
    size_t left = 0;
    std::vector<int32_t> lost, in_memory;
    int64_t disk_bytes = 0, memory_bytes = 0;
    std::string error;
  };
  struct Task {
    Job* job;
    int32_t part;
  };
  void Work();
  bool CanWrite() const { return !writes_.empty() && writing_ < writers_; }
  void Run(const Task& task);

  const CarryOut carry_out_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> reads_, writes_;  // in the order in which they came
  int writers_ = 1, writing_ = 0;    // threads: that may write, that do
  std::map<Job*, std::unique_ptr<Job>> jobs_;
  int posting_ = 0;  // ends of jobs that are not in the map any more
  std::condition_variable drained_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace braid
