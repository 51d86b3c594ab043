// Writes one safetensors file whose tensors are known beforehand, in pieces and from several
// threads. The file appears under its name only when it is complete. Move-only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace braid {

struct TensorPlan {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;

  int64_t elements() const;
  int64_t bytes() const { return elements() * SizeOf(dtype); }
};

class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          std::span<const TensorPlan> tensors);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&& other) noexcept;
  ~SafetensorsWriter();  // an unfinished file is removed

  // Bytes [offset, offset + data.size()) of tensor `index`. Any thread.
  Status Write(size_t index, int64_t offset, std::span<const std::byte> data) const;
  // Every byte has been written: gives the file its name.
  Status Finish();

 private:
  SafetensorsWriter() = default;
  std::string path_;
  std::vector<int64_t> begin_;  // of each tensor in the file
  int fd_ = -1;
};

}  // namespace braid
