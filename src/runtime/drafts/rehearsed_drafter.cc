// See the header. Whether a draft is right depends on its sequence and position alone.
#include "runtime/drafts/rehearsed_drafter.h"

#include <algorithm>

#include "base/rng.h"

namespace braid {

RehearsedDrafter::RehearsedDrafter(Drafter& head, const Rehearsal& rehearsal)
    : head_(head), rehearsal_(rehearsal) {}

void RehearsedDrafter::Reset(SlotId id) { head_.Reset(id); }

const std::vector<TokenId>* RehearsedDrafter::Known(const Slot& slot) const {
  for (const std::vector<TokenId>& sequence : rehearsal_.sequences) {
    if (sequence.size() > slot.tokens.size() &&
        std::equal(slot.tokens.begin(), slot.tokens.end(), sequence.begin())) {
      return &sequence;
    }
  }
  return nullptr;
}

void RehearsedDrafter::Propose(const DraftStep& step) {
  head_.Propose(step);
  for (const DraftWish& wish : step.rows) {
    const std::vector<TokenId>* known = wish.count > 0 ? Known(*wish.slot) : nullptr;
    if (known == nullptr) continue;
    const size_t from = wish.slot->tokens.size();
    const auto stream = static_cast<uint64_t>(known - rehearsal_.sequences.data());
    wish.drafts->resize(std::min(static_cast<size_t>(wish.count), known->size() - from));
    for (size_t i = 0; i < wish.drafts->size(); ++i) {
      const TokenId right = (*known)[from + i];
      const bool errs = RandomUniform(stream, from + i) >= rehearsal_.acceptance;
      (*wish.drafts)[i] = errs ? (right == 0 ? 1 : right - 1) : right;
    }
  }
}

}  // namespace braid
