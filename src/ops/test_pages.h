// Pages for tests: a pool of blocks behind tables of addresses, as the runtime would lay them,
// filled with NaN so that a read of anything unwritten shows.
#pragma once

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/math.h"
#include "ops/sequence.h"

namespace braid::ops {

// The block table of one sequence in one group; every entry has a block.
class TestPages {
 public:
  TestPages(int64_t block_bytes, int64_t tokens_max)
      : floats_(block_bytes / 4), table_(static_cast<size_t>(CeilDiv(tokens_max, kBlockTokens))) {
    for (std::byte*& entry : table_) {
      blocks_.push_back(std::make_unique<float[]>(static_cast<size_t>(floats_)));
      std::fill_n(blocks_.back().get(), floats_, std::numeric_limits<float>::quiet_NaN());
      entry = reinterpret_cast<std::byte*>(blocks_.back().get());
    }
  }
  std::byte* const* table() const { return table_.data(); }
  void MakeHole(int64_t entry) { table_[static_cast<size_t>(entry)] = nullptr; }
  void Restore(int64_t entry) {
    table_[static_cast<size_t>(entry)] =
        reinterpret_cast<std::byte*>(blocks_[static_cast<size_t>(entry)].get());
  }

 private:
  int64_t floats_;
  std::vector<std::unique_ptr<float[]>> blocks_;
  std::vector<std::byte*> table_;
};

}  // namespace braid::ops
