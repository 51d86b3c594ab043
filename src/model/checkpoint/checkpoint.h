// A checkpoint directory as a map from tensor names to bytes: one safetensors file, or shards named
// by an index. Everything a file says is checked before it is used: header length, JSON, types,
// shapes, offsets (no overlap, no hole, nothing past the end), duplicate names, index entries
// (plain file names inside the directory that exist and hold what the index says).
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/system/file.h"
#include "tensor/dtype.h"

namespace braid {

struct GgufType;

// Rows of a GGUF file in the order in which the model has them: runs of rows, perhaps with their
// columns in another order, perhaps with -exp undone.
struct GgufView {
  struct Rows {
    const std::byte* first = nullptr;
    int64_t count = 0;
  };
  struct Columns {
    int64_t begin = 0;
    int64_t count = 0;
  };
  const GgufType* type = nullptr;
  int64_t row_bytes = 0;
  std::vector<Rows> rows;
  std::vector<Columns> columns;  // empty: as stored
  bool log_of_negative = false;  // the stored numbers are -exp of the model's
};

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int32_t file = 0;  // index into the checkpoint's files
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  const GgufView* view = nullptr;  // of a GGUF file; then dtype and data do not count
};

class Checkpoint {
 public:
  static Result<Checkpoint> Open(const std::string& directory);
  // A GGUF file under the model's names: the entries' views are among `views`.
  struct Gguf {
    std::vector<MappedFile> parts;
    std::deque<GgufView> views;
    std::map<std::string, TensorEntry, std::less<>> tensors;
    std::vector<std::string> left_out;
    std::string config;  // the config.json that the metadata stands for
  };
  static Checkpoint OfGguf(Gguf gguf);

  const TensorEntry* Find(std::string_view name) const;  // null when absent
  const std::map<std::string, TensorEntry, std::less<>>& tensors() const { return tensors_; }
  const std::string& directory() const { return directory_; }  // or the path of the GGUF file
  // Of a GGUF file: Gguf::config. Empty: there is a config.json in directory().
  const std::string& gguf_config() const { return gguf_config_; }
  const std::string& file_path(const TensorEntry& entry) const;
  std::vector<std::string> file_paths() const;  // of all that were opened
  // Hints to the kernel about bytes of a tensor: they will be read next, or they have been read.
  void WillNeed(const TensorEntry& entry, int64_t offset, int64_t bytes) const;
  void Populate(const TensorEntry& entry, int64_t offset, int64_t bytes) const;
  void DontNeed(const TensorEntry& entry, int64_t offset, int64_t bytes) const;
  int64_t total_bytes() const;
  // Tensors and files that belong to it and are not used, a line each.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  Checkpoint() = default;
  Status AddFile(MappedFile file);
  Status CheckIndex(std::string_view index, const std::string& path) const;

  std::string directory_;
  std::vector<MappedFile> files_;
  std::deque<GgufView> views_;
  std::map<std::string, TensorEntry, std::less<>> tensors_;
  std::vector<std::string> left_out_;
  std::string gguf_config_;
};

}  // namespace braid
