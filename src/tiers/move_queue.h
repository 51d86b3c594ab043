// Threads that carry out moves, part by part; the thread that does the last part of a move posts
// its end. The engine thread only queues, under a mutex that is held for a moment each time.
//
// Somebody waits for what comes in; what leaves has time. So parts that come in go first, and one
// thread in four (of two or more, one at least) takes nothing else: a disk that keeps all others
// with writing delays no reading.
//
// What is named to be read ahead is read by one of those others at a time, and only while nothing
// comes in: a move that begins waits for a piece of it at most.
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

  // Reads a piece of a part ahead, from a byte on: that of the next piece, or -1 at the end. One
  // thread at a time.
  using ReadPiece = std::function<int64_t(const KnownPart& part, int64_t offset)>;

  explicit MoveQueue(CarryOut carry_out, ReadPiece read_piece = nullptr)
      : carry_out_(std::move(carry_out)), read_piece_(std::move(read_piece)) {}
  ~MoveQueue() { Stop(); }
  void Begin(int threads);
  // Ends what is under way; what is to be read ahead is forgotten.
  void Stop();
  // As Mover::Start.
  void Start(const PageMove& move, EventSink& events);
  // As Mover::ReadAhead.
  void ReadAhead(const PagesAhead& ahead);
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
    std::string error;  // of the part that was lost first in the order of the move
  };
  struct Task {
    Job* job;
    int32_t part;
  };
  // A part that is to be read ahead, from `offset` on.
  struct Hint {
    RequestId request;
    KnownPart part;
    int64_t offset = 0;
    bool operator==(const Hint&) const = default;
  };
  void Work();
  bool CanReadAhead() const;
  bool CanWrite() const { return !writes_.empty() && writing_ + reading_ahead_ < writers_; }
  void Run(const Task& task);
  void ReadHint(std::unique_lock<std::mutex>& lock);

  const CarryOut carry_out_;
  const ReadPiece read_piece_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> reads_, writes_;  // in the order in which they came
  std::deque<Hint> hints_;           // the same; a thread reads the first ahead, or none does
  bool reading_ahead_ = false;
  int writers_ = 1;                // threads that may write, or read ahead
  int writing_ = 0, reading_ = 0;  // threads that do, of moves
  std::map<Job*, std::unique_ptr<Job>> jobs_;
  int posting_ = 0;  // ends of jobs that are not in the map any more
  std::condition_variable drained_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace braid
