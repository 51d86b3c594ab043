// The ranks of an engine: threads of this process, or this process as one of those that mpirun has
// started. Rank 0 leads (runtime/lock_step.h).
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "cache/geometry.h"
#include "engine/engine_options.h"
#include "runtime/model_executor.h"
#include "runtime/rank_groups.h"
#include "scheduler/event_log.h"

namespace braid {

// Of ops::Ranks, for StepPart.
inline constexpr int32_t kTensorGroup = 0, kExpertsGroup = 1, kAllGroup = 2;

class EngineRanks {
 public:
  // kInvalid when mpirun has started another number of processes than the mesh has ranks.
  static Result<std::unique_ptr<EngineRanks>> Create(const EngineOptions& options);
  ~EngineRanks();

  // Of this process, ascending; the first is the one that leads or follows on the engine's thread.
  std::vector<int32_t> here() const;
  // How many ranks share this machine's memory.
  int32_t on_this_machine() const;
  // Of the ranks that share experts, how many are on a machine: neighbours, as far as they divide;
  // all of them where machines have different numbers of ranks. The same on every rank.
  int32_t of_a_node() const;
  bool as_processes() const { return process_ != nullptr; }
  std::chrono::seconds deadline() const { return deadline_; }  // of all groups
  ops::Ranks Groups(int32_t rank);
  // What makes the executor that of one of several ranks. With EngineOptions::step_times its groups
  // have the numbers of kTensorGroup and the like.
  void AddTo(int32_t rank, const EngineOptions& options, ModelExecutorConfig& executor);
  Communicator& Moves(int32_t rank);  // of the ranks that share experts, for moving them

  // Compute threads of a rank, of all that this process may have.
  Machine ShareOf(const Machine& machine, int32_t rank) const;

  // From here until Agree the process says several times a second that it is there, and ends with
  // an error when another is lost: loading takes long, at different speeds.
  void BeginLoading();
  // Waits until all ranks have loaded. Gives all of them the least of each number.
  Status Agree(std::vector<int32_t>& numbers);

 private:
  class Presence;
  EngineRanks(const EngineOptions& options, std::unique_ptr<ProcessRank> process,
              std::unique_ptr<ThreadRanks> threads, int32_t of_each_machine);

  const Mesh mesh_;
  const std::chrono::seconds deadline_;
  std::unique_ptr<ProcessRank> process_;  // one of the two
  std::unique_ptr<ThreadRanks> threads_;
  const int32_t of_each_machine_;  // ranks; 0: machines differ
  std::vector<std::unique_ptr<Communicator>> timed_;  // groups, with EngineOptions::step_times
  std::unique_ptr<Presence> presence_;
};

// Whether --two-batch-overlap and --reduce fast suit the mesh and the other options.
Status CheckRankChoices(const EngineOptions& options, const Mesh& mesh);

// What must be the same on all ranks.
LogStart StartOfRun(const SchedulerConfig& limits, const ModelSpec& spec,
                    const EngineOptions& options, const Machine& machine,
                    const ExpertSlots& experts_at);

// A rank of this process that follows the first one.
class RankThread {
 public:
  // All outlive it.
  RankThread(EngineRanks& ranks, int32_t rank, ModelExecutor& executor, LogStart start);
  // After the end of the run, or of the group. A rank may hang for ever: one that does not end
  // within the deadline of the groups ends the process, with an error that names it.
  ~RankThread();

 private:
  const int32_t rank_;
  const std::chrono::seconds deadline_;
  std::promise<void> over_;
  std::thread thread_;
};

// The status; but a process that cannot be a rank, or is one no longer, ends at once, so that
// mpirun ends the others.
Status OrEnd(Status status, const EngineRanks* ranks);

// The signals of a terminal go to all processes; rank 0 decides when the run ends.
void LeaveSignalsToRank0();

// Whether this process is a rank that follows; its command then serves and prints nothing.
bool FollowsAsRank();

}  // namespace braid
