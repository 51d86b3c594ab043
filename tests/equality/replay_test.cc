// The column "replayed" of the equality table: a run of the real model, recorded while clients
// came, left and disturbed each other, gives the same plans, tokens and log-probabilities once
// more.
#include "scheduler/replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/rng.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/checkpoint.h"
#include "model/families/families.h"
#include "model/loading/load_weights.h"
#include "model/loading/memory_plan.h"
#include "runtime/model_executor.h"
#include "scheduler/driver.h"

namespace braid {
namespace {

class ReplayedModel {
 public:
  explicit ReplayedModel(int32_t draft_tokens_max) {
    const std::string directory = BRAID_SOURCE_DIR "/models/braid-tiny";
    auto opened = OpenModel(directory);
    CHECK(opened.ok(), "{}", opened.error().message);
    spec_ = opened->spec;
    PlanState(spec_, draft_tokens_max);
    ThreadPool pool(2);
    auto weights = LoadWeights(*BindWeights(spec_, opened->checkpoint), pool);
    CHECK(weights.ok(), "{}", weights.error().message);
    // Room for about two of the requests: they evict and preempt each other.
    MemoryRequest request{
        .kv_dtype = DType::kF32, .arena_bytes = 24 << 20, .model_len_max = 1024, .running_max = 6};
    auto plan = PlanMemory(spec_, request);
    CHECK(plan.ok(), "{}", plan.error().message);
    config_ = {.cache = plan->geometry,
               .context_tokens_max = 1024,
               .step_tokens_max = 256,
               .running_max = 6,
               .vocabulary = spec_.vocabulary,
               .draft_tokens_max = draft_tokens_max};
    Device device;
    device.isa = BestIsa(DetectCpu());
    executor_ =
        std::make_unique<ModelExecutor>(spec_, *std::move(weights),
                                        ModelExecutorConfig{.cache = plan->geometry,
                                                            .running_max = 6,
                                                            .step_tokens_max = 256,
                                                            .context_tokens_max = 1024,
                                                            .kv_dtype = request.kv_dtype,
                                                            .device = device,
                                                            .threads = 2,
                                                            .draft_tokens_max = draft_tokens_max});
  }
  const SchedulerConfig& config() const { return config_; }
  ModelExecutor& executor() { return *executor_; }

 private:
  ModelSpec spec_;
  SchedulerConfig config_;
  std::unique_ptr<ModelExecutor> executor_;
};

struct Deaf : OutputSink {
  void OnOutput(Output) override {}
};

void Record(ReplayedModel& model, const std::string& path) {
  auto log = EventLogWriter::Create(path, {.config = model.config(), .model = "braid-tiny"});
  ASSERT_TRUE(log.ok()) << log.error().message;
  Driver driver(*Scheduler::Create(model.config()), model.executor(), {.event_log = log->get()});
  Deaf sink;
  std::thread engine([&] { EXPECT_TRUE(driver.Run().ok()); });
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 2; ++client) {
    clients.emplace_back([&, client] {
      Rng rng(client);
      for (int i = 0; i < 5; ++i) {
        Request r;
        r.id = driver.NewRequestId();
        const RequestId id = r.id;
        r.prompt.assign(static_cast<size_t>(100 + rng.Below(300)), 40);
        r.prompt.back() = static_cast<TokenId>(rng.Below(model.config().vocabulary));
        r.stop.new_tokens_max = static_cast<int32_t>(20 + rng.Below(60));
        r.logprobs = 3;
        r.prompt_logprobs = i == 1 ? 1 : -1;
        r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
        r.sampling.seed = rng.Next();
        EXPECT_TRUE(driver.Submit(std::move(r), &sink).ok());
        if (i == 3) driver.Abort(id);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  driver.Stop(false);
  engine.join();
}

class ReplayTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(ReplayTest, Replayed) {
  ReplayedModel model(GetParam());
  const std::string path = std::filesystem::temp_directory_path() /
                           ("braid_equality_replay_" + std::to_string(getpid()));
  Record(model, path);
  auto log = EventLogReader::Open(path);
  ASSERT_TRUE(log.ok()) << log.error().message;
  const auto report = Replay(*log, &model.executor());
  std::filesystem::remove(path);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->requests, 10);
  EXPECT_GT(report->tokens, 100);
  EXPECT_FALSE(report->truncated);
}

INSTANTIATE_TEST_SUITE_P(Drafts, ReplayTest, ::testing::Values(0, 3));

}  // namespace
}  // namespace braid
