// Drafts of a chosen acceptance, to measure what a better or worse draft head would be worth: the
// head makes its passes, and then its drafts are replaced by the tokens of answers that are known
// from a run without drafts, some of them by wrong ones. Engine thread.
#pragma once

#include <vector>

#include "runtime/drafts/drafter.h"

namespace braid {

// Filled while no request runs.
struct Rehearsal {
  // Of the drafts of a row whose earlier drafts are all right, the part that is right.
  double acceptance = 0;
  // Whole sequences, prompt and answer. No prompt is the beginning of another one.
  std::vector<std::vector<TokenId>> sequences;
};

class RehearsedDrafter final : public Drafter {
 public:
  // Both outlive the drafter.
  RehearsedDrafter(Drafter& head, const Rehearsal& rehearsal);

  void Reset(SlotId id) override;
  // Drafts of sequences that are not known stay the head's.
  void Propose(const DraftStep& step) override;

 private:
  const std::vector<TokenId>* Known(const Slot& slot) const;

  Drafter& head_;
  const Rehearsal& rehearsal_;
};

}  // namespace braid
