// The executors of the ranks of a mesh, each on a thread of its own, as one executor: every rank
// carries out every plan. One rank runs on the calling thread.
#pragma once

#include <memory>
#include <vector>

#include "model/spec.h"
#include "parallel/mesh.h"
#include "runtime/model_executor.h"
#include "scheduler/executor.h"

namespace braid {

// What a rank holds.
struct RankModel {
  ModelSpec spec;
  ModelWeights weights;
};

class RankThreads final : public Executor {
 public:
  // `config` of every rank; the first of each group has the draft head.
  RankThreads(std::vector<RankModel> ranks, const Mesh& mesh, const ModelExecutorConfig& config);
  ~RankThreads() override;

  void Launch(Plan plan, EventSink& events) override;

  ModelExecutor& rank(int32_t rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
