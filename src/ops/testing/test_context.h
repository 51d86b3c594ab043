// Shared by the op tests: contexts for every candidate this machine can run, random matrices, bit
// comparison.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "base/rng.h"
#include "ops/op.h"
#include "ops/packed.h"

namespace braid::ops {

// An OpContext and the objects that it points to.
struct TestContext {
  explicit TestContext(Isa isa, int threads = 1, Compute compute = Compute::kF32,
                       ThreadPlaces places = {})
      : pool(threads, std::move(places)), workspace(int64_t{256} << 20) {
    context.device = DeviceOf(DetectCpu(), isa, compute);
    context.pool = &pool;
    context.workspace = &workspace;
  }
  ThreadPool pool;
  Workspace workspace;
  OpContext context;
};

// Three threads on two NUMA nodes; the machine need not have them.
inline const ThreadPlaces kFakeNodes = {.cpus = {}, .nodes = {4, 4, 9}};

// Fills the first MiB of the workspace with NaN, which exposes an op that reads scratch before it
// writes it.
inline void SpoilWorkspace(const OpContext& context) {
  constexpr int64_t kBytes = 1 << 20;
  const WorkspaceScope scope(*context.workspace);
  std::memset(context.workspace->Take<std::byte>(kBytes), 0xff, static_cast<size_t>(kBytes));
}

// The instruction sets to test: all that this machine has, or the one that BRAID_TEST_ISA names.
inline std::vector<Isa> TestIsas() {
  const char* only = std::getenv("BRAID_TEST_ISA");
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (isa <= BestIsa(DetectCpu()) && (only == nullptr || NameOf(isa) == std::string_view(only))) {
      isas.push_back(isa);
    }
  }
  return isas;
}

// Every one of them with either arithmetic.
inline std::vector<std::pair<Isa, Compute>> TestArithmetics() {
  std::vector<std::pair<Isa, Compute>> all;
  for (Isa isa : TestIsas()) {
    for (Compute compute : {Compute::kF32, Compute::kBF16}) all.emplace_back(isa, compute);
  }
  return all;
}

// A matrix with its memory; values are normal times `scale`. Rows are `stride` floats apart.
struct OwnedMatrix {
  OwnedMatrix(int64_t rows, int64_t cols, int64_t stride = 0)
      : values(static_cast<size_t>(rows * std::max(stride, cols))),
        view{values.data(), rows, cols, std::max(stride, cols)} {}
  OwnedMatrix(Rng& rng, int64_t rows, int64_t cols, double scale = 1.0) : OwnedMatrix(rows, cols) {
    for (float& v : values) v = static_cast<float>(rng.Normal() * scale);
  }
  OwnedMatrix(const OwnedMatrix& other) : values(other.values), view(other.view) {
    view.data = values.data();
  }
  OwnedMatrix& operator=(const OwnedMatrix&) = delete;
  std::vector<float> values;
  Matrix view;
};

// Memory that ends where the process must not read: what reads behind it ends there.
class GuardedBuffer {
 public:
  // bytes: a multiple of 64, to which data() is aligned.
  explicit GuardedBuffer(int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    size_ = static_cast<size_t>(RoundUp(bytes, page) + page);
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    std::byte* end = memory_ + size_ - page;
    CHECK(mprotect(end, static_cast<size_t>(page), PROT_NONE) == 0);
    data_ = end - bytes;
  }
  GuardedBuffer(GuardedBuffer&& other) noexcept
      : size_(other.size_), memory_(std::exchange(other.memory_, nullptr)), data_(other.data_) {}
  ~GuardedBuffer() {
    if (memory_ != nullptr) munmap(memory_, size_);
  }

  std::byte* data() const { return data_; }

 private:
  size_t size_ = 0;
  std::byte *memory_ = nullptr, *data_ = nullptr;
};

// `count` packed random matrices [n, k] with standard deviation k^-1/2.
struct OwnedWeights {
  OwnedWeights(Rng& rng, WeightFormat format, int64_t count, int64_t n, int64_t k)
      : matrix{format, count, n, k, nullptr}, memory(matrix.bytes()) {
    matrix.data = memory.data();
    const double scale = 1.0 / std::sqrt(static_cast<double>(k));
    const bool bf16 = format != WeightFormat::kF32;  // quantised weights come from bf16
    const int64_t size = bf16 ? 2 : 4;
    std::vector<std::byte> rows(static_cast<size_t>(kPanelRows * k * size));
    for (int64_t m = 0; m < count; ++m) {
      for (int64_t p = 0; p < matrix.panels(); ++p) {
        const std::byte* pointers[kPanelRows] = {};
        for (int64_t r = 0; r < kPanelRows && p * kPanelRows + r < n; ++r) {
          std::byte* row = rows.data() + r * k * size;
          pointers[r] = row;
          for (int64_t c = 0; c < k; ++c) {
            const float value = static_cast<float>(rng.Normal() * scale);
            const uint16_t half = Bf16OfFloat(value);
            std::memcpy(row + c * size, bf16 ? static_cast<const void*>(&half) : &value,
                        static_cast<size_t>(size));
          }
        }
        PackPanel(matrix, m, p, pointers, bf16 ? DType::kBF16 : DType::kF32);
      }
    }
  }
  // The panels of another one. Of each `together` matrices, columns have a random order.
  OwnedWeights(Rng& rng, const OwnedWeights& from, int64_t together)
      : matrix(Ordered(from.matrix)), memory(matrix.bytes()) {
    matrix.data = memory.data();
    std::vector<uint16_t> order(static_cast<size_t>(matrix.k));
    std::iota(order.begin(), order.end(), uint16_t{0});
    const int64_t bytes = from.matrix.matrix_bytes();
    for (int64_t m = 0; m < matrix.count; ++m) {
      for (size_t c = order.size(); m % together == 0 && c > 1; --c) {
        std::swap(order[c - 1], order[static_cast<size_t>(rng.Below(static_cast<int64_t>(c)))]);
      }
      std::byte* to = matrix.data + m * matrix.matrix_bytes();
      std::copy_n(from.matrix.panel(m, 0), bytes, to);
      std::memcpy(to + bytes, order.data(), 2 * order.size());
    }
  }
  static PackedMatrix Ordered(PackedMatrix matrix) {
    matrix.ordered = true;
    return matrix;
  }

  PackedMatrix matrix;
  GuardedBuffer memory;
};

inline bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

// The largest |a - b| relative to the largest |b|.
inline double RelativeError(const Matrix& a, const Matrix& b) {
  double worst = 0, largest = 0;
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < a.cols; ++c) {
      const double difference = std::abs(double{a.row(r)[c]} - b.row(r)[c]);
      worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
      largest = std::max(largest, std::abs(double{b.row(r)[c]}));
    }
  }
  return worst / std::max(largest, 1e-30);
}

// Rows [begin, begin + count) of a matrix.
inline Matrix RowsOf(const Matrix& m, int64_t begin, int64_t count) {
  return {m.row(begin), count, m.cols, m.stride};
}

}  // namespace braid::ops
