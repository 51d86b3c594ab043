// Masks of constrained requests, computed on a thread of its own while the step runs, as far as the
// step leaves it a core, and the rest by all members of the pool once it is over. A request's
// constraint follows its output: whatever of it was not yet accepted is accepted before the next
// mask, so a preempted request goes on where it was. It follows drafts as well, and takes back
// those that did not become output. Reset, Prepare and Forced are called by the engine thread while
// no step's rows run, Await by the members of its pool.
#pragma once

#include <cstdint>
#include <memory>

#include "base/token_constraint.h"
#include "runtime/slots.h"

namespace braid {

class ConstraintWorker {
 public:
  // `source` may be null: then every mask is an error. The thread starts with the first Prepare.
  ConstraintWorker(ConstraintSource* source, int32_t slots, int32_t vocabulary);
  ~ConstraintWorker();

  // The slot belongs to another request from now on.
  void Reset(SlotId id);
  // Begins the masks of the tokens after the slot's first `known` and after each draft that follows
  // them. `slot` must not change until Await.
  void Prepare(SlotId id, const Slot& slot, int32_t known);
  // Waits for the mask after `drafts` drafts; null when those can never all be accepted. It stays
  // as it is until the slot's next Prepare.
  Result<const uint32_t*> Await(SlotId id, int32_t drafts);
  // Appends up to `most` tokens that must follow the slot's tokens, if there are any such.
  void Forced(SlotId id, const Slot& slot, int32_t most, std::vector<TokenId>& drafts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
