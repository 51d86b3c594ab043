// GGUF files: metadata and tensors in one map of the file. Everything a file says is checked before
// it is used: counts, lengths, types, shapes in checked arithmetic, offsets (aligned, no overlap,
// nothing past the end), duplicates. Large lists of metadata (vocabularies) are read on request.
// Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/system/file.h"
#include "model/checkpoint/formats/gguf_blocks.h"

namespace braid {

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;  // slowest first, as elsewhere here; files say it the other way round
  const std::byte* data = nullptr;
  int64_t bytes = 0;

  int64_t columns() const { return shape.back(); }
  int64_t row_bytes() const { return columns() / type->block_elements * type->block_bytes; }
};

struct GgufFile {
  MappedFile file;
  std::map<std::string, json::value, std::less<>> metadata;  // lists of at most 4096 items
  std::vector<GgufTensor> tensors;                           // in the order of their names

  const GgufTensor* Find(std::string_view name) const;  // null when absent
};

Result<GgufFile> ReadGguf(const std::string& path);

// The metadata whose keys begin with "tokenizer.", with all of its lists (vocabularies).
Result<json::object> ReadGgufTokenizer(const std::string& path);

}  // namespace braid
