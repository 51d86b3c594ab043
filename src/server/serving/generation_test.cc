// A generation on a real driver, whose executor makes one step at a time when the test allows it.
#include "server/serving/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/clock.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kSecondUs = 1'000'000;
constexpr TokenId kToken = 7;

// Every sampling row gets kToken, or fails with `error`.
class StepExecutor final : public Executor {
 public:
  void Launch(Plan plan, EventSink& events) override {
    std::unique_lock lock(mutex_);
    for (const Admission& admission : plan.admissions) {
      seeds_.push_back(admission.request->sampling.seed);
    }
    changed_.wait(lock, [this] { return steps_ != 0; });
    if (steps_ > 0) --steps_;
    StepDone done{.step = plan.step};
    for (const Row& row : plan.rows) {
      done.rows.push_back({.request = row.request,
                           .token = row.sample ? kToken : TokenId{-1},
                           .error = error_,
                           .error_code = error_code_});
      if (row.prompt_logprobs) {
        done.rows.back().prompt_logprobs.resize(static_cast<size_t>(row.token_count));
      }
    }
    events.Post(std::move(done));
  }
  // So many steps may end; -1: all.
  void Allow(int steps) {
    std::lock_guard lock(mutex_);
    steps_ = steps;
    changed_.notify_all();
  }
  void Fail(ErrorCode code, std::string error) {
    std::lock_guard lock(mutex_);
    error_code_ = code;
    error_ = std::move(error);
  }
  std::vector<uint64_t> seeds() {
    std::lock_guard lock(mutex_);
    return seeds_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int steps_ = 0;
  std::string error_;
  ErrorCode error_code_ = ErrorCode::kInternal;
  std::vector<uint64_t> seeds_;
};

Scheduler SchedulerOfThree(int32_t running_max) {
  SchedulerConfig config{.context_tokens_max = 100,
                         .running_max = running_max,
                         .waiting_max = 3,
                         .vocabulary = 100};
  config.cache = {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64}},
                  .page_bytes = 64,
                  .pages = 100};
  return *Scheduler::Create(config);
}

class GenerationTest : public testing::Test {
 protected:
  explicit GenerationTest(int32_t running_max = SchedulerConfig().running_max)
      : driver_(SchedulerOfThree(running_max), executor_, {}),
        service_(config_,
                 {.driver = driver_,
                  .card = {.name = "m", .context_tokens_max = 100, .vocabulary = 100}},
                 1) {}
  ~GenerationTest() override {
    executor_.Allow(-1);
    driver_.Stop(true);
    if (engine_.joinable()) engine_.join();
  }
  // Until then nothing is taken from the queue.
  void RunEngine() {
    engine_ = std::thread([this] { EXPECT_TRUE(driver_.Run().ok()); });
  }

  // Prompts of these lengths, each answered n times with so many tokens.
  static GenerationPlan Plan(std::vector<size_t> prompts, int32_t n, int32_t tokens) {
    GenerationPlan plan;
    plan.choices_per_prompt = n;
    for (const size_t size : prompts) {
      for (int32_t i = 0; i < n; ++i) {
        PlannedChoice choice;
        choice.request.prompt.assign(size, 1);
        choice.request.stop.new_tokens_max = tokens;
        choice.request.sampling.seed = static_cast<uint64_t>(100 + i);
        plan.choices.push_back(std::move(choice));
      }
    }
    return plan;
  }
  Result<std::unique_ptr<Generation>, ApiError> TryStart(GenerationPlan plan) {
    return Generation::Start(service_, std::move(plan),
                             {.path = "/v1/completions",
                              .id_prefix = "cmpl-",
                              .request_id = "client-1",
                              .received_us = received_us_},
                             [this] { ++woken_; });
  }
  std::unique_ptr<Generation> Start(GenerationPlan plan) {
    auto started = TryStart(std::move(plan));
    CHECK(started, "{}", started.error().message);
    return *std::move(started);
  }
  // Deltas until the end, merged by choice.
  static std::vector<ChoiceDelta> Finish(Generation& generation, size_t choices) {
    std::vector<ChoiceDelta> merged(choices);
    while (!generation.finished()) {
      for (ChoiceDelta& delta : generation.Poll()) {
        ChoiceDelta& whole = merged.at(static_cast<size_t>(delta.index));
        if (delta.first) {
          whole = std::move(delta);
        } else {
          whole.Merge(std::move(delta));
        }
      }
    }
    return merged;
  }
  std::string Metrics() { return service_.metrics.Text({.driver = driver_.stats()}); }

  ServerConfig config_;
  StepExecutor executor_;
  Driver driver_;
  Service service_;
  const int64_t received_us_ = MonotonicUs();
  std::atomic<int> woken_ = 0;
  std::thread engine_;
};

TEST_F(GenerationTest, EveryChoiceGetsItsTokensAndAPromptCountsOnce) {
  RunEngine();
  executor_.Allow(-1);
  const auto generation = Start(Plan({5}, 2, 3));
  const std::vector<ChoiceDelta> choices = Finish(*generation, 2);
  for (const ChoiceDelta& choice : choices) {
    EXPECT_EQ(choice.tokens, (std::vector<TokenId>{kToken, kToken, kToken}));
    EXPECT_EQ(choice.finish, FinishReason::kLength);
  }
  EXPECT_EQ(generation->usage().prompt_tokens, 5);
  EXPECT_EQ(generation->usage().completion_tokens, 6);
  EXPECT_EQ(generation->usage().reasoning_tokens, 0);
  EXPECT_THAT(generation->reuse(), SizeIs(1));
  EXPECT_EQ(generation->reuse()[0].prompt_tokens, 5);
  EXPECT_FALSE(generation->error());
  EXPECT_GT(woken_, 0);
  EXPECT_THAT(Metrics(), HasSubstr("finished_reason=\"length\",model_name=\"m\"} 2"));
  EXPECT_EQ(generation->Overdue(received_us_ + 10'000 * kSecondUs), std::nullopt) << "it has ended";
}

TEST_F(GenerationTest, SeveralPromptsAreCountedEach) {
  RunEngine();
  executor_.Allow(-1);
  const auto generation = Start(Plan({5, 7}, 1, 1));
  Finish(*generation, 2);
  EXPECT_EQ(generation->usage().prompt_tokens, 12);
  ASSERT_THAT(generation->reuse(), SizeIs(2));
  EXPECT_EQ(generation->reuse()[1].prompt_tokens, 7);
  EXPECT_THAT(generation->prompt(0), SizeIs(5));
  EXPECT_THAT(generation->prompt(1), SizeIs(7));
}

TEST_F(GenerationTest, IfOneChoiceFindsNoPlaceNoneStays) {
  const auto refused = TryStart(Plan({5}, 4, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 503);
  EXPECT_EQ(refused.error().code, "overloaded");
  EXPECT_TRUE(service_.active.List({.name = {}, .admin = true}).empty());
  RunEngine();
  executor_.Allow(-1);
  // Once the engine has dropped those that found a place, there is room for as many again.
  auto next = TryStart(Plan({5}, 3, 1));
  while (!next) next = TryStart(Plan({5}, 3, 1));
  Finish(**next, 3);
  EXPECT_EQ((*next)->usage().completion_tokens, 3);
}

TEST_F(GenerationTest, SeedsAreDrawnUnlessTheRequestHasOne) {
  RunEngine();
  executor_.Allow(-1);
  GenerationPlan fixed = Plan({5}, 2, 1);
  fixed.fixed_seed = true;
  Finish(*Start(std::move(fixed)), 2);
  EXPECT_THAT(executor_.seeds(), testing::UnorderedElementsAre(100, 101));
  Finish(*Start(Plan({5}, 2, 1)), 2);
  const std::vector<uint64_t> seeds = executor_.seeds();
  ASSERT_THAT(seeds, SizeIs(4));
  EXPECT_NE(seeds[2], seeds[3]);
  EXPECT_NE(seeds[2], 100U);
}

TEST_F(GenerationTest, IdsHaveTheirPrefixAndCannotBeGuessed) {
  const auto first = Start(Plan({1}, 1, 1)), second = Start(Plan({1}, 1, 1));
  EXPECT_TRUE(first->id().starts_with("cmpl-"));
  EXPECT_EQ(first->id().size(), 5U + 32U);
  EXPECT_NE(first->id(), second->id());
}

TEST_F(GenerationTest, TheServerEndsItWithAReasonAndTheFirstReasonStays) {
  const auto generation = Start(Plan({5}, 2, 3));
  generation->End(EndReason::kTooLong);
  EXPECT_FALSE(generation->finished()) << "the last deltas are still to be taken";
  const std::vector<ChoiceDelta> deltas = generation->Poll();
  ASSERT_THAT(deltas, SizeIs(2));
  for (const ChoiceDelta& delta : deltas) EXPECT_EQ(delta.finish, FinishReason::kAbort);
  EXPECT_TRUE(generation->finished());
  generation->End(EndReason::kDrained);
  ASSERT_TRUE(generation->error());
  EXPECT_EQ(generation->error()->code, "request_timeout");
  EXPECT_TRUE(generation->Poll().empty());
  EXPECT_THAT(Metrics(), HasSubstr("finished_reason=\"abort\",model_name=\"m\"} 2"));
}

TEST_F(GenerationTest, EachReasonHasItsStatusAndCode) {
  const auto is = [](EndReason reason, int status, std::string_view code) {
    const ApiError error = EndError(reason);
    EXPECT_EQ(error.status, status) << code;
    EXPECT_EQ(error.code, code);
    EXPECT_FALSE(error.message.empty());
  };
  is(EndReason::kDrained, 503, "shutting_down");
  is(EndReason::kAborted, 499, kAbortedCode);
  is(EndReason::kTooLong, 503, "request_timeout");
  is(EndReason::kQueuedTooLong, 503, "queue_timeout");
  is(EndReason::kSlowReader, 503, "slow_reader");
  is(EndReason::kNoMemory, 503, "overloaded");
}

TEST_F(GenerationTest, AQueuedRequestIsOverdueAfterTheQueuesTimeAndARunningOneAfterItsOwn) {
  const auto generation = Start(Plan({5}, 1, 50));
  const int64_t queue_us = config_.queue_seconds_max * kSecondUs;
  const int64_t request_us = config_.request_seconds_max * kSecondUs;
  EXPECT_EQ(generation->Overdue(received_us_ + queue_us), std::nullopt);
  EXPECT_EQ(generation->Overdue(received_us_ + queue_us + 1), EndReason::kQueuedTooLong);
  EXPECT_EQ(generation->Overdue(received_us_ + request_us + 1), EndReason::kTooLong);
  RunEngine();
  while (executor_.seeds().empty()) std::this_thread::yield();
  EXPECT_EQ(generation->Overdue(received_us_ + queue_us + 1), std::nullopt)
      << "admitted, although no poll has seen it";
  EXPECT_TRUE(generation->Poll().empty());
  EXPECT_EQ(generation->Overdue(received_us_ + queue_us + 1), std::nullopt);
  EXPECT_EQ(generation->Overdue(received_us_ + request_us), std::nullopt);
  EXPECT_EQ(generation->Overdue(received_us_ + request_us + 1), EndReason::kTooLong);
}

TEST_F(GenerationTest, TheActiveListShowsItsPhasesUntilItIsDestroyed) {
  const Caller admin{.name = {}, .admin = true};
  const auto view = [&] { return service_.active.List(admin).at(0); };
  auto generation = Start(Plan({5}, 2, 50));
  EXPECT_STREQ(view().phase(), "waiting");
  EXPECT_EQ(view().id, generation->id());
  EXPECT_EQ(view().client_id, "client-1");
  EXPECT_EQ(view().path, "/v1/completions");
  EXPECT_EQ(view().received_us, received_us_);
  EXPECT_EQ(view().prompt_tokens, 5);
  EXPECT_EQ(view().choices, 2);
  EXPECT_EQ(service_.active.WaitingTokens(), 10) << "of both choices";
  RunEngine();
  while (executor_.seeds().size() < 2) std::this_thread::yield();
  generation->Poll();
  EXPECT_STREQ(view().phase(), "prefill");
  EXPECT_EQ(service_.active.WaitingTokens(), 0);
  executor_.Allow(1);
  while (view().output_tokens < 2) generation->Poll();
  EXPECT_STREQ(view().phase(), "decode");
  generation.reset();
  EXPECT_TRUE(service_.active.List(admin).empty());
}

class OneAtATimeTest : public GenerationTest {
 protected:
  OneAtATimeTest() : GenerationTest(1) {}
};

TEST_F(OneAtATimeTest, ChoicesThatAreNotAdmittedWaitBesideOneThatIs) {
  const auto generation = Start(Plan({5}, 3, 50));
  EXPECT_EQ(service_.active.WaitingTokens(), 15);
  RunEngine();
  while (executor_.seeds().empty()) std::this_thread::yield();
  generation->Poll();
  EXPECT_EQ(service_.active.WaitingTokens(), 10);
  generation->End(EndReason::kAborted);
  EXPECT_EQ(service_.active.WaitingTokens(), 0);
}

TEST_F(GenerationTest, EachOfItsTimesIsObservedOnce) {
  RunEngine();
  {
    const Caller admin{.name = {}, .admin = true};
    auto generation = Start(Plan({5}, 1, 4));
    for (int32_t token = 1; token <= 4; ++token) {
      executor_.Allow(1);
      while (service_.active.List(admin).at(0).output_tokens < token) generation->Poll();
    }
    EXPECT_TRUE(generation->finished());
  }
  const std::string metrics = Metrics();
  for (const char* name :
       {"time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_inference_time_seconds", "request_time_per_output_token_seconds",
        "request_prompt_tokens", "request_generation_tokens"}) {
    const std::string start = fmt::format("\nbraid:{}_count{{", name);
    const size_t at = metrics.find(start);
    ASSERT_NE(at, std::string::npos) << name;
    const std::string line = metrics.substr(at + 1, metrics.find('\n', at + 1) - at - 1);
    EXPECT_TRUE(line.ends_with(" 1")) << line;
  }
}

TEST_F(GenerationTest, AnotherConnectionEndsItByItsId) {
  const Caller admin{.name = {}, .admin = true};
  const auto generation = Start(Plan({5}, 1, 50));
  EXPECT_EQ(service_.active.End("other", admin), 0);
  EXPECT_EQ(service_.active.End(generation->id(), {.name = "stranger"}), 0);
  EXPECT_TRUE(generation->Poll().empty());
  const int before = woken_;
  EXPECT_EQ(service_.active.End(generation->id(), admin), 1);
  EXPECT_EQ(service_.active.End("client-1", admin), 0) << "it is ending already";
  EXPECT_GT(woken_, before);
  EXPECT_THAT(generation->Poll(), SizeIs(1));
  EXPECT_TRUE(generation->finished());
  EXPECT_EQ(generation->error()->code, kAbortedCode);
}

TEST_F(GenerationTest, ARowThatFailsEndsItWithTheEnginesError) {
  executor_.Fail(ErrorCode::kInternal, "numbers are not finite");
  RunEngine();
  executor_.Allow(-1);
  const auto broken = Start(Plan({5}, 1, 3));
  Finish(*broken, 1);
  ASSERT_TRUE(broken->error());
  EXPECT_EQ(broken->error()->status, 500);
  EXPECT_THAT(broken->error()->message, HasSubstr("numbers are not finite"));
  EXPECT_THAT(Metrics(), HasSubstr("corrupted_requests_total{engine=\"0\",model_name=\"m\"} 1"));
  executor_.Fail(ErrorCode::kInvalid, "the grammar has ended");
  const auto refused = Start(Plan({6}, 1, 3));
  Finish(*refused, 1);
  EXPECT_EQ(refused->error()->status, 400);
  EXPECT_THAT(Metrics(), HasSubstr("corrupted_requests_total{engine=\"0\",model_name=\"m\"} 1"));
}

TEST_F(GenerationTest, UnreadOutputIsPending) {
  RunEngine();
  const auto generation = Start(Plan({5}, 1, 50));
  EXPECT_EQ(generation->PendingBytes(), 0U);
  executor_.Allow(2);
  while (generation->PendingBytes() == 0) std::this_thread::yield();
  while (generation->usage().completion_tokens < 2) generation->Poll();
  EXPECT_EQ(generation->PendingBytes(), 0U);
}

TEST_F(GenerationTest, DestroyingItAbortsItInTheEngine) {
  RunEngine();
  auto generation = Start(Plan({5}, 1, 50));
  executor_.Allow(1);
  while (generation->usage().completion_tokens < 1) generation->Poll();
  generation.reset();
  executor_.Allow(-1);
  while (driver_.stats().scheduler.running > 0) std::this_thread::yield();
  EXPECT_THAT(Metrics(), HasSubstr("finished_reason=\"abort\",model_name=\"m\"} 1"));
}

TEST_F(GenerationTest, LogprobsOfAPromptAreHeldOrEndIt) {
  RunEngine();
  executor_.Allow(-1);
  constexpr int64_t kBytes = 50 * int64_t{sizeof(TokenLogprob)};
  for (const bool fits : {true, false}) {
    MemoryBudget budget({.server_bytes = kBytes - (fits ? 0 : 1)});
    service_.memory = &budget;
    GenerationPlan plan = Plan({50}, 1, 3);
    plan.choices[0].request.prompt_logprobs = 0;
    auto generation = Start(std::move(plan));
    Finish(*generation, 1);
    EXPECT_EQ(budget.stats().used_bytes, fits ? kBytes : 0);
    EXPECT_EQ(generation->error().has_value(), !fits);
    if (fits) {
      EXPECT_FALSE(generation->HoldMemory(1));
      generation->FreeMemory(100);
      EXPECT_TRUE(generation->HoldMemory(1));
      EXPECT_EQ(budget.stats().used_bytes, kBytes - 99);
    } else {
      EXPECT_EQ(generation->error()->status, 503);
      EXPECT_THAT(generation->error()->message, HasSubstr("log-probabilities"));
    }
    generation.reset();
    EXPECT_EQ(budget.stats().used_bytes, 0);
  }
}

TEST_F(GenerationTest, GeneratedTokensAreTakenFromItsTenantsMinute) {
  RunEngine();
  executor_.Allow(-1);
  const Caller caller{.name = "ann", .tokens_per_minute = 8};
  GenerationPlan plan = Plan({5}, 1, 3);
  plan.place = service_.tenants.Enter(caller, 5, MonotonicUs()).place;
  ASSERT_NE(plan.place, nullptr);
  const auto generation = Start(std::move(plan));
  EXPECT_EQ(service_.active.List(caller).at(0).tenant, "ann");
  Finish(*generation, 1);
  EXPECT_EQ(service_.tenants.Enter(caller, 1, MonotonicUs()).place, nullptr)
      << "5 of the prompt and 3 of the answer";
}

TEST_F(GenerationTest, ARequestThatDoesNotBeginCostsItsTenantNothing) {
  const Caller caller{.name = "ann", .tokens_per_minute = 8};
  const auto full = Start(Plan({5}, 3, 3));  // the queue
  GenerationPlan plan = Plan({8}, 1, 3);
  plan.place = service_.tenants.Enter(caller, 8, MonotonicUs()).place;
  ASSERT_NE(plan.place, nullptr);
  const auto refused = TryStart(std::move(plan));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 503);
  EXPECT_NE(service_.tenants.Enter(caller, 8, MonotonicUs()).place, nullptr);
}

}  // namespace
}  // namespace braid
