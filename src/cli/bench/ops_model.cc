// The cases of `braid bench ops --model`: every part that a forecast of the model counts, with the
// model's own shapes, so that `braid plan --calibration` predicts its steps from what they take.
// Parts of decode steps are measured within a step, those of prompts alone.
#include <algorithm>
#include <utility>

#include "cli/bench/ops_step.h"

namespace braid {
namespace {

// Of all sequences of a decode step: bounds the memory of a case.
constexpr int64_t kCachedTokensMax = 128 << 10;
// Products of so many rows are not measured: they take as long for each row as those of half.
constexpr int64_t kLongPrompt = 2048;
constexpr int64_t kDrafts = 2;

std::vector<BenchStep> StepsOf(const ModelSpec& spec) {
  std::vector<BenchStep> steps;
  // Attention begins a partition every 256 tokens, and a recurrence a chunk every 64.
  for (const int64_t context : {96, 288, 544, 1056, 4128}) {
    for (const int64_t sequences : {1, 2, 4, 8, 16, 32, 64}) {
      if (context < spec.context_tokens_max && sequences * context <= kCachedTokensMax) {
        steps.push_back({sequences, context, 1});
      }
    }
  }
  for (const int64_t sequences : {1, 8, 32, 64}) steps.push_back({sequences, 96, 1 + kDrafts});
  for (const int64_t tokens : {16, 64, 256, 1024, int{kLongPrompt}}) {
    if (tokens < spec.context_tokens_max) steps.push_back({1, 0, tokens});
  }
  if (spec.context_tokens_max > 1280) steps.push_back({1, 1024, 256});
  return steps;
}

}  // namespace

void AddModelCases(const ModelSpec& spec, const Machine& machine, ops::WeightFormat weights,
                   std::vector<OpCase>& cases) {
  const StepModel model{.spec = spec, .kv_dtype = machine.kv_dtype, .format = weights};
  for (const BenchStep& step : StepsOf(spec)) {
    const bool decodes = step.tokens <= 1 + kDrafts;
    for (OpCase& part : PartsOf(model, step, true)) {
      const auto same = [&](const OpCase& other) { return IsSame(part, other); };
      if (std::ranges::any_of(cases, same)) continue;
      const bool of_rows = part.part == part.family && part.part != "attention";
      if (step.tokens == kLongPrompt && of_rows) continue;
      if (decodes) {
        part.make = [model, step, alone = part] {
          return MakeStepRun(PartsOf(model, step, false), alone);
        };
      }
      cases.push_back(std::move(part));
    }
  }
  // By families, in the order in which they come.
  std::vector<std::string_view> families;
  for (const OpCase& op : cases) {
    if (std::ranges::find(families, op.family) == families.end()) families.push_back(op.family);
  }
  std::ranges::stable_sort(cases, {}, [&](const OpCase& op) {
    return std::ranges::find(families, op.family) - families.begin();
  });
}

}  // namespace braid
