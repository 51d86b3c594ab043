// The rows of a step as the model sees them: which tokens are whose, and whose distributions are
// wanted. Engine thread; the vectors keep their memory from step to step.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/sequence.h"
#include "runtime/slots.h"
#include "scheduler/plan.h"

namespace braid {

struct BatchRows {
  // A token of the batch whose distribution is wanted, and what for.
  struct Wanted {
    int32_t row = 0;       // of the plan
    int32_t token = 0;     // of the batch
    int32_t position = 0;  // of the sequence
    bool sample = false;
    bool describe = false;
  };

  std::vector<ops::SequenceSpan> spans;
  std::vector<SlotId> slot_ids;  // of the spans
  std::vector<TokenId> tokens;
  std::vector<Wanted> wanted;
  std::vector<size_t> first_choices;   // of each row: in `wanted`, after its known tokens
  std::vector<int32_t> wanted_tokens;  // of `wanted`; then those only looked at
  std::vector<std::pair<int32_t, int32_t>> last_states;  // of rows not sampled: row, wanted token

  // Of the plan's rows. A row's drafts follow the tokens of its slot from here on.
  void Lay(const Plan& plan, Slots& slots);
  ops::SequenceIndex sequences() const {
    return {spans.data(), static_cast<int32_t>(spans.size()), static_cast<int32_t>(tokens.size())};
  }
};

}  // namespace braid
