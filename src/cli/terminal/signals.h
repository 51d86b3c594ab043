// SIGINT and SIGTERM as a queue. Create it on the main thread before any other thread starts, so
// that all threads block these signals; one thread reads it.
#pragma once

#include <initializer_list>

namespace braid {

class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // The next signal within this many milliseconds (-1: no limit), or 0.
  int Wait(int milliseconds);
  // For poll(2).
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace braid
