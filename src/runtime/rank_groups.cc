// See the header.
#include "runtime/rank_groups.h"

#include <fmt/format.h>

#include <cstdlib>
#include <numeric>

#include "base/system/topology.h"
#include "comm/launch.h"
#include "comm/mpi_group.h"

namespace braid {
namespace {

std::vector<std::unique_ptr<ThreadGroup>> MakeGroups(int32_t ranks, int32_t size,
                                                     std::chrono::milliseconds deadline, Spin spin,
                                                     GroupEnd& end) {
  std::vector<std::unique_ptr<ThreadGroup>> groups;
  for (int32_t first = 0; first < ranks; first += size) {
    groups.push_back(std::make_unique<ThreadGroup>(size, deadline, spin, AmongGroups{first, &end}));
  }
  return groups;
}

// With fewer CPUs than ranks, a spinning rank takes the CPU of the rank that it waits for.
Spin SpinOf(const Mesh& mesh) {
  return mesh.ranks() <= std::ssize(AffinityMask()) ? Spin::kLong : Spin::kBrief;
}

// The ranks of the group of `size` consecutive ones that has `rank`.
std::vector<int32_t> MembersOf(int32_t rank, int32_t size) {
  std::vector<int32_t> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), rank / size * size);
  return members;
}

}  // namespace

ThreadRanks::ThreadRanks(const Mesh& mesh, std::chrono::milliseconds deadline)
    : mesh_(mesh),
      tensor_(MakeGroups(mesh.ranks(), mesh.tp, deadline, SpinOf(mesh), end_)),
      experts_(MakeGroups(mesh.ranks(), mesh.ep, deadline, SpinOf(mesh), end_)),
      second_tensor_(MakeGroups(mesh.ranks(), mesh.tp, deadline, Spin::kBrief, end_)),
      second_experts_(MakeGroups(mesh.ranks(), mesh.ep, deadline, Spin::kBrief, end_)),
      moves_(MakeGroups(mesh.ranks(), mesh.ep, deadline, Spin::kBrief, end_)),
      all_(mesh.ranks(), deadline, SpinOf(mesh), {0, &end_}) {}

ops::Ranks ThreadRanks::RanksOf(int32_t rank, const Groups& tensor, const Groups& experts) {
  return {.tensor = &tensor[static_cast<size_t>(rank / mesh_.tp)]->rank(rank % mesh_.tp),
          .experts = &experts[static_cast<size_t>(rank / mesh_.ep)]->rank(rank % mesh_.ep),
          .all = &all_.rank(rank),
          .status = {}};
}

ops::Ranks ThreadRanks::Of(int32_t rank) { return RanksOf(rank, tensor_, experts_); }

ops::Ranks ThreadRanks::SecondOf(int32_t rank) {
  return RanksOf(rank, second_tensor_, second_experts_);
}

Communicator& ThreadRanks::MovesOf(int32_t rank) {
  return moves_[static_cast<size_t>(rank / mesh_.ep)]->rank(rank % mesh_.ep);
}

Result<std::unique_ptr<ProcessRank>> ProcessRank::Join(const Mesh& mesh,
                                                       std::chrono::milliseconds deadline) {
  const Launch& launch = LaunchHere();
  if (launch.ranks != mesh.ranks()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has started {} processes, and {} has {} ranks: start as many "
                             "processes, or choose --dp, --tp and --ep for {}",
                             launch.by, launch.ranks, MeshText(mesh), mesh.ranks(), launch.ranks)};
  }
  constexpr int32_t kAll = 0, kTensor = 1, kExperts = 2, kMoves = 3;
  constexpr int32_t kSecondTensor = 4, kSecondExperts = 5;
  auto joined = std::make_unique<ProcessRank>();
  if (launch.mpi) {
    ASSIGN_OR_RETURN(joined->all_, JoinMpiGroup(deadline));
  } else {
    const char* secret = std::getenv("BRAID_RANKS_SECRET");
    if (secret == nullptr || *secret == '\0') {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{} has started {} processes, which connect to each other: set "
                               "BRAID_RANKS_SECRET to the same secret for all of them",
                               launch.by, launch.ranks)};
    }
    ASSIGN_OR_RETURN(joined->tcp_, TcpGroup::Join({.rank = launch.rank,
                                                   .size = launch.ranks,
                                                   .host = launch.host,
                                                   .port = launch.port,
                                                   .elsewhere = launch.ranks_here < launch.ranks,
                                                   .secret = secret,
                                                   .deadline = deadline,
                                                   .join_deadline = 3 * deadline}));
    joined->all_ = joined->tcp_->GroupOf(MembersOf(0, launch.ranks), kAll);
  }
  const int32_t rank = joined->rank();
  const auto group = [&](int32_t size, int32_t channel, bool patient) {
    std::vector<int32_t> members = MembersOf(rank, size);
    return joined->tcp_ ? joined->tcp_->GroupOf(std::move(members), channel)
                        : MpiGroupOf(*joined->all_, std::move(members), channel, patient);
  };
  joined->tensor_ = group(mesh.tp, kTensor, false);
  joined->experts_ = group(mesh.ep, kExperts, false);
  joined->second_tensor_ = group(mesh.tp, kSecondTensor, true);
  joined->second_experts_ = group(mesh.ep, kSecondExperts, true);
  joined->moves_ = group(mesh.ep, kMoves, true);
  return joined;
}

ops::Ranks ProcessRank::groups() {
  return {.tensor = tensor_.get(), .experts = experts_.get(), .all = all_.get(), .status = {}};
}

ops::Ranks ProcessRank::second_groups() {
  return {.tensor = second_tensor_.get(),
          .experts = second_experts_.get(),
          .all = all_.get(),
          .status = {}};
}

}  // namespace braid
