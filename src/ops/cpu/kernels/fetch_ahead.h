// Prefetches lines that are needed soon into the second-level cache, a few at a time between
// computations, so that memory and arithmetic work at the same time.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace braid::ops::cpu {

class FetchAhead {
 public:
  // Appends `bytes` bytes from `at` on to the list; null adds nothing.
  void Add(const void* at, int64_t bytes) {
    const char* begin = static_cast<const char*>(at);
    if (at && bytes > 0) ranges_[count_++] = {begin, begin + bytes};
  }

  void Fetch(int64_t lines) {
    for (; lines > 0 && first_ < count_; --lines) {
      Range& range = ranges_[first_];
      _mm_prefetch(range.at, _MM_HINT_T1);
      range.at += 64;
      if (range.at >= range.end) ++first_;
    }
  }

 private:
  struct Range {
    const char* at;
    const char* end;
  };
  Range ranges_[3];  // the most that anybody lists
  int first_ = 0;
  int count_ = 0;
};

}  // namespace braid::ops::cpu
