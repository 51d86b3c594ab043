// A timeline of who did what when, for `--trace FILE`, in the format that chrome://tracing and
// Perfetto read. Each thread of the compute pool writes into its own list; nothing is recorded
// after the lists are full. Off is a null pointer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace braid {

class Trace {
 public:
  // Thread 0 is the engine thread. A device comes behind the threads.
  Trace(int threads, int64_t events_per_thread_max, bool device = false);

  // Called by that thread only. `name` is a string literal; `count` is how many things (tasks,
  // tokens) the span covers, shown beside it.
  void Record(int thread, std::string_view name, int64_t start_ns, int64_t count);

  // What a device has done, by the host's clock; called by the engine thread.
  void RecordOnDevice(std::string_view name, int64_t start_ns, int64_t end_ns);

  // What the pool's loops are doing now; set by the thread that starts them.
  std::string_view label() const { return label_; }
  void set_label(std::string_view label) { label_ = label; }

  // JSON; when no thread records any more.
  std::string ToJson() const;

 private:
  struct Event {
    std::string_view name;
    int64_t start_ns, end_ns, count;
  };
  void Add(size_t list, const Event& event);

  int64_t events_max_;
  bool device_;
  std::string_view label_ = "loop";
  std::vector<std::vector<Event>> threads_;
};

// A span of thread 0, and the label of the loops inside it. Does nothing without a trace.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, std::string_view name, int64_t count = 0)
      : trace_(trace), name_(name), count_(count) {
    if (!trace_) return;
    outer_ = trace_->label();
    trace_->set_label(name);
    start_ns_ = MonotonicNs();
  }
  ~TraceSpan() {
    if (!trace_) return;
    trace_->Record(0, name_, start_ns_, count_);
    trace_->set_label(outer_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  std::string_view name_, outer_;
  int64_t count_;
  int64_t start_ns_ = 0;
};

}  // namespace braid
