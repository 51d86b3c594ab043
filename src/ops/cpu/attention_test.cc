// Tasks of attention on vectors, against plain loops that add in the same order: whichever slabs,
// rows and vectors a kernel takes together, no bit may tell.
#include "ops/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "ops/cpu/dispatch.h"
#include "ops/testing/test_context.h"
#include "tensor/dtype.h"

namespace braid::ops::cpu {
namespace {

constexpr int64_t kPages = kPartitionKeys / kPageKeys;

// Pages of one partition, and scratch and results of a task on them.
struct Partition {
  Partition(CacheFormat kv, int64_t head_dim, int64_t value_dim, int rows)
      : q(static_cast<size_t>(rows * head_dim)),
        scores(static_cast<size_t>(rows * kPartitionKeys)),
        maxima(static_cast<size_t>(rows)),
        sums(static_cast<size_t>(rows)),
        out(static_cast<size_t>(rows * value_dim)),
        scales(static_cast<size_t>(kPartitionKeys)) {
    Rng rng(7);
    for (float& x : q) x = static_cast<float>(rng.Normal()) * 0.1f;
    for (float& x : scales) x = 0.01f + 0.001f * std::abs(static_cast<float>(rng.Normal()));
    task.kv = kv;
    task.q = q.data();
    task.rows = rows;
    task.head_dim = head_dim;
    task.value_dim = task.value_stride = value_dim;
    task.scores = scores.data();
    task.maxima = maxima.data();
    task.sums = sums.data();
    task.out = out.data();
    for (int64_t i = 0; i < kPages; ++i) {
      task.keys[i] = Page(rng, head_dim);
      task.values[i] = Page(rng, value_dim);
      task.key_scales[i] = task.value_scales[i] = scales.data() + i * kPageKeys;
    }
  }
  const std::byte* Page(Rng& rng, int64_t dim) {
    auto& page = pages.emplace_back(static_cast<size_t>(kPageKeys * dim * BytesOf(task.kv)));
    for (int64_t i = 0; i < kPageKeys * dim; ++i) {
      const auto x = static_cast<float>(rng.Normal());
      const uint16_t half = Bf16OfFloat(x);
      const auto integer = static_cast<int8_t>(20 * x);
      const void* from = task.kv == CacheFormat::kI8     ? static_cast<const void*>(&integer)
                         : task.kv == CacheFormat::kBF16 ? static_cast<const void*>(&half)
                                                         : &x;
      const auto size = static_cast<size_t>(BytesOf(task.kv));
      std::memcpy(page.data() + static_cast<size_t>(i) * size, from, size);
    }
    return page.data();
  }
  float Value(int64_t key, int64_t channel) const {
    const std::byte* page = task.values[key / kPageKeys];
    const int64_t i = key % kPageKeys * task.value_stride + channel;
    if (task.kv == CacheFormat::kI8) return reinterpret_cast<const int8_t*>(page)[i];
    if (task.kv == CacheFormat::kF32) return reinterpret_cast<const float*>(page)[i];
    return FloatOfBf16(reinterpret_cast<const uint16_t*>(page)[i]);
  }

  AttendTask task = {};
  std::vector<float> q, scores, maxima, sums, out, scales;
  std::vector<std::vector<std::byte>> pages;
};

// The kernel leaves the weights of a row where its scores were.
TEST(AttendOnVectors, ValuesAddOverKeysInAscendingOrder) {
  constexpr int kRows = 13;
  const int32_t limits[kRows] = {1, 15, 16, 17, 256, 256, 256, 256, 33, 63, 64, 65, 250};
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    const KernelTable* kernels = KernelsFor(test.context.device);
    if (kernels == nullptr) continue;
    for (CacheFormat kv : {CacheFormat::kF32, CacheFormat::kBF16, CacheFormat::kI8}) {
      Partition p(kv, 32, 80, kRows);
      std::copy(limits, limits + kRows, p.task.limits);
      kernels->attend(p.task);
      for (int row = 0; row < kRows; ++row) {
        const float* weights = p.scores.data() + row * kPartitionKeys;
        for (int64_t c = 0; c < p.task.value_dim; ++c) {
          float sum = 0;
          for (int64_t key = 0; key < limits[row]; ++key) {
            sum = std::fma(weights[key], p.Value(key, c), sum);
          }
          ASSERT_EQ(sum, p.out[static_cast<size_t>(row * p.task.value_dim + c)])
              << NameOf(isa) << " format " << static_cast<int>(kv) << " row " << row << " channel "
              << c;
        }
      }
    }
  }
}

// The weights of a row, its maximum and its sum too.
TEST(AttendOnVectors, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  constexpr int kRows = 13;
  for (Isa isa : TestIsas()) {
    TestContext test(isa);
    const KernelTable* kernels = KernelsFor(test.context.device);
    if (kernels == nullptr) continue;
    for (CacheFormat kv : {CacheFormat::kF32, CacheFormat::kBF16, CacheFormat::kI8}) {
      Partition all(kv, 64, 64, kRows);
      for (int row = 0; row < kRows; ++row) all.task.limits[row] = 20 * row + 1;
      all.task.next_keys = all.task.keys[0];
      kernels->attend(all.task);
      for (int row = 0; row < kRows; ++row) {
        Partition one(kv, 64, 64, kRows);
        one.task.rows = 1;
        one.task.q += row * 64;
        one.task.limits[0] = all.task.limits[row];
        kernels->attend(one.task);
        const auto at = static_cast<size_t>(row);
        ASSERT_EQ(one.maxima[0], all.maxima[at]) << NameOf(isa) << " row " << row;
        ASSERT_EQ(one.sums[0], all.sums[at]) << NameOf(isa) << " row " << row;
        ASSERT_EQ(std::memcmp(one.out.data(), all.out.data() + 64 * at, 64 * sizeof(float)), 0)
            << NameOf(isa) << " format " << static_cast<int>(kv) << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops::cpu
