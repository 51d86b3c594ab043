// A queue of grammars to try and compile, with threads of its own: requests without a grammar do
// not wait for it. Keys are served round robin, each with a limited share of threads and places, so
// that slow grammars of one key do not delay others. Thread-safe.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/grammar_library.h"

namespace braid {

class CompileQueue {
 public:
  struct Limits {
    int threads = 4;
    int running_per_key = 2;
    size_t waiting = 64;
    size_t waiting_per_key = 16;
  };

  // `library` must outlive the object.
  CompileQueue(GrammarLibrary& library, Limits limits);
  ~CompileQueue() { Stop(); }
  // Discards what waits, cancels what runs and waits for it.
  void Stop();

  // A place in the queue. Destroying it leaves the queue and cancels the compilation.
  class Ticket {
   public:
    Ticket(CompileQueue& queue, int64_t id) : queue_(&queue), id_(id) {}
    ~Ticket() {
      if (queue_ != nullptr) queue_->Leave(id_);
    }
    Ticket(Ticket&& other) noexcept
        : queue_(std::exchange(other.queue_, nullptr)), id_(other.id_) {}
    Ticket& operator=(Ticket&&) = delete;
    // The result; nullopt while it is pending.
    std::optional<GrammarLibrary::Checked> Outcome() const { return queue_->OutcomeOf(id_); }

   private:
    CompileQueue* queue_;
    int64_t id_;
  };

  // `wake` is called when the result is known, unless the ticket is destroyed by then; it must not
  // call the queue. `spend` gets the microseconds of work before that, on a thread of the queue,
  // also if the ticket is destroyed by then. kExhausted: the key has used all its places;
  // kUnavailable: the queue is full.
  using Spend = std::function<void(int64_t work_us)>;
  Result<Ticket> Enter(const std::string& key, std::string grammar, std::function<void()> wake,
                       Spend spend = {});

 private:
  struct Job {
    std::string key, grammar;
    std::function<void()> wake;
    Spend spend;
    std::atomic<bool> cancelled{false};
    bool running = false;
    bool left = false;  // the ticket is destroyed
    std::optional<GrammarLibrary::Checked> outcome;
  };
  struct Key {
    std::deque<int64_t> waiting;
    int running = 0;
  };
  static void* RunThread(void* queue);
  void Run();
  // The next job whose key may use another thread; -1: none.
  int64_t NextLocked();
  void Leave(int64_t id);
  std::optional<GrammarLibrary::Checked> OutcomeOf(int64_t id);

  GrammarLibrary& library_;
  const Limits limits_;
  std::vector<pthread_t> threads_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::map<int64_t, std::unique_ptr<Job>> jobs_;
  std::map<std::string, Key> keys_;  // those that wait or run
  std::string turn_;                 // the key that was served last
  size_t waiting_ = 0;
  int64_t next_id_ = 0;
  bool stopping_ = false;
};

}  // namespace braid
