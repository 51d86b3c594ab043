// Which element type a tensor of a GGUF file has: the mixtures that llama.cpp's quantiser makes
// without an importance matrix (llama-quant.cpp). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/formats/gguf_blocks.h"

namespace braid {

struct GgufMixture {
  std::string_view name;       // "q4_k_m": in flags
  std::string_view file_name;  // "Q4_K_M": in names of files
  int64_t file_type = 0;       // general.file_type
  std::string_view type;       // of most matrices
};
std::span<const GgufMixture> GgufMixtures();
std::vector<std::string> GgufMixtureNames();
const GgufMixture* FindGgufMixture(std::string_view name);  // null for an unknown one

// Sizes that the choice depends on, and a tensor by its name in the file.
struct GgufModelSizes {
  int64_t blocks = 0;  // those of a draft head too
  int64_t experts = 0;
  int64_t heads_per_kv_head = 1;
  bool tied = false;  // the embedding is the head
};
struct GgufTensorSizes {
  std::string name;
  std::vector<int64_t> shape;  // slowest first
};

// The types of all tensors of a file, in their order, which is that of blocks. Rows that a type's
// blocks do not divide have the type that llama.cpp takes instead. Plain tensors are F32.
std::vector<const GgufType*> GgufTypesOf(const GgufMixture& mixture, const GgufModelSizes& model,
                                         std::span<const GgufTensorSizes> tensors);

}  // namespace braid
