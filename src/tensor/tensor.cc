// Memory of tensors: anonymous maps, huge pages where they pay.
#include "tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/math.h"

namespace braid {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  CHECK(bytes >= 0);
  if (bytes == 0) return;
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(data != MAP_FAILED, "out of memory: {} bytes", bytes);
  data_ = static_cast<std::byte*>(data);
  if (bytes >= 2 * kHugePageBytes) {
    ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  }
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
}

Workspace Workspace::Measuring() {
  Workspace workspace;
  workspace.measuring_ = true;
  return workspace;
}

Workspace::Workspace(int64_t bytes)
    : buffer_(bytes), memory_(buffer_.data()), capacity_(bytes) {}

std::byte* Workspace::TakeBytes(int64_t bytes) {
  CHECK(bytes >= 0);
  int64_t begin = used_;
  used_ += RoundUp(bytes, 64);
  peak_ = std::max(peak_, used_);
  // Callers may compute with this address but not access it.
  if (measuring_) return reinterpret_cast<std::byte*>(kHugePageBytes + begin);
  CHECK(used_ <= capacity_, "workspace of {} bytes, {} needed", capacity_, used_);
  return memory_ + begin;
}

Matrix Workspace::TakeMatrix(int64_t rows, int64_t cols) {
  const int64_t stride = StrideOf(cols);
  return {Take<float>(rows * stride), rows, cols, stride};
}

int64_t Workspace::StrideOf(int64_t cols) {
  const int64_t stride = RoundUp(cols, 16);
  return stride % 1024 == 0 ? stride + 16 : stride;
}

}  // namespace braid
