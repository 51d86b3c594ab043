// Who proposes drafts: tokens that may follow those of a sequence. A proposal never changes an
// answer, only how many steps it takes, so a drafter may forget anything at any time. Engine
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/slots.h"

namespace braid {

// Up to `count` drafts of what follows the slot's tokens are wanted in `drafts`, which is empty.
struct DraftWish {
  SlotId id;
  const Slot* slot = nullptr;
  int32_t count = 0;
  std::vector<TokenId>* drafts = nullptr;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // The slot belongs to another sequence from now on.
  virtual void Reset(SlotId id) = 0;
  // At the end of a step, of all rows that want some. What is proposed is a function of what the
  // executor has computed for the sequence, whatever else is in the batch.
  virtual void Propose(std::span<const DraftWish> wishes) = 0;
};

}  // namespace braid
