// How a block of one rank of a group lies in the block that one rank alone would have: runs of
// bytes that are the same in both. Ranks that hold the same heads hold the same bytes. Plain values
// and copies; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace braid {

struct PageRun {
  int64_t whole = 0, own = 0;  // offsets in the block of one rank alone, and in the rank's own
  int64_t bytes = 0;
};

// Of one rank, by cache group.
struct RankPages {
  std::vector<std::vector<PageRun>> runs;
};

// Of all ranks of a group, and the bytes of each cache group's whole block.
struct PageLayout {
  std::vector<int64_t> block_bytes;
  std::vector<RankPages> ranks;
};

inline void Gather(const std::vector<PageRun>& runs, const std::byte* own, std::byte* whole) {
  for (const PageRun& run : runs) {
    std::memcpy(whole + run.whole, own + run.own, static_cast<size_t>(run.bytes));
  }
}
inline void Scatter(const std::vector<PageRun>& runs, const std::byte* whole, std::byte* own) {
  for (const PageRun& run : runs) {
    std::memcpy(own + run.own, whole + run.whole, static_cast<size_t>(run.bytes));
  }
}

}  // namespace braid
