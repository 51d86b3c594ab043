// Writes one GGUF file (version 3) whose metadata and tensors are known beforehand, in pieces and
// from several threads. The file appears under its name only when it is complete. Move-only.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/system/new_file.h"
#include "model/checkpoint/formats/gguf_blocks.h"

namespace braid {

struct GgufTensorPlan {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;  // slowest first, as elsewhere here

  int64_t columns() const { return shape.back(); }
  int64_t rows() const;  // of all dimensions but the last
  int64_t row_bytes() const { return columns() / type->block_elements * type->block_bytes; }
  int64_t bytes() const { return rows() * row_bytes(); }
};

class GgufWriter {
 public:
  // Integers of the metadata become u32, those of lists i32, other numbers f32; lists have items of
  // one kind.
  static Result<GgufWriter> Create(const std::string& path, const json::object& metadata,
                                   std::span<const GgufTensorPlan> tensors);

  // Bytes [offset, offset + data.size()) of tensor `index`. Any thread.
  Status Write(size_t index, int64_t offset, std::span<const std::byte> data) const;
  // Every byte has been written: gives the file its name.
  Status Finish() { return file_.Finish(); }
  int64_t bytes() const { return bytes_; }  // of the file

 private:
  explicit GgufWriter(NewFile file) : file_(std::move(file)) {}
  NewFile file_;
  std::vector<int64_t> begin_;  // of each tensor in the file
  int64_t bytes_ = 0;
};

}  // namespace braid
