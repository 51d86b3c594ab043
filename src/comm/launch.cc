// The first launcher whose variables are there counts. Ports of a launcher's own rendezvous are
// taken, so ranks use the next one.
#include "comm/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

namespace braid {
namespace {

constexpr int32_t kPortOtherwise = 29511, kPortMost = 65535;

class Variables {
 public:
  explicit Variables(const Environment& get) : get_(get) {}

  bool Has(const char* name) const { return get_(name) != nullptr; }
  // Remembers the first error.
  int32_t Number(const char* name, int32_t least, int32_t otherwise, int32_t most = INT32_MAX) {
    const char* text = get_(name);
    if (text == nullptr) return otherwise;
    const std::string_view all = text;
    int32_t value = 0;
    const auto [end, wrong] = std::from_chars(all.data(), all.data() + all.size(), value);
    const bool whole = wrong == std::errc() && end == all.data() + all.size();
    if (whole && value >= least && value <= most) return value;
    if (error.ok()) {
      error = Error{ErrorCode::kInvalid,
                    fmt::format("{}={}: expected a number from {} to {}", name, all, least, most)};
    }
    return otherwise;
  }
  std::string Text(const char* name, std::string_view launcher) {
    const char* text = get_(name);
    if (text != nullptr && *text != '\0') return text;
    if (error.ok()) {
      error = Error{ErrorCode::kInvalid,
                    fmt::format("{} has started several processes and {} is not set: the address "
                                "of rank 0",
                                launcher, name)};
    }
    return {};
  }

  Status error;

 private:
  const Environment& get_;
};

// The first of "node[03-07,9],other", or of "rack[1-2]node[1-4]-ib".
std::string FirstHost(std::string_view list) {
  std::string host;
  while (true) {
    const size_t end = std::min(list.find_first_of("[,"), list.size());
    host += list.substr(0, end);
    list.remove_prefix(end);
    if (!list.starts_with('[')) return host;
    const size_t first = list.find_first_of(",-]"), close = list.find(']');
    if (close == std::string_view::npos) return {};
    host += list.substr(1, first - 1);
    list.remove_prefix(close + 1);
  }
}

// Tasks of node `node` in "4(x2),1".
int32_t TasksOf(std::string_view list, int32_t node) {
  int32_t tasks = 1;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    std::from_chars(item.data(), item.data() + item.size(), tasks);
    int32_t nodes = 1;
    if (const size_t times = item.find("(x"); times != std::string_view::npos) {
      std::from_chars(item.data() + times + 2, item.data() + item.size(), nodes);
    }
    node -= nodes;
    if (node < 0) break;
  }
  return std::max(1, tasks);
}

Launch OfSlurm(Variables& variables, const Environment& get) {
  Launch launch{.by = "Slurm",
                .rank = variables.Number("SLURM_PROCID", 0, 0),
                .ranks = variables.Number("SLURM_STEP_NUM_TASKS", 1, 1)};
  launch.host = FirstHost(variables.Text("SLURM_STEP_NODELIST", launch.by));
  // Steps of one node that run at the same time are of different jobs.
  launch.port =
      static_cast<uint16_t>(kPortOtherwise + variables.Number("SLURM_JOB_ID", 0, 0) % 10'000);
  if (const char* tasks = get("SLURM_STEP_TASKS_PER_NODE"); tasks != nullptr) {
    launch.ranks_here = TasksOf(tasks, variables.Number("SLURM_NODEID", 0, 0));
  }
  return launch;
}

}  // namespace

Result<Launch> ReadLaunch(const Environment& get) {
  Variables variables(get);
  Launch launch;
  if (variables.Has("OMPI_COMM_WORLD_SIZE")) {
    launch = {.by = "mpirun",
              .rank = variables.Number("OMPI_COMM_WORLD_RANK", 0, 0),
              .ranks = variables.Number("OMPI_COMM_WORLD_SIZE", 1, 1),
              .ranks_here = variables.Number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 1),
              .mpi = true};
  } else if (variables.Number("SLURM_STEP_NUM_TASKS", 1, 1) > 1) {
    launch = OfSlurm(variables, get);
  } else if (variables.Number("WORLD_SIZE", 1, 1) > 1) {
    launch = {.by = "torchrun",
              .rank = variables.Number("RANK", 0, 0),
              .ranks = variables.Number("WORLD_SIZE", 1, 1),
              .ranks_here = variables.Number("LOCAL_WORLD_SIZE", 1, 1),
              .host = variables.Text("MASTER_ADDR", "torchrun")};
    launch.port = static_cast<uint16_t>(
        variables.Number("MASTER_PORT", 1, kPortOtherwise - 1, kPortMost - 1) + 1);
  } else if (variables.Number("LWS_GROUP_SIZE", 1, 1) > 1) {
    launch = {.by = "LeaderWorkerSet",
              .rank = variables.Number("LWS_WORKER_INDEX", 0, 0),
              .ranks = variables.Number("LWS_GROUP_SIZE", 1, 1),
              .host = variables.Text("LWS_LEADER_ADDRESS", "LeaderWorkerSet"),
              .port = kPortOtherwise};
  }
  launch.port =
      static_cast<uint16_t>(variables.Number("BRAID_RANKS_PORT", 1, launch.port, kPortMost));
  RETURN_IF_ERROR(variables.error);
  if (launch.rank >= launch.ranks) {
    return Error{ErrorCode::kInvalid, fmt::format("{} says that this is rank {} of {}", launch.by,
                                                  launch.rank, launch.ranks)};
  }
  return launch;
}

namespace {

const Result<Launch>& ReadHere() {
  static const Result<Launch> read =
      ReadLaunch([](const char* name) { return std::getenv(name); });
  return read;
}

}  // namespace

Status CheckLaunch() { return ReadHere() ? Status() : ReadHere().error(); }

const Launch& LaunchHere() {
  static const Launch alone;
  return ReadHere() ? *ReadHere() : alone;
}

}  // namespace braid
