// Prefetches lines that are needed soon into the second-level cache, a few at a time between
// computations, so that memory and arithmetic work at the same time. And rows of the recurrence,
// which lie apart.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/kernels/table.h"

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

// A token's row of q, k or v lies far from the next one's, where no hardware looks ahead.
inline void PrefetchRow(const float* row, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) _mm_prefetch(row + i, _MM_HINT_T0);
}

// Row `row` of the task that follows comes from memory while this one is computed.
inline void FetchNextRow(const DeltaTask& t, int row) {
  if (row >= t.next.tokens) return;
  auto fetch = [&](const float* rows, int64_t count) {
    for (int64_t i = 0; rows && i < count; i += 16) {
      _mm_prefetch(rows + row * t.token_stride + i, _MM_HINT_T1);
    }
  };
  fetch(t.next.k, t.dk);
  fetch(t.next.q, t.dk);
  fetch(t.next.v, t.dv);
  const float* decays = t.next.log_decay ? t.next.log_decay + row * t.decay_stride : nullptr;
  for (int64_t d = 0; decays && d < t.dk; d += 16) _mm_prefetch(decays + d, _MM_HINT_T1);
}

}  // namespace braid::ops::cpu
