// GGUF's types of less than four bits, whose blocks name groups of values by their number in a
// table (gguf_grids.h). Rows of the table of types in gguf_blocks.cc. Pure.
#pragma once

#include <span>

#include "model/checkpoint/formats/gguf_blocks.h"

namespace braid {

std::span<const GgufType> GgufIqTypes();

}  // namespace braid
