// Prompt lookup (arXiv 2304.04487, "inference with reference"): what followed the last few tokens
// when they last stood in the sequence, in its prompt or its output, is proposed to follow them
// again. Engine thread.
//
// An index per slot, direct-mapped: the hash of each run of kRuns tokens names the cell that holds
// where the run ended last. A cell that another run has taken is a run forgotten, so memory is
// bounded: 8 bytes for each token of the context, at most 512 KiB a slot. A token costs two cells
// written, a proposal two cells read and a comparison of at most kRuns[0] tokens; nothing is
// allocated after construction.
#pragma once

#include <array>
#include <vector>

#include "runtime/drafts/drafter.h"

namespace braid {

class LookupDrafter final : public Drafter {
 public:
  // Lengths of runs that are looked up, the longest first.
  static constexpr std::array<int32_t, 2> kRuns = {4, 2};

  LookupDrafter(int32_t slots, int32_t context_tokens_max);

  void Reset(SlotId id) override;
  void Propose(const DraftStep& step) override;

  // Bytes of the indices of so many slots.
  static int64_t Bytes(int32_t slots, int32_t context_tokens_max);

 private:
  struct Index {
    int32_t tokens = 0;          // runs that end before this position are in
    std::vector<int32_t> cells;  // [kRuns][cells]: position after the run; 0: none
  };
  static int32_t CellsOf(int32_t context_tokens_max);
  int32_t& CellOf(Index& index, size_t run, std::span<const TokenId> tokens, int32_t end) const;
  void CatchUp(Index& index, std::span<const TokenId> tokens) const;
  int32_t Find(Index& index, std::span<const TokenId> tokens) const;

  int32_t cells_;  // for each length of runs, a power of two
  IdVector<SlotId, Index> slots_;
};

}  // namespace braid
