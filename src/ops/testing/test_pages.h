// Pages for tests: a pool of blocks behind tables of addresses, as the runtime would lay them,
// filled with NaN so that a read of anything unwritten shows.
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include "base/math.h"
#include "ops/sequence.h"
#include "tensor/tensor.h"

namespace braid::ops {

// The block table of one sequence in one group; every entry has a block.
class TestPages {
 public:
  TestPages(int64_t block_bytes, int64_t tokens_max)
      : table_(static_cast<size_t>(CeilDiv(tokens_max, kBlockTokens))) {
    for (std::byte*& entry : table_) {
      blocks_.emplace_back(block_bytes);
      entry = blocks_.back().data();
    }
    Spoil();
  }
  void Spoil() {
    for (Buffer& block : blocks_) {
      std::fill_n(reinterpret_cast<float*>(block.data()), block.bytes() / 4,
                  std::numeric_limits<float>::quiet_NaN());
    }
  }
  std::byte* const* table() const { return table_.data(); }
  void MakeHole(int64_t entry) { table_[static_cast<size_t>(entry)] = nullptr; }
  void Restore(int64_t entry) {
    table_[static_cast<size_t>(entry)] = blocks_[static_cast<size_t>(entry)].data();
  }

 private:
  std::vector<Buffer> blocks_;
  std::vector<std::byte*> table_;
};

}  // namespace braid::ops
