// Numbers as blocks of GGUF files. Scales are chosen as for the engine's formats (ops/grouped),
// without a search: each group reaches its extremes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/checkpoint/formats/gguf_blocks.h"

namespace braid {

// What the columns of a block share and its codes, a byte each, as files divide them: fp16 numbers,
// then integers, for scales and for bases (GroupedFormat::numbers).
struct GgufCoded {
  std::byte codes[256] = {};
  std::byte numbers[64] = {};
};

// Null for a type that cannot be written.
using GgufPacker = void (*)(const GgufCoded& coded, std::byte* block);
GgufPacker GgufPackerOf(const GgufType& type);

// A row of `columns` numbers, a multiple of the block's elements; the type has a packer or is
// plain.
void EncodeGgufRow(const GgufType& type, const float* x, int64_t columns, std::byte* out);

}  // namespace braid
