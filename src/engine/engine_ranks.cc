// See the header.
#include "engine/engine_ranks.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "base/rng.h"
#include "comm/launch.h"
#include "runtime/lock_step.h"

namespace braid {

// A thread that exchanges who has loaded until everybody has.
class EngineRanks::Presence {
 public:
  explicit Presence(Communicator& all) : all_(all), thread_([this] { Run(); }) {}
  ~Presence() { Wait(); }

  void Wait() {
    ready_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    constexpr std::chrono::milliseconds kEvery{100};
    std::vector<std::byte> all(static_cast<size_t>(all_.size()));
    while (std::ranges::count(all, std::byte{1}) < all_.size()) {
      const std::byte ready{ready_ ? uint8_t{1} : uint8_t{0}};
      const Status status = all_.AllGather(std::span(&ready, 1), all);
      if (!status) {
        fmt::print(stderr, "braid: rank {} ends while it loads: {}\n", all_.rank(),
                   status.error().message);
        std::_Exit(1);
      }
      std::this_thread::sleep_for(kEvery);
    }
  }

  Communicator& all_;
  std::atomic<bool> ready_ = false;
  std::thread thread_;
};

namespace {

// How many ranks each machine has; 0: not all have equally many.
Result<int32_t> RanksOfEachMachine(Communicator& all) {
  const int32_t here = LaunchHere().ranks_here;
  std::vector<int32_t> of_all(static_cast<size_t>(all.size()));
  RETURN_IF_ERROR(all.AllGather(std::as_bytes(std::span(&here, 1)),
                                std::as_writable_bytes(std::span(of_all))));
  const bool alike = std::ranges::count(of_all, here) == std::ssize(of_all);
  return alike ? here : 0;
}

}  // namespace

EngineRanks::EngineRanks(const EngineOptions& options, std::unique_ptr<ProcessRank> process,
                         std::unique_ptr<ThreadRanks> threads, int32_t of_each_machine)
    : mesh_(options.mesh),
      deadline_(options.rank_seconds),
      process_(std::move(process)),
      threads_(std::move(threads)),
      of_each_machine_(of_each_machine) {}

EngineRanks::~EngineRanks() = default;

Status CheckRankChoices(const EngineOptions& options, const Mesh& mesh) {
  if (options.two_batch_overlap == "on" && mesh.ranks() == 1) {
    return Error{ErrorCode::kInvalid,
                 "--two-batch-overlap on needs several ranks, whose rows travel; name them with "
                 "--tp, --dp or --ep",
                 "two_batch_overlap"};
  }
  if (options.reduce != "fast") return {};
  const auto wrong = [](std::string_view why) {
    return Error{ErrorCode::kInvalid, fmt::format("--reduce fast {}", why), "reduce"};
  };
  if (mesh.ep == 1) return wrong("adds up experts' rows by rank, which needs --ep of 2 or more");
  if (mesh.redundant > 0) {
    return wrong(
        "needs every expert on one rank: with replicas a token's numbers would depend on "
        "the tokens beside it; leave out redundant experts");
  }
  if (options.balance_experts) {
    return wrong("needs experts that stay where they are; leave out --balance-experts");
  }
  return {};
}

Result<std::unique_ptr<EngineRanks>> EngineRanks::Create(const EngineOptions& options) {
  const std::chrono::seconds deadline(options.rank_seconds);
  std::unique_ptr<ProcessRank> process;
  std::unique_ptr<ThreadRanks> threads;
  int32_t of_each_machine = options.mesh.ranks();
  if (LaunchHere().several()) {
    ASSIGN_OR_RETURN(process, ProcessRank::Join(options.mesh, deadline));
    ASSIGN_OR_RETURN(of_each_machine, RanksOfEachMachine(*process->groups().all));
  } else {
    threads = std::make_unique<ThreadRanks>(options.mesh, deadline);
  }
  return std::unique_ptr<EngineRanks>(
      new EngineRanks(options, std::move(process), std::move(threads), of_each_machine));
}

std::vector<int32_t> EngineRanks::here() const {
  if (process_) return {process_->rank()};
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < mesh_.ranks(); ++rank) ranks.push_back(rank);
  return ranks;
}

int32_t EngineRanks::on_this_machine() const {
  return process_ ? LaunchHere().ranks_here : mesh_.ranks();
}

int32_t EngineRanks::of_a_node() const {
  const bool divide = of_each_machine_ > 0 && mesh_.ep % of_each_machine_ == 0;
  return divide ? of_each_machine_ : mesh_.ep;
}

ops::Ranks EngineRanks::Groups(int32_t rank) {
  return process_ ? process_->groups() : threads_->Of(rank);
}

void EngineRanks::AddTo(int32_t rank, const EngineOptions& options, ModelExecutorConfig& executor) {
  executor.ranks = Groups(rank);
  executor.second_half = process_ ? process_->second_groups() : threads_->SecondOf(rank);
  executor.overlap = options.overlap(as_processes());
  executor.dp_rank = mesh_.GroupOf(rank);
  executor.dp_ranks = mesh_.dp;
  if (options.step_times == nullptr) return;
  StepTimes& times = options.step_times->at(static_cast<size_t>(rank));
  ops::Ranks& groups = executor.ranks;
  const auto time = [&](Communicator*& group, int32_t number) {
    timed_.push_back(times.Timed(*group, number));
    group = timed_.back().get();
  };
  time(groups.tensor, kTensorGroup);
  time(groups.experts, kExpertsGroup);
  time(groups.all, kAllGroup);
  executor.times = &times;
}

Communicator& EngineRanks::Moves(int32_t rank) {
  return process_ ? process_->moves() : threads_->MovesOf(rank);
}

Machine EngineRanks::ShareOf(const Machine& machine, int32_t rank) const {
  if (process_) return machine;
  const Part part = PartOf(machine.threads, rank, mesh_.ranks());
  Machine own = machine;
  own.threads = std::max(1, static_cast<int32_t>(part.count));
  own.places = {};
  // Neighbours share a NUMA node (base/system/topology.h), and so do the threads of a rank.
  const auto take = [&](const auto& from, auto& to) {
    if (part.count == 0 || std::ssize(from) != machine.threads) return;
    to.assign(from.begin() + part.begin, from.begin() + part.begin + part.count);
  };
  take(machine.places.cpus, own.places.cpus);
  take(machine.places.nodes, own.places.nodes);
  return own;
}

void EngineRanks::BeginLoading() {
  if (process_) presence_ = std::make_unique<Presence>(*process_->groups().all);
}

Status EngineRanks::Agree(std::vector<int32_t>& numbers) {
  if (!process_) return {};
  presence_->Wait();
  Communicator& all = *process_->groups().all;
  std::vector<int32_t> of_all(numbers.size() * static_cast<size_t>(all.size()));
  RETURN_IF_ERROR(
      all.AllGather(std::as_bytes(std::span(numbers)), std::as_writable_bytes(std::span(of_all))));
  for (size_t i = 0; i < of_all.size(); ++i) {
    int32_t& least = numbers[i % numbers.size()];
    least = std::min(least, of_all[i]);
  }
  return {};
}

LogStart StartOfRun(const SchedulerConfig& limits, const ModelSpec& spec,
                    const EngineOptions& options, const Machine& machine,
                    const ExpertSlots& experts_at) {
  uint64_t placement = 0;
  for (const LayerSlots& slots : experts_at.placement) {
    for (const int32_t e : slots) placement = MixBits(placement + static_cast<uint64_t>(e));
    placement = MixBits(~placement);
  }
  return {
      .config = limits,
      .model = fmt::format(
          "{}, {} layers, {}, weights {}{}, ISA {}{}{}, compute {}, keys and values "
          "{}, state {}, mla {}, {} redundant experts, {} ranks a node, placement {:x}, "
          "balancing {} by {} bytes a step, dispatch {}, reduce {}, two-batch overlap {}",
          spec.architecture, spec.layers.size(), MeshText(options.mesh), options.weights,
          options.quantise_head ? " and head" : "", NameOf(machine.device.isa),
          machine.device.avx512_bf16 ? " with bf16" : "",
          machine.device.avx512_vbmi ? " and vbmi" : "",
          machine.device.compute == Compute::kF32 ? "fp32" : "bf16", NameOf(machine.kv_dtype),
          NameOf(machine.state_dtype), options.mla, experts_at.redundant, experts_at.ranks_per_node,
          placement, options.balance_experts, options.balance_step_bytes, options.ep_dispatch,
          options.reduce, options.two_batch_overlap)};
}

RankThread::RankThread(EngineRanks& ranks, int32_t rank, ModelExecutor& executor, LogStart start)
    : rank_(rank),
      deadline_(ranks.deadline()),
      thread_([this, &ranks, &executor, start = std::move(start)] {
        ::pthread_setname_np(::pthread_self(), fmt::format("braid-rank-{}", rank_).c_str());
        executor.BindEngineThread();
        const Status status = FollowRun(*ranks.Groups(rank_).all, start, executor);
        if (!status) LogError("rank {} has ended: {}", rank_, status.error().message);
        over_.set_value();
      }) {}

RankThread::~RankThread() {
  if (over_.get_future().wait_for(deadline_) != std::future_status::ready) {
    fmt::print(stderr, "braid: rank {} does not end within {} s of the others\n", rank_,
               deadline_.count());
    std::_Exit(1);
  }
  thread_.join();
}

Status OrEnd(Status status, const EngineRanks* ranks) {
  if (status || ranks == nullptr || !ranks->as_processes()) return status;
  fmt::print(stderr, "braid: rank {}: {}\n", ranks->here()[0], status.error().message);
  std::_Exit(1);
}

void LeaveSignalsToRank0() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
}

bool FollowsAsRank() { return LaunchHere().rank > 0; }

}  // namespace braid
