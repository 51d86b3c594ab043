// Strong ids: two kinds of id never mix, and an id is never a pointer. -1 is "none".
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace braid {

template <class Tag, class Rep = int32_t>
struct StrongId {
  Rep value = -1;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep v) : value(v) {}
  constexpr bool valid() const { return value >= 0; }
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

using RequestId = StrongId<struct RequestTag, int64_t>;  // made by the server, unique per process
using SlotId = StrongId<struct SlotTag>;                 // a running sequence's row in the executor
using BlockId = StrongId<struct BlockTag>;  // a block of one cache group; 0 is the sink
using GroupId = StrongId<struct GroupTag>;  // index into the cache geometry's groups
using StepId = StrongId<struct StepTag, int64_t>;
using TokenId = int32_t;  // a vocabulary index; arithmetic is useful

}  // namespace braid

template <class Tag, class Rep>
struct std::hash<braid::StrongId<Tag, Rep>> {
  size_t operator()(braid::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};
