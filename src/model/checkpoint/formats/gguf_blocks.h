// The element types of GGUF files: rows of blocks, each with scales of its own. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace braid {

struct GgufType {
  uint32_t id = 0;        // as in files
  std::string_view name;  // "Q4_K"
  int64_t block_elements = 1;
  int64_t block_bytes = 0;
  // out[block_elements] of one block, in fp32.
  void (*decode)(const std::byte* block, float* out) = nullptr;
};

// The 32 codes and the scale of a block of Q4_0, as ops/weight_codes.h has them: four words, and
// fp16.
void KeepQ4_0(const std::byte* block, std::byte* words, std::byte* scale);
// Null if nobody decodes the type.
const GgufType* FindGgufType(uint32_t id);
// "F32, F16, Q4_0, …": for messages.
std::string_view GgufTypeNames();

}  // namespace braid
