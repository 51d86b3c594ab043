// The groups of the ranks of a mesh: those that share tokens, those that share experts, all.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/tcp_group.h"
#include "comm/thread_group.h"
#include "ops/ranks.h"
#include "parallel/mesh.h"

namespace braid {

// Of ranks that are threads of this process. An error of one group is an error of all.
class ThreadRanks {
 public:
  ThreadRanks(const Mesh& mesh, std::chrono::milliseconds deadline);
  // Used by the rank's thread; lives as long as the object.
  ops::Ranks Of(int32_t rank);
  // The same for the second half of a batch (runtime/halves/half_batches.h).
  ops::Ranks SecondOf(int32_t rank);
  // Of the ranks that share experts, for moving them.
  Communicator& MovesOf(int32_t rank);

 private:
  using Groups = std::vector<std::unique_ptr<ThreadGroup>>;  // by number
  ops::Ranks RanksOf(int32_t rank, const Groups& tensor, const Groups& experts);

  const Mesh mesh_;
  GroupEnd end_;
  Groups tensor_, experts_, second_tensor_, second_experts_, moves_;
  ThreadGroup all_;
};

// Of the rank that this process is, which a launcher has started with the others (comm/launch.h).
class ProcessRank {
 public:
  // kInvalid unless there are as many processes as ranks, and a secret in BRAID_RANKS_SECRET where
  // they connect by TCP. Once in a process.
  static Result<std::unique_ptr<ProcessRank>> Join(const Mesh& mesh,
                                                   std::chrono::milliseconds deadline);
  ops::Ranks groups();
  ops::Ranks second_groups();
  Communicator& moves() { return *moves_; }
  int32_t rank() const { return all_->rank(); }

 private:
  std::unique_ptr<TcpGroup> tcp_;  // null: Open MPI connects the processes
  std::unique_ptr<Communicator> all_, tensor_, experts_, second_tensor_, second_experts_, moves_;
};

}  // namespace braid
