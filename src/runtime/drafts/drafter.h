// Who proposes drafts: tokens that may follow those of a sequence. A proposal never changes an
// answer, only how many steps it takes, so a drafter may forget anything at any time. Engine
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "ops/op.h"
#include "runtime/slots.h"

namespace braid {

// A row of a step that is over. Up to `count` drafts of what follows the slot's tokens are wanted
// in `drafts`, which is empty.
struct DraftWish {
  SlotId id;
  Slot* slot = nullptr;  // with the tokens that the row has accepted and sampled
  int32_t begin = 0;     // the positions that it computed, of accepted drafts the last
  int32_t end = 0;
  int32_t state = 0;  // of DraftStep::states: that of `begin`
  int32_t count = 0;  // 0: none are wanted
  std::vector<TokenId>* drafts = nullptr;
};

struct DraftStep {
  const ops::OpContext& context;  // of the device where the states are
  Matrix states;                  // [tokens of the step, hidden], normed
  std::span<const DraftWish> rows;
  Status* status = nullptr;  // of the device: set when it fails
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // The slot belongs to another sequence from now on.
  virtual void Reset(SlotId id) = 0;
  // At the end of a step, with all of its rows. What is proposed is a function of what the executor
  // has computed for the sequence, whatever else is in the batch.
  virtual void Propose(const DraftStep& step) = 0;
};

}  // namespace braid
