// The element types of GGUF files: rows of blocks, each with scales of its own. A type is one row
// of the table in gguf_blocks.cc (docs/guides/add_format.md). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ops/weight_format.h"

namespace braid {

struct GgufType {
  uint32_t id = 0;        // as in files
  std::string_view name;  // "Q4_K"
  int64_t block_elements = 1;
  int64_t block_bytes = 0;
  // out[block_elements] of one block, in fp32.
  void (*decode)(const std::byte* block, float* out) = nullptr;
  // The format in memory that holds the codes and scales of a block as they are, if there is one,
  // and a block as that format codes a row of block_elements (ops::WeightFormatRow).
  std::optional<ops::WeightFormat> kept;
  void (*keep)(const std::byte* block, std::byte* codes, std::byte* scales) = nullptr;
};

std::span<const GgufType> GgufTypes();
// Null for an unknown type.
const GgufType* FindGgufType(uint32_t id);
// "F32, F16, Q4_0, …": for messages.
std::string GgufTypeNames();

}  // namespace braid
