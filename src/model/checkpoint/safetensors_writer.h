// Writes one safetensors file whose tensors are known beforehand, in pieces and from several
// threads. The file appears under its name only when it is complete. Move-only.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/system/new_file.h"
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

  // Bytes [offset, offset + data.size()) of tensor `index`. Any thread.
  Status Write(size_t index, int64_t offset, std::span<const std::byte> data) const;
  // Every byte has been written: gives the file its name.
  Status Finish() { return file_.Finish(); }

 private:
  explicit SafetensorsWriter(NewFile file) : file_(std::move(file)) {}
  NewFile file_;
  std::vector<int64_t> begin_;  // of each tensor in the file
};

}  // namespace braid
