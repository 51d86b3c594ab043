// See the header.
#include "tests/equality/rank_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

#include "runtime/rank_groups.h"
#include "scheduler/inbox.h"

namespace braid {

namespace {

// No layers: the model has no experts.
ExpertLoads HeaderOf(const ModelSpec& spec) {
  ExpertLoads header;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const MoeFfn* moe = std::get_if<MoeFfn>(&spec.layers[i].ffn);
    if (moe == nullptr) continue;
    header.layers.push_back(static_cast<int32_t>(i));
    header.experts = moe->experts;
    header.top_k = moe->top_k;
  }
  return header;
}

}  // namespace

struct RankThreads::State {
  std::vector<RankModel> models;
  std::unique_ptr<ThreadRanks> groups;
  std::vector<std::unique_ptr<Communicator>> links;
  std::vector<std::unique_ptr<ModelExecutor>> executors;
  std::deque<ExpertRecorder> counted;  // of each rank, as are
  std::deque<Inbox> ended;
  std::vector<std::thread> threads;  // of all ranks but the first

  std::mutex mutex;
  std::condition_variable changed;
  const Plan* plan = nullptr;  // of the launch in progress
  int64_t launches = 0;
  size_t running = 0;
  bool stop = false;

  void Serve(size_t rank) {
    int64_t served = 0;
    while (true) {
      const Plan* mine = nullptr;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stop || launches > served; });
        if (stop) return;
        served = launches;
        mine = plan;
      }
      executors[rank]->Launch(*mine, ended[rank]);
      std::lock_guard lock(mutex);
      --running;
      changed.notify_all();
    }
  }
};

RankThreads::RankThreads(std::vector<RankModel> ranks, const Mesh& mesh,
                         const ModelExecutorConfig& config, const MoveLink& link,
                         std::chrono::milliseconds deadline)
    : state_(new State) {
  State& s = *state_;
  s.models = std::move(ranks);
  const ExpertLoads header = HeaderOf(s.models.front().spec);
  const bool counts = !header.layers.empty() && config.home == nullptr;
  s.groups = std::make_unique<ThreadRanks>(mesh, deadline);
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    ModelExecutorConfig own = config;
    if (mesh.ranks() > 1) {
      own.ranks = s.groups->Of(rank);
      own.second_half = s.groups->SecondOf(rank);
      own.dp_rank = mesh.GroupOf(rank);
      own.dp_ranks = mesh.dp;
      if (link != nullptr) {
        s.links.push_back(link(s.groups->MovesOf(rank)));
        own.moves = s.links.back() ? s.links.back().get() : &s.groups->MovesOf(rank);
      }
      if (rank % mesh.tp != 0) own.draft_head = nullptr;
    }
    RankModel& model = s.models[static_cast<size_t>(rank)];
    own.movers[static_cast<size_t>(Place::kDisk)] = model.tier;
    own.movers[static_cast<size_t>(Place::kPeer)] = model.peer;
    if (counts) own.experts = &s.counted.emplace_back(header);
    s.executors.push_back(
        std::make_unique<ModelExecutor>(model.spec, std::move(model.weights), own));
    s.ended.emplace_back();
  }
  for (size_t rank = 1; rank < s.executors.size(); ++rank) {
    s.threads.emplace_back([&s, rank] { s.Serve(rank); });
  }
}

RankThreads::~RankThreads() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void RankThreads::Launch(Plan plan, EventSink& events) {
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.plan = &plan;
    s.running = s.threads.size();
    ++s.launches;
  }
  s.changed.notify_all();
  s.executors[0]->Launch(plan, s.ended[0]);
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait(lock, [&] { return s.running == 0; });
  }
  StepDone done = s.ended[0].AwaitStep();
  for (size_t rank = 1; rank < s.executors.size(); ++rank) {
    const StepDone other = s.ended[rank].AwaitStep();
    EXPECT_EQ(other.step, done.step);
    EXPECT_EQ(other.rows.size(), done.rows.size());
  }
  events.Post(std::move(done));
}

const ExpertRecorder& RankThreads::counted() const { return state_->counted.front(); }

ops::Ranks RankThreads::groups(int32_t rank) { return state_->groups->Of(rank); }

ModelExecutor& RankThreads::rank(int32_t rank) {
  return *state_->executors[static_cast<size_t>(rank)];
}

}  // namespace braid
