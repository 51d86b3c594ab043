// A checkpoint directory as a map from tensor names to bytes: one safetensors file, or shards named
// by an index. Everything a file says is checked before it is used: header length, JSON, types,
// shapes, offsets (no overlap, no hole, nothing past the end), duplicate names, index entries
// (plain file names inside the directory that exist and hold what the index says).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace braid {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int32_t file = 0;  // index into the checkpoint's files
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

class Checkpoint {
 public:
  static Result<Checkpoint> Open(const std::string& directory);

  const TensorEntry* Find(std::string_view name) const;  // null when absent
  const std::map<std::string, TensorEntry, std::less<>>& tensors() const { return tensors_; }
  const std::string& directory() const { return directory_; }
  const std::string& file_path(const TensorEntry& entry) const;
  // Hints to the kernel about bytes of a tensor: they will be read next, or they have been read.
  void WillNeed(const TensorEntry& entry, int64_t offset, int64_t bytes) const;
  void DontNeed(const TensorEntry& entry, int64_t offset, int64_t bytes) const;
  int64_t total_bytes() const;

 private:
  Checkpoint() = default;
  Status AddFile(MappedFile file);
  Status CheckIndex(std::string_view index, const std::string& path) const;

  std::string directory_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorEntry, std::less<>> tensors_;
};

}  // namespace braid
