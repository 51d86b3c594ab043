// The loops carry their instruction set by attribute and touch nothing but intrinsics, so that no
// inline code built for it can be picked by the linker for others.
#include "cli/machine_limits.h"

#include <immintrin.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

// Independent chains: enough to cover the latency of two units.
constexpr int kChains = 12;
constexpr int64_t kRounds = 400'000;

__attribute__((target("avx512f"))) float FmaAvx512(float start) {
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(start + static_cast<float>(i));
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(start);
  for (int64_t n = 0; n < kRounds; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  __m512 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm512_add_ps(all, sums[i]);
  return _mm512_cvtss_f32(all);
}

__attribute__((target("avx2,fma"))) float FmaAvx2(float start) {
  __m256 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(start + static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(start);
  for (int64_t n = 0; n < kRounds; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  __m256 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm256_add_ps(all, sums[i]);
  return _mm256_cvtss_f32(all);
}

float FmaBase(float start) {
  __m128 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm_set1_ps(start + static_cast<float>(i));
  const __m128 factor = _mm_set1_ps(0.999f), term = _mm_set1_ps(start);
  for (int64_t n = 0; n < kRounds; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm_add_ps(_mm_mul_ps(sums[i], factor), term);
  }
  __m128 all = sums[0];
  for (int i = 1; i < kChains; ++i) all = _mm_add_ps(all, sums[i]);
  return _mm_cvtss_f32(all);
}

// XOR of `bytes` bytes (a multiple of 512), read as four streams: more than one line in flight per
// stream of the prefetcher.
__attribute__((target("avx2"))) int64_t ReadAvx2(const std::byte* data, int64_t bytes) {
  const int64_t quarter = bytes / 4;
  const auto* in = reinterpret_cast<const __m256i*>(data);
  const int64_t step = quarter / 32;
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (int64_t i = 0; i < step; ++i) {
    a = _mm256_xor_si256(a, _mm256_load_si256(in + i));
    b = _mm256_xor_si256(b, _mm256_load_si256(in + step + i));
    c = _mm256_xor_si256(c, _mm256_load_si256(in + 2 * step + i));
    d = _mm256_xor_si256(d, _mm256_load_si256(in + 3 * step + i));
  }
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return _mm256_extract_epi64(all, 0);
}

int64_t ReadBase(const std::byte* data, int64_t bytes) {
  const int64_t step = bytes / 64;
  const auto* in = reinterpret_cast<const __m128i*>(data);
  __m128i a = _mm_setzero_si128(), b = a, c = a, d = a;
  for (int64_t i = 0; i < step; ++i) {
    a = _mm_xor_si128(a, _mm_load_si128(in + i));
    b = _mm_xor_si128(b, _mm_load_si128(in + step + i));
    c = _mm_xor_si128(c, _mm_load_si128(in + 2 * step + i));
    d = _mm_xor_si128(d, _mm_load_si128(in + 3 * step + i));
  }
  return _mm_cvtsi128_si64(_mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(c, d)));
}

}  // namespace

double MeasureFlopsPerSecond(Isa isa, ThreadPool& pool) {
  const auto loop = isa >= Isa::kAvx512 ? FmaAvx512 : isa == Isa::kAvx2 ? FmaAvx2 : FmaBase;
  const double lanes = isa >= Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 4;
  const int64_t tasks = int64_t{8} * pool.threads();
  std::vector<float> results(static_cast<size_t>(tasks));
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const int64_t start_us = MonotonicUs();
    pool.Run(tasks, [&](int64_t task, int) {
      results[static_cast<size_t>(task)] = loop(static_cast<float>(task) * 1e-3f);
    });
    const double seconds = static_cast<double>(MonotonicUs() - start_us) * 1e-6;
    const double flops = 2.0 * lanes * kChains * static_cast<double>(kRounds * tasks);
    // A result that no float can be would mean that the loop was optimised away.
    CHECK(results[0] == results[0]);
    best = std::max(best, flops / seconds);
  }
  return best;
}

double MeasureBytesPerSecond(Isa isa, ThreadPool& pool) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  constexpr int64_t kTaskBytes = int64_t{4} << 20;
  const Buffer buffer(kBytes);
  constexpr int64_t kTasks = kBytes / kTaskBytes;
  // Written once: pages that were never touched are all the same zero page.
  pool.Run(kTasks, [&](int64_t task, int) {
    std::fill_n(buffer.as<int64_t>() + task * (kTaskBytes / 8), kTaskBytes / 8, task);
  });
  const auto read = isa >= Isa::kAvx2 ? ReadAvx2 : ReadBase;
  std::vector<int64_t> results(static_cast<size_t>(kTasks));
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const int64_t start_us = MonotonicUs();
    pool.Run(kTasks, [&](int64_t task, int) {
      results[static_cast<size_t>(task)] = read(buffer.data() + task * kTaskBytes, kTaskBytes);
    });
    const double seconds = static_cast<double>(MonotonicUs() - start_us) * 1e-6;
    // An even number of equal words cancels.
    CHECK(results[1] == 0);
    best = std::max(best, static_cast<double>(kBytes) / seconds);
  }
  return best;
}

}  // namespace braid
