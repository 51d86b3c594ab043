// The drafts that follow a step's rows: of grammars that leave one token, of what was said before,
// of the model's draft head. Engine thread.
//
// On several ranks those that sample ask all but the head, whose passes all ranks make together,
// after they know the step's results. What it proposes is then told to all ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/trace.h"
#include "model/decoder.h"
#include "runtime/batch_rows.h"
#include "runtime/constraint_worker.h"
#include "runtime/drafts/drafter.h"
#include "runtime/drafts/head_drafter.h"
#include "runtime/drafts/lookup_drafter.h"
#include "runtime/drafts/rehearsed_drafter.h"
#include "runtime/sampler.h"
#include "scheduler/event.h"

namespace braid {

// A step that is over but for its drafts.
struct DraftRows {
  const ops::OpContext& context;
  const Plan& plan;  // of this data-parallel rank
  Matrix states;     // of `rows`, normed
  const BatchRows& rows;
  size_t first_row = 0;      // of this data-parallel rank's among the results of all
  Status* status = nullptr;  // as in DraftStep
};

class Proposals {
 public:
  struct Parts {
    const ModelSpec& spec;
    const ModelWeights& weights;
    const CachePlan& cache;
    DType kv_dtype = DType::kF32;
    const Decoder& decoder;
    Sampler& sampler;
    ConstraintWorker& constraints;
    Slots& slots;
    int32_t running_max = 0, context_tokens_max = 0, step_tokens_max = 0;
    int32_t draft_tokens_max = 0;          // 0: nobody proposes any
    Drafter* stand_in = nullptr;           // asked in the place of the model's draft head
    const Rehearsal* rehearsal = nullptr;  // or what the head's drafts are replaced by
    int32_t dp_ranks = 1;
    ModelDevice* home = nullptr;  // where the model lives, if not on the CPU
    bool samples = true;
    Trace* trace = nullptr;
  };
  // What `parts` refers to outlives the object.
  explicit Proposals(const Parts& parts);

  // Takes from a measuring workspace what the head needs at most.
  void Measure(const ops::OpContext& context);
  // The slot belongs to another sequence from now on.
  void Reset(SlotId id);

  // Of everybody but the head, on a rank that samples; its own results.
  void OfOneRank(const DraftRows& step, std::span<RowResult> results);
  // Of the head, on every rank; the results of all. An error of the group is in its status.
  void OfTheHead(const DraftRows& step, std::span<RowResult> results);

 private:
  void OfGrammars(const DraftRows& step, std::span<RowResult> results);
  void Ask(Drafter& drafter, DraftSource source, const DraftRows& step,
           std::span<RowResult> results);
  Status Tell(const DraftRows& step, std::span<RowResult> results);

  const Parts parts_;
  std::unique_ptr<LookupDrafter> lookup_;        // null: nobody looks up here
  std::unique_ptr<HeadDrafter> head_;            // null: the model uses none
  std::unique_ptr<RehearsedDrafter> rehearsed_;  // asked in the head's place; null: it is
  std::vector<DraftWish> wishes_;
  std::vector<int32_t>
      told_;  // of each row: how many drafts, -1: the head was not asked; then they
};

}  // namespace braid
