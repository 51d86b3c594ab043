// Writes a checkpoint's tensors: one safetensors file, or numbered ones and an index when they
// would pass a size. Move-only; Write from any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/checkpoint/safetensors_writer.h"

namespace braid {

class CheckpointWriter {
 public:
  // Lays the tensors out, in their order, in files of at most `file_bytes_max` (or one tensor).
  static Result<CheckpointWriter> Create(const std::string& directory,
                                         std::vector<TensorPlan> tensors, int64_t file_bytes_max);

  // Bytes [offset, offset + data.size()) of tensor `index`.
  Status Write(size_t index, int64_t offset, std::span<const std::byte> data) const;
  // Every byte has been written: the files get their names, then the index.
  Status Finish();

  const std::vector<TensorPlan>& tensors() const { return tensors_; }
  int64_t bytes() const { return bytes_; }
  int64_t files() const { return static_cast<int64_t>(writers_.size()); }

 private:
  CheckpointWriter() = default;
  std::string FileName(size_t file) const;

  struct Place {
    size_t file = 0;
    size_t index = 0;  // in the file
  };
  std::string directory_;
  std::vector<TensorPlan> tensors_;
  std::vector<Place> places_;
  std::vector<SafetensorsWriter> writers_;
  int64_t bytes_ = 0;
};

}  // namespace braid
