// Latent attention in the expanded form (docs/decisions/008), by the executor: answers that depend
// on the request's own chunks alone, near those of the absorbed form, in a workspace that was
// measured before.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "base/rng.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/test_directory.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"
#include "model/writing/make_model.h"
#include "runtime/model_executor.h"
#include "scheduler/inbox.h"
#include "scheduler/scheduler.h"

namespace braid {
namespace {

constexpr int32_t kModelLen = 2048;

struct Run {
  int threads = 1;
  bool expanded = true;
  int others = 0;  // short requests that decode beside the long one
};

Request MakeRequest(int64_t id, int32_t prompt_tokens) {
  Request r;
  r.id = RequestId(id);
  Rng rng(static_cast<uint64_t>(id));
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    r.prompt.push_back(static_cast<TokenId>(rng.Below(500)));
  }
  r.stop.new_tokens_max = 20;
  r.logprobs = 2;
  r.prompt_logprobs = 2;
  return r;
}

// Log-probabilities of the long request: of its prompt, which fills the longest context in chunks
// that take the expanded form, and of its answer.
std::vector<TokenLogprob> Answer(const Run& run) {
  const TestDirectory made;
  const std::string directory = made.path() + "/model";
  ThreadPool pool(1);
  CHECK(MakeModel({.directory = directory,
                   .family = "deepseek_v3",
                   .shape = {"tiny", "num_attention_heads=16"},
                   .seed = 5,
                   .progress = {}},
                  pool));
  auto [spec, checkpoint, model_config] = *OpenModel(directory);
  if (run.expanded) ExpandLatentAttention(spec, kExpandedTokensMin);
  const MemoryRequest request{.kv_dtype = DType::kF32,
                              .arena_bytes = 64 << 20,
                              .model_len_max = kModelLen,
                              .running_max = 8};
  const MemoryPlan plan = *PlanMemory(spec, request);
  const SchedulerConfig config{.cache = plan.geometry,
                               .context_tokens_max = kModelLen,
                               .step_tokens_max = 320,
                               .chunk_tokens_max = 256,
                               .running_max = 8,
                               .vocabulary = spec.vocabulary};
  ModelExecutor executor(spec, *LoadWeights(*BindWeights(spec, checkpoint), pool),
                         {.cache = plan.geometry,
                          .running_max = 8,
                          .step_tokens_max = 320,
                          .context_tokens_max = kModelLen,
                          .kv_dtype = DType::kF32,
                          .device = DeviceOf(DetectCpu(), BestIsa(DetectCpu()), Compute::kF32),
                          .threads = run.threads});
  Scheduler scheduler = *Scheduler::Create(config);
  for (int i = 0; i < run.others; ++i) scheduler.Apply(Submit{MakeRequest(i + 2, 3)});
  scheduler.Apply(Submit{MakeRequest(1, kModelLen - 20)});
  std::vector<TokenLogprob> logprobs;
  Inbox ended;
  while (!scheduler.idle()) {
    if (Plan next = scheduler.NextPlan(); !next.empty()) {
      executor.Launch(std::move(next), ended);
      scheduler.Apply(ended.AwaitStep());
    }
    for (const Output& o : scheduler.TakeOutputs()) {
      EXPECT_EQ(o.error, "");
      if (o.id != RequestId(1)) continue;
      logprobs.insert(logprobs.end(), o.prompt_logprobs.begin(), o.prompt_logprobs.end());
      logprobs.insert(logprobs.end(), o.logprobs.begin(), o.logprobs.end());
    }
  }
  return logprobs;
}

TEST(ExpandedAttention, AnAnswerDependsOnItsOwnChunksAlone) {
  const std::vector<TokenLogprob> alone = Answer({.threads = 1});
  ASSERT_GE(alone.size(), size_t{kModelLen} - 1);
  EXPECT_EQ(Answer({.threads = 3, .others = 6}), alone);
}

TEST(ExpandedAttention, ItsAnswerIsNearTheAbsorbedOne) {
  const std::vector<TokenLogprob> expanded = Answer({.threads = 2});
  const std::vector<TokenLogprob> absorbed = Answer({.threads = 2, .expanded = false});
  ASSERT_EQ(expanded.size(), absorbed.size());
  EXPECT_NE(expanded, absorbed);
  double worst = 0;
  for (size_t i = 0; i < expanded.size(); ++i) {
    worst = std::max(worst, double{std::abs(expanded[i].logprob - absorbed[i].logprob)});
  }
  EXPECT_LT(worst, 1e-3);
}

}  // namespace
}  // namespace braid
