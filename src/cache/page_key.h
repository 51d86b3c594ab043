// What a page outside the arena is found by: a cryptographic hash of the tenant, the salt and every
// token up to its end. Nobody can make two prefixes that meet, so a page that is found by its key
// need not be compared with what came before it. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cache/geometry.h"
#include "cache/prefix_match.h"

namespace braid {

// The first 128 bits of SHA-256.
struct PageKey {
  uint64_t low = 0, high = 0;
  auto operator<=>(const PageKey&) const = default;
};

PageKey RootPageKey(std::string_view tenant, std::string_view salt);
PageKey ChildPageKey(const PageKey& parent, const BlockTokens& tokens);

// A part of a page, as places other than the arena know it.
struct KnownPart {
  PageKey key;
  GroupKind kind = GroupKind::kFull;
  auto operator<=>(const KnownPart&) const = default;
};

}  // namespace braid
