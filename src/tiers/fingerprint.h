// What the bytes of a page depend on besides the tokens: the model, how it is computed, how pages
// are laid out. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "cache/geometry.h"
#include "tiers/segment.h"

namespace braid {

// Of the model at `model`, a directory or a GGUF file, and of everything that `how` says: program,
// formats, arithmetic. Of files of more than a few megabytes it takes names, sizes, times of change
// and 4 KiB out of every 1/1024 of each, so that it costs little where weights are large.
Result<TierFingerprint> MakeFingerprint(const std::string& model, std::string_view how,
                                        const CacheGeometry& geometry);

}  // namespace braid
