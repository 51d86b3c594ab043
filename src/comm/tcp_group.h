// A group of processes that connect to each other by TCP: those that Slurm, torchrun or a
// LeaderWorkerSet started. They prove to each other that they know the same secret; what they send
// afterwards is neither encrypted nor signed. Rank 0 listens at its address, the others at the
// address from which they reach it; all of them at all addresses where ranks are on other machines,
// since a machine may know its own name by one that is only its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace braid {

struct TcpOptions {
  int32_t rank = 0, size = 1;
  std::string host;  // of rank 0
  uint16_t port = 0;
  bool elsewhere = false;  // some ranks are on other machines
  std::string secret;      // the same for all
  std::chrono::milliseconds deadline{10'000};
  // How long the others may take to start.
  std::chrono::milliseconds join_deadline{30'000};
};

class TcpGroup {
 public:
  static constexpr int32_t kChannels = 6;

  // Connects all ranks. kUnavailable where some are missing at the end, kInvalid where this one
  // does not know the secret.
  static Result<std::unique_ptr<TcpGroup>> Join(const TcpOptions& options);
  // After an error it waits until the others have left too, for half a second at most.
  ~TcpGroup();

  // Some ranks, ascending, as a group of their own, in which their numbers are their places in
  // `members`. Groups have different channels, 0 to 5, the same on all ranks; an error of one is an
  // error of all groups of this process. Each may have a thread of its own. The group outlives it.
  std::unique_ptr<Communicator> GroupOf(std::vector<int32_t> members, int32_t channel);

 private:
  struct State;
  explicit TcpGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
