// Owner and view of memory are different types: Buffer frees, TensorView is copied by value and
// never owns. A view's last dimension is contiguous; rows may be further apart than they are long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"

namespace braid {

// 64-byte aligned memory; large buffers ask for huge pages. Move-only. Contents start as zero.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes);
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A matrix [rows, cols] of floats: row r begins at data + r * stride. All activations of the CPU
// engine are fp32 in memory; narrower arithmetic rounds operands where a product reads them.
struct Matrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* row(int64_t r) const { return data + r * stride; }
  // Columns [begin, begin + count) of every row.
  Matrix columns(int64_t begin, int64_t count) const {
    CHECK(begin >= 0 && count >= 0 && begin + count <= cols);
    return {data + begin, rows, count, stride};
  }
  // Rows [begin, begin + count).
  Matrix some_rows(int64_t begin, int64_t count) const {
    CHECK(begin >= 0 && count >= 0 && begin + count <= rows);
    return {row(begin), count, cols, stride};
  }
  Matrix first_rows(int64_t count) const { return some_rows(0, count); }
};

// Bump allocator over one buffer, for the scratch of a step. Sized once at start from a dry
// run (see Workspace::peak); running out is a programmer's error.
class Workspace {
 public:
  Workspace() = default;
  // A workspace without memory that only measures; the memory that Take returns must not be
  // accessed.
  static Workspace Measuring();
  explicit Workspace(int64_t bytes);
  // Over memory that another owns, of a device perhaps: the host only computes with its addresses.
  Workspace(std::byte* memory, int64_t bytes) : memory_(memory), capacity_(bytes) {}

  // 64-byte aligned, uninitialised.
  template <class T>
  T* Take(int64_t count) {
    return reinterpret_cast<T*>(TakeBytes(count * static_cast<int64_t>(sizeof(T))));
  }
  // [rows, cols] with rows padded by 16 floats where their stride would be a multiple of 4 KiB, so
  // that consecutive rows do not fall into one cache set.
  Matrix TakeMatrix(int64_t rows, int64_t cols);
  static int64_t StrideOf(int64_t cols);

  int64_t mark() const { return used_; }
  void Rewind(int64_t mark) { used_ = mark; }
  int64_t peak() const { return peak_; }
  int64_t capacity() const { return capacity_; }
  bool measuring() const { return measuring_; }

 private:
  std::byte* TakeBytes(int64_t bytes);
  Buffer buffer_;
  std::byte* memory_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
  int64_t peak_ = 0;
  bool measuring_ = false;
};

// Releases, at scope exit, everything taken since its construction.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace& workspace) : workspace_(workspace), mark_(workspace.mark()) {}
  ~WorkspaceScope() { workspace_.Rewind(mark_); }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Workspace& workspace_;
  int64_t mark_;
};

}  // namespace braid
