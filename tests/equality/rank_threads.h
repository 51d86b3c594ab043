// The executors of the ranks of a mesh, each on a thread of its own, as one executor: every rank
// carries out every plan. One rank runs on the calling thread.
#pragma once

#include <chrono>
#include <functional>
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
  Mover* tier = nullptr;
  Mover* peer = nullptr;
};

inline constexpr std::chrono::milliseconds kRankDeadline{60000};

class RankThreads final : public Executor {
 public:
  // What experts' weights travel through: null for the communicator itself.
  using MoveLink = std::function<std::unique_ptr<Communicator>(Communicator&)>;
  // `config` of every rank; the first of each group has the draft head. Without a link, experts
  // stay where they are. All groups wait for `deadline`, and an error of one is an error of all, as
  // in an engine.
  RankThreads(std::vector<RankModel> ranks, const Mesh& mesh, const ModelExecutorConfig& config,
              const MoveLink& link = nullptr, std::chrono::milliseconds deadline = kRankDeadline);
  ~RankThreads() override;

  void Launch(Plan plan, EventSink& events) override;

  ModelExecutor& rank(int32_t rank);
  ops::Ranks groups(int32_t rank);  // of several ranks
  // What the tokens of all ranks chose; not of a model without experts, nor on a device.
  const ExpertRecorder& counted() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
