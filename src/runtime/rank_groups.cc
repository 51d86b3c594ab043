// See the header.
#include "runtime/rank_groups.h"

#include <fmt/format.h>

#include <numeric>

#include "comm/mpi_group.h"

namespace braid {
namespace {

std::vector<std::unique_ptr<ThreadGroup>> Groups(int32_t ranks, int32_t size,
                                                 std::chrono::milliseconds deadline) {
  std::vector<std::unique_ptr<ThreadGroup>> groups;
  for (int32_t first = 0; first < ranks; first += size) {
    groups.push_back(std::make_unique<ThreadGroup>(size, deadline));
  }
  return groups;
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
      tensor_(Groups(mesh.ranks(), mesh.tp, deadline)),
      experts_(Groups(mesh.ranks(), mesh.ep, deadline)),
      moves_(Groups(mesh.ranks(), mesh.ep, deadline)),
      all_(mesh.ranks(), deadline) {}

ops::Ranks ThreadRanks::Of(int32_t rank) {
  return {.tensor = &tensor_[static_cast<size_t>(rank / mesh_.tp)]->rank(rank % mesh_.tp),
          .experts = &experts_[static_cast<size_t>(rank / mesh_.ep)]->rank(rank % mesh_.ep),
          .all = &all_.rank(rank),
          .status = {}};
}

Communicator& ThreadRanks::MovesOf(int32_t rank) {
  return moves_[static_cast<size_t>(rank / mesh_.ep)]->rank(rank % mesh_.ep);
}

Result<std::unique_ptr<ProcessRank>> ProcessRank::Join(const Mesh& mesh,
                                                       std::chrono::milliseconds deadline) {
  if (MpiRanks() != mesh.ranks()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("mpirun has started {} processes, and {} has {} ranks: start as many "
                             "processes, or choose --dp, --tp and --ep for {}",
                             MpiRanks(), MeshText(mesh), mesh.ranks(), MpiRanks())};
  }
  auto joined = std::make_unique<ProcessRank>();
  ASSIGN_OR_RETURN(joined->all_, JoinMpiGroup(deadline));
  const int32_t rank = joined->rank();
  constexpr int32_t kTensor = 1, kExperts = 2, kMoves = 3;
  joined->tensor_ = MpiGroupOf(*joined->all_, MembersOf(rank, mesh.tp), kTensor);
  joined->experts_ = MpiGroupOf(*joined->all_, MembersOf(rank, mesh.ep), kExperts);
  joined->moves_ = MpiGroupOf(*joined->all_, MembersOf(rank, mesh.ep), kMoves, /*patient=*/true);
  return joined;
}

ops::Ranks ProcessRank::groups() {
  return {.tensor = tensor_.get(), .experts = experts_.get(), .all = all_.get(), .status = {}};
}

}  // namespace braid
