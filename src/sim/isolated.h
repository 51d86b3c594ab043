// Work in a process of its own, which may stop in any way: a failed CHECK, a crash, out of time.
// Its last words are kept. For runs that shall find mistakes. Start them while the calling process
// has one thread.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <functional>
#include <new>
#include <string>

#include "base/check.h"

namespace braid {

struct IsolatedEnd {
  bool clean = false;        // the work returned true
  bool out_of_time = false;  // it used up its processor time; neither clean nor a finding
  std::string said;          // the last line it wrote to standard error
};

class IsolatedProcess {
 public:
  // Starts at once. 0 seconds: no limit.
  IsolatedProcess(const std::function<bool()>& work, int32_t cpu_seconds_max);
  IsolatedProcess(const IsolatedProcess&) = delete;
  ~IsolatedProcess();  // ends the work when nobody has waited for it

  bool Ended();
  IsolatedEnd Wait();

 private:
  pid_t pid_ = -1;
  int said_ = -1;  // file descriptor
  int status_ = 0;
  bool reaped_ = false;
};

// A value that processes started later write and this one reads.
template <class T>
class SharedValue {
 public:
  SharedValue() {
    void* memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "no memory to share");
    value_ = new (memory) T();
  }
  SharedValue(const SharedValue&) = delete;
  ~SharedValue() { munmap(value_, sizeof(T)); }
  T& operator*() { return *value_; }
  T* operator->() { return value_; }

 private:
  T* value_;
};

}  // namespace braid
