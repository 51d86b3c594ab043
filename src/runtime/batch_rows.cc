// See the header. A row that ends without being sampled is looked at where it ends, so that states
// which are not finite are an error there and not in a later step.
#include "runtime/batch_rows.h"

#include <algorithm>

#include "base/check.h"

namespace braid {
namespace {

// The row's drafts follow the slot's tokens until they are accepted or not.
void TakeDrafts(const Plan& plan, const Row& row, Slot& slot) {
  const auto end = plan.tokens.begin() + row.token_begin + row.token_count;
  CHECK(row.sample && !row.prompt_logprobs && row.drafts < row.token_count);
  CHECK(slot.length() == row.start + row.token_count - row.drafts,
        "{} drafts of what follows position {}, of a sequence of {} known tokens", row.drafts,
        row.start + row.token_count - row.drafts - 1, slot.length());
  slot.tokens.insert(slot.tokens.end(), end - row.drafts, end);
}

}  // namespace

void BatchRows::Lay(const Plan& plan, Slots& slots) {
  spans.clear();
  slot_ids.clear();
  tokens.clear();
  wanted.clear();
  first_choices.clear();
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const Row& row = plan.rows[r];
    const auto begin = static_cast<int32_t>(tokens.size());
    Slot& slot = slots[row.slot];
    spans.push_back(slots.SpanOf(row, begin));
    slot_ids.push_back(row.slot);
    const int32_t known = row.token_count - row.drafts;
    if (row.drafts > 0) TakeDrafts(plan, row, slot);
    first_choices.push_back(wanted.size() + (row.prompt_logprobs ? known - 1 : 0));
    for (int32_t i = 0; i < row.token_count; ++i) {
      const TokenId token = plan.tokens[static_cast<size_t>(row.token_begin + i)];
      const auto position = static_cast<size_t>(row.start + i);
      // The first token of a prompt that was computed elsewhere.
      if (position == slot.tokens.size() && token >= 0) slot.tokens.push_back(token);
      CHECK(position < slot.tokens.size(), "position {} of a sequence of {} known tokens", position,
            slot.tokens.size());
      tokens.push_back(token == kSampledInFlight ? slot.tokens[position] : token);
      const bool sample = row.sample && i + 1 >= known;
      if (!sample && !row.prompt_logprobs) continue;
      wanted.push_back(
          {static_cast<int32_t>(r), begin + i, row.start + i, sample, row.prompt_logprobs});
    }
  }
  wanted_tokens.clear();
  for (const Wanted& w : wanted) wanted_tokens.push_back(w.token);
  // A row that ends without being sampled is looked at where it ends: whatever is not finite
  // before that is not finite there.
  last_states.clear();
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const Row& row = plan.rows[r];
    if (row.sample) continue;
    const int32_t last = spans[r].token_begin + row.token_count - 1;
    const auto at = std::find(wanted_tokens.begin(), wanted_tokens.end(), last);
    last_states.emplace_back(static_cast<int32_t>(r),
                             static_cast<int32_t>(at - wanted_tokens.begin()));
    if (at == wanted_tokens.end()) wanted_tokens.push_back(last);
  }
}

}  // namespace braid
