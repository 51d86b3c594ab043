// The Executor that runs a model on this machine: the arena's bytes, mirrors of the block tables by
// slot, the decoder, the sampler. Used by the engine thread only. After construction a step
// allocates nothing but its results.
//
// One of several ranks has a part of the model (parallel/rank_view.h) and an executor of its own;
// all carry out the same plans. The first rank of each group that shares tokens samples and
// proposes drafts, and all ranks get its results.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/token_constraint.h"
#include "base/trace.h"
#include "comm/step_times.h"
#include "experts/recorder.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/ranks.h"
#include "runtime/drafts/rehearsed_drafter.h"
#include "runtime/experts/expert_balancer.h"
#include "runtime/experts/expert_mover.h"
#include "runtime/experts/expert_slots.h"
#include "runtime/experts/rank_counts.h"
#include "runtime/halves/half_batches.h"
#include "runtime/halves/overlap_choice.h"
#include "runtime/model_device.h"
#include "runtime/plan_moves.h"
#include "runtime/rank_results.h"
#include "scheduler/executor.h"
#include "scheduler/mover.h"
#include "scheduler/scheduler.h"
#include "tensor/device.h"

namespace braid {

// A device that was opened anew.
struct Reopened {
  ModelDevice* home = nullptr;
  ModelWeights weights;
};

// In debug and sanitizer builds.
inline constexpr bool kPoisonFreed = BRAID_POISON_FREED;

struct ModelExecutorConfig {
  CacheGeometry cache;
  int32_t running_max = 64;
  int32_t step_tokens_max = 2048;
  int32_t context_tokens_max = 0;
  DType kv_dtype = DType::kF32;
  Device device;
  int threads = 1;         // the engine thread included
  ThreadPlaces places;     // of the threads
  Trace* trace = nullptr;  // or what to record steps in; outlives the executor
  // Ids at and past this are never sampled (padding rows of the embedding); 0: the whole
  // vocabulary.
  int32_t sampled_vocabulary = 0;
  // Where the grammars of requests come from; null: a request with one ends with an error. Must
  // outlive the executor.
  ConstraintSource* constraints = nullptr;
  // Drafts that a row may carry (SchedulerConfig::draft_tokens_max); 0: nobody proposes any.
  int32_t draft_tokens_max = 0;
  // Asked in the place of the model's draft head; null: that itself, if it is used
  // (UseDraftHead). Must outlive the executor.
  Drafter* draft_head = nullptr;
  // What the drafts of the model's head are replaced by; null: nothing. Outlives the executor.
  const Rehearsal* rehearsal = nullptr;
  // Counts the experts that tokens choose, on several ranks each its own; null: nobody does. Must
  // outlive the executor.
  ExpertRecorder* experts = nullptr;
  // Where the model lives, if not on the CPU; weights are there. Must outlive the executor, or the
  // next call of `reopen`.
  ModelDevice* home = nullptr;
  // Opens a device anew that has failed, as the next step needs it; empty: nobody does, and all
  // steps fail from then on.
  std::function<Result<Reopened>()> reopen;
  // The groups of one of several ranks; none: one rank has everything. The communicators outlive
  // the executor.
  ops::Ranks ranks = {};
  // Those of the second half of a batch that is cut, and which batches are: ranks then compute
  // while rows travel (runtime/halves/half_batches.h).
  ops::Ranks second_half = {};
  Overlap overlap = Overlap::kOff;
  DispatchRule dispatch = {};  // of tokens to other ranks' experts
  bool reduce_fast = false;    // ops::Ranks::sums
  // Which experts the slots of all ranks hold, as the weights say too.
  ExpertSlots experts_at = {};
  // Of the ranks that share experts, for moving these (Plan::experts); null: they stay where they
  // are. Outlives the executor, as does the balancer, which the first rank may have.
  Communicator* moves = nullptr;
  MoverLimits move_limits = {};
  ExpertBalancer* balancer = nullptr;
  // What the steps take on this rank, whose groups it has made (StepTimes::Timed); null: nobody
  // asks. Outlives the executor.
  StepTimes* times = nullptr;
  // Which of how many data-parallel ranks this is; it carries out its own rows of every plan.
  int32_t dp_rank = 0, dp_ranks = 1;
  // Who carries out the plans' moves, by place; null: the scheduler plans none for it. They outlive
  // the executor.
  MoversByPlace movers = {};
  // Blocks that plans call freed (SchedulerConfig::report_freed) are filled with NaN, so that a
  // read of one ends in a request whose logits are not finite.
  bool poison_freed = kPoisonFreed;
};

class ModelExecutor : public Executor {
 public:
  // Refuses what a scheduler can plan and this executor cannot carry out: other data-parallel ranks
  // than there are, pages of other engines.
  static Status CanRun(const SchedulerConfig& config, int32_t dp_ranks = 1);
  ModelExecutor(const ModelSpec& spec, ModelWeights weights, const ModelExecutorConfig& config);
  ~ModelExecutor() override;

  // Runs the step; it is over when this returns. Where a device has failed, ArenasLost follows.
  void Launch(Plan plan, EventSink& events) override;

  // Of several ranks that count the experts of their tokens; null otherwise.
  const RankCounts* rank_counts() const;

  // Null: experts stay where they are.
  const ExpertMover* mover() const;

  // Why the group of ranks, or the device, has ended; every step since then has failed. Ok while it
  // has not.
  const Status& group_status() const;

  // Binds the calling thread, which is going to run the steps, to its CPUs.
  void BindEngineThread() const;

  // What every op chose and why, one line per op (--explain-ops); complete after one step.
  std::string ExplainOps() const;
  int64_t arena_bytes() const;
  int64_t workspace_bytes() const;

 private:
  struct State;
  void Reopen();
  std::unique_ptr<State> state_;
};

}  // namespace braid
