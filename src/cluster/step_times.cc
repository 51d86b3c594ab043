// One key for all steps that the forecast cannot tell apart by much.
#include "cluster/step_times.h"

#include "base/math.h"
#include "base/rng.h"

namespace braid {

void StepTimes::SetExpertBalance(double balance) {
  for (StepClock& clock : clocks_) clock.SetExpertBalance(balance);
}

double StepTimes::SecondsOf(std::span<const Row> rows, size_t window, size_t clock) {
  StepRows prompts, decodes;
  for (const Row& row : rows) {
    StepRows& of = row.token_count > 1 ? prompts : decodes;
    of.tokens += row.token_count;
    ++of.sequences;
    of.context_tokens += row.start;
    of.logits_rows += row.prompt_logprobs ? row.token_count : row.sample;
  }
  // Nearly equal steps take the same time: contexts by 64 tokens, prompts by 16.
  uint64_t key = MixBits(window * 2 + clock);
  for (StepRows* of : {&prompts, &decodes}) {
    if (of->sequences == 0) continue;
    of->context_tokens = RoundUp(of->context_tokens / of->sequences, 64);
    if (of == &prompts) of->tokens = RoundUp(of->tokens, 16);
  }
  for (const int64_t part : {prompts.tokens, prompts.sequences, prompts.context_tokens,
                             prompts.logits_rows, decodes.tokens, decodes.context_tokens}) {
    key = MixBits(key * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(part) + 1);
  }
  const auto [at, added] = seconds_.try_emplace(key, 0);
  if (added) {
    const StepForecast step = clocks_[clock].StepOf(prompts, decodes);
    at->second = overlap_ ? step.seconds_with_overlap() : step.seconds_without_overlap();
  }
  return at->second;
}

}  // namespace braid
