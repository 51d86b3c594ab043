// A step's batch in two halves that take turns: one computes while the other's rows travel between
// ranks. The halves are cut between sequences or inside one, whose second half begins with the
// state that the first half has left in each layer. A token's numbers depend on the tokens before
// it only, so the cut changes no bit (docs/decisions/033-two-halves.md).
//
// The first half runs on the engine thread, the second on a thread of its own; both use the
// executor's pool in turn (comm/turns.h). All ranks cut the same steps. Engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/system/thread_pool.h"
#include "cache/geometry.h"
#include "comm/turns.h"
#include "model/layer_stack.h"
#include "model/spec.h"
#include "ops/op.h"
#include "ops/ranks.h"
#include "ops/sequence.h"

namespace braid {

// A batch's first tokens and the rest. `scratch`, where a sequence is cut inside: per cache group
// of states memory of a block, for a boundary that no block stands for.
struct CutBatch {
  std::array<std::vector<ops::SequenceSpan>, 2> spans;
  std::array<int32_t, 2> tokens = {};
  std::array<std::vector<std::byte*>, kCacheGroupsMax> tables;  // of the sequence that is cut

  ops::SequenceIndex half(size_t i) const {
    return {spans[i].data(), static_cast<int32_t>(spans[i].size()), tokens[i]};
  }
};

struct CutRule {
  const CacheGeometry* cache = nullptr;
  std::array<std::byte*, kCacheGroupsMax> scratch = {};  // of groups of states
  bool inside = true;  // also inside a sequence, at the boundary of a block
};

// The first half ends at the first place from the middle on, so the second half never has more
// than half of the tokens; it may have none.
void CutInHalves(const ops::SequenceIndex& all, const CutRule& rule, CutBatch& cut);

class HalfBatches {
 public:
  struct Parts {
    const CacheGeometry& cache;
    ThreadPool& pool;
    std::array<ops::Ranks, 2> groups;  // of each half: groups of their own
    int64_t workspace_bytes = 0;       // of the second half
    const ModelSpec& spec;
  };
  explicit HalfBatches(const Parts& parts);
  ~HalfBatches();

  // A half: tokens [begin, begin + sequences.tokens) of the batch. Its watch must hear of every
  // layer.
  struct Half {
    const ops::OpContext& context;
    ops::SequenceIndex sequences;
    int32_t begin = 0;
    LayerWatch& watch;
  };
  // Runs both; returns the error of one, if there is one. `context` is that of the whole batch.
  Status Run(const ops::OpContext& context, const ops::SequenceIndex& all,
             const std::function<void(const Half&)>& forward);

  int64_t workspace_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
