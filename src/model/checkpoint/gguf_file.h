// GGUF files: metadata and tensors in one map of the file, or of the parts of a split one.
// Everything a file says is checked before it is used: counts, lengths, types, shapes in checked
// arithmetic, offsets (aligned, no overlap, nothing past the end), duplicates, the numbers of
// parts. Large lists of metadata (vocabularies) are read on request. Any thread.
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
  int32_t part = 0;  // index into GgufFile::parts

  int64_t columns() const { return shape.back(); }
  int64_t row_bytes() const { return columns() / type->block_elements * type->block_bytes; }
};

using GgufMetadata = std::map<std::string, json::value, std::less<>>;

struct GgufFile {
  std::vector<MappedFile> parts;    // in order; one for a file that is not split
  GgufMetadata metadata;            // of the first part; lists of at most 4096 items
  std::vector<GgufTensor> tensors;  // of all parts, in the order of their names

  const std::string& path() const { return parts.front().path(); }
  const GgufTensor* Find(std::string_view name) const;  // null when absent
};

// One file by itself, whatever it says of other parts.
Result<GgufFile> ReadGgufPart(const std::string& path);

// A file, or all parts of a split one ("NAME-00001-of-00003.gguf"), whichever of them is named.
Result<GgufFile> ReadGguf(const std::string& path);

// Where a checkpoint that was made from a GGUF file keeps the metadata of its tokenizer.
inline constexpr std::string_view kGgufTokenizerFile = "gguf_tokenizer.json";
// The metadata whose keys begin with "tokenizer.", with all of its lists (vocabularies).
Result<json::object> ReadGgufTokenizer(const std::string& path);

// What a file says of its place among the parts of a split one: split.no, split.count and
// split.tensors.count.
struct GgufSplit {
  int64_t index = 0;    // from 0
  int64_t count = 1;    // 1: not split
  int64_t tensors = 0;  // of all parts together
};
Result<GgufSplit> GgufSplitOf(const GgufMetadata& metadata, const std::string& path);
// The path of another part; an error if the name of this one does not end as its numbers say.
Result<std::string> GgufPartPath(const std::string& path, const GgufSplit& split, int64_t index);

}  // namespace braid
