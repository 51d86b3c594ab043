// SIGINT and SIGTERM as something to wait for. Made on the main thread before any other thread
// starts, so that all threads leave these signals alone; read by one thread.
#pragma once

#include <initializer_list>

namespace braid {

class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // The next signal within so many milliseconds (-1: whenever it comes), or 0.
  int Wait(int milliseconds);
  // For poll(2), with others.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace braid
