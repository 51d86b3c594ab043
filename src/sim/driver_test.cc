// The driver with real threads around it and the hash LM below it.
#include "scheduler/driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

#include "base/rng.h"
#include "sim/hash_executor.h"

namespace braid {
namespace {

class Collector : public OutputSink {
 public:
  void OnOutput(Output output) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(finish_) << "an output after the last one";
    tokens_.insert(tokens_.end(), output.tokens.begin(), output.tokens.end());
    finish_ = output.finish;
    wake_.notify_all();
  }
  void AwaitTokens(size_t n) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return finish_ || tokens_.size() >= n; });
  }
  FinishReason Await() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return finish_.has_value(); });
    return *finish_;
  }
  std::vector<TokenId> tokens() {
    std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<TokenId> tokens_;
  std::optional<FinishReason> finish_;
};

SchedulerConfig Config() {
  return {
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 4}, {"state", GroupKind::kState, 256, 1}},
                .page_bytes = 256,
                .pages = 40},
      .context_tokens_max = 1000,
      .step_tokens_max = 200,
      .running_max = 6,
      .vocabulary = 500};
}

struct Serving {
  explicit Serving(int32_t overlap_depth, SchedulerConfig config = Config(),
                   HashExecutorOptions options = {})
      : executor(config.cache, config.vocabulary, std::move(options)),
        driver(*Scheduler::Create(config), executor, {.overlap_depth = overlap_depth}),
        engine([this] { EXPECT_TRUE(driver.Run().ok()); }) {}
  ~Serving() {
    driver.Stop(true);
    if (engine.joinable()) engine.join();
  }
  Request MakeRequest(int32_t prompt, int32_t new_tokens, uint64_t seed = 1) {
    Rng rng(seed);
    Request r;
    r.id = driver.NewRequestId();
    for (int32_t i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>(rng.Below(500)));
    r.stop.new_tokens_max = new_tokens;
    return r;
  }
  HashExecutor executor;
  Driver driver;
  std::thread engine;
};

class DriverTest : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(OverlapDepth, DriverTest, ::testing::Values(0, 1));

TEST_P(DriverTest, ManyThreadsGetTheOraclesAnswers) {
  Serving serving(GetParam());
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < 20; ++i) {
        Request r = serving.MakeRequest(static_cast<int32_t>(1 + (c * 37 + i * 11) % 300),
                                        static_cast<int32_t>(1 + i * 7 % 90), c * 100 + i);
        const OracleAnswer want = AskOracle(HashLm{500}, r, 1000);
        Collector sink;
        const Status status = serving.driver.Submit(r, &sink);
        ASSERT_TRUE(status.ok()) << status.error().message;
        EXPECT_EQ(sink.Await(), FinishReason::kLength);
        EXPECT_EQ(sink.tokens(), want.tokens);
      }
    });
  }
  for (std::thread& t : clients) t.join();
  serving.driver.Stop(false);
  serving.engine.join();
  EXPECT_EQ(serving.driver.stats().scheduler.finished, 160);
  EXPECT_EQ(serving.driver.stats().scheduler.pages_used, 0);
}

TEST_P(DriverTest, AnAbortEndsARunningRequestSoon) {
  Serving serving(GetParam());
  Collector sink;
  const Request r = serving.MakeRequest(10, 900);
  ASSERT_TRUE(serving.driver.Submit(r, &sink).ok());
  sink.AwaitTokens(5);
  serving.driver.Abort(r.id, FinishReason::kStop);
  const FinishReason finish = sink.Await();
  EXPECT_TRUE(finish == FinishReason::kStop || sink.tokens().size() == 900);
}

TEST_P(DriverTest, DrainingEndsWhatRunsAndRefusesWhatComes) {
  Serving serving(GetParam());
  Collector sink, late;
  ASSERT_TRUE(serving.driver.Submit(serving.MakeRequest(10, 200), &sink).ok());
  serving.driver.Stop(false);
  EXPECT_EQ(serving.driver.Submit(serving.MakeRequest(10, 5), &late).error().code,
            ErrorCode::kUnavailable);
  serving.engine.join();
  EXPECT_EQ(sink.Await(), FinishReason::kLength);
  EXPECT_EQ(sink.tokens().size(), 200u);
}

TEST_P(DriverTest, StoppingNowAbortsTheRunningTheWaitingAndTheUnread) {
  Serving serving(GetParam());
  std::vector<std::unique_ptr<Collector>> sinks;
  for (int i = 0; i < 30; ++i) {
    sinks.push_back(std::make_unique<Collector>());
    ASSERT_TRUE(serving.driver.Submit(serving.MakeRequest(50, 900), sinks.back().get()).ok());
  }
  sinks[0]->AwaitTokens(3);
  serving.driver.Stop(true);
  serving.engine.join();
  for (auto& sink : sinks) EXPECT_EQ(sink->Await(), FinishReason::kAbort);
  EXPECT_EQ(serving.driver.stats().scheduler.pages_used, 0);
}

TEST(Driver, RefusesMoreThanMayWaitWhileAStepHangs) {
  std::mutex gate;
  gate.lock();
  SchedulerConfig config = Config();
  config.waiting_max = 3;
  config.running_max = 1;
  std::vector<std::unique_ptr<Collector>> sinks;
  {
    Serving serving(0, config, {.before_step = [&] { std::lock_guard wait(gate); }});
    int refused = 0;
    for (int i = 0; i < 10; ++i) {
      sinks.push_back(std::make_unique<Collector>());
      const Status status = serving.driver.Submit(serving.MakeRequest(5, 5), sinks.back().get());
      if (status.ok()) continue;
      EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
      ++refused;
    }
    EXPECT_GE(refused, 6);
    gate.unlock();
  }
}

// Until the driver's thread has shown so often that it goes on.
void AwaitTurns(const Driver& driver, int turns) {
  for (; turns > 0; --turns) {
    const int64_t seen = driver.stats().heartbeat_us;
    while (driver.stats().heartbeat_us == seen) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST_P(DriverTest, APauseHoldsEverythingWhereItIs) {
  std::counting_semaphore<> steps(8);  // so many may run before the pause
  Collector before, after;
  Serving serving(GetParam(), Config(), {.before_step = [&] { steps.acquire(); }});
  Request first = serving.MakeRequest(50, 400), second = serving.MakeRequest(50, 5, 2);
  const RequestId first_id = first.id;
  ASSERT_TRUE(serving.driver.Submit(std::move(first), &before).ok());
  before.AwaitTokens(3);
  serving.driver.SetPaused(true);
  steps.release(1000);
  ASSERT_TRUE(serving.driver.Submit(std::move(second), &after).ok());
  // What was under way when the pause came may still arrive.
  AwaitTurns(serving.driver, 4);
  const size_t tokens = before.tokens().size();
  AwaitTurns(serving.driver, 2);
  EXPECT_EQ(before.tokens().size(), tokens);
  EXPECT_TRUE(after.tokens().empty());
  EXPECT_TRUE(serving.driver.stats().paused);
  serving.driver.Abort(first_id);
  EXPECT_EQ(before.Await(), FinishReason::kAbort) << "requests can be ended meanwhile";
  serving.driver.SetPaused(false);
  EXPECT_EQ(after.Await(), FinishReason::kLength);
  EXPECT_FALSE(serving.driver.stats().paused);
}

TEST_P(DriverTest, APauseThatComesDuringAStepIsShownAfterIt) {
  std::atomic<Driver*> driver = nullptr;
  Serving serving(GetParam(), Config(), {.before_step = [&] {
                    if (Driver* d = driver) d->SetPaused(true);
                  }});
  driver = &serving.driver;
  Collector collector;
  ASSERT_TRUE(serving.driver.Submit(serving.MakeRequest(5, 1), &collector).ok());
  EXPECT_EQ(collector.Await(), FinishReason::kLength);
  AwaitTurns(serving.driver, 2);
  EXPECT_TRUE(serving.driver.stats().paused);
}

TEST_P(DriverTest, DrainingEndsAPause) {
  Serving serving(GetParam());
  serving.driver.SetPaused(true);
  Collector collector;
  ASSERT_TRUE(serving.driver.Submit(serving.MakeRequest(10, 5), &collector).ok());
  serving.driver.Stop(false);
  EXPECT_EQ(collector.Await(), FinishReason::kLength);
}

// One turn after the other, by the test.
struct Turns {
  explicit Turns(HashExecutorOptions options, SchedulerConfig config = Config())
      : executor(config.cache, config.vocabulary, std::move(options)),
        driver(*Scheduler::Create(config), executor, {.now_us = [this] { return now_us; }}) {}
  int64_t now_us = 1;
  HashExecutor executor;
  Driver driver;
};

Request Asking(int32_t prompt, RequestRole role = RequestRole::kBoth) {
  Request r;
  r.id = RequestId(0);
  r.prompt.assign(static_cast<size_t>(prompt), 3);
  r.stop.new_tokens_max = 3;
  r.role = role;
  return r;
}

TEST(DriverTurns, WhileOnlyAMoveGoesOnNothingIsPlannedAndAStopWaitsForIt) {
  SchedulerConfig config = Config();
  config.handoff = true;
  Turns turns({.held = true}, config);
  Collector sink;
  ASSERT_TRUE(turns.driver.Submit(Asking(100, RequestRole::kDecode), &sink).ok());
  EXPECT_TRUE(turns.driver.Turn());
  turns.driver.Post(turns.executor.EndStep());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(turns.driver.Turn());
  EXPECT_EQ(turns.driver.stats().scheduler.steps, 1);
  turns.driver.Stop(true);
  EXPECT_TRUE(turns.driver.Turn()) << "its pages may still arrive";
  EXPECT_EQ(sink.Await(), FinishReason::kAbort);
  turns.driver.Post(turns.executor.EndFakeMove(0, true));
  EXPECT_FALSE(turns.driver.Turn());
  EXPECT_TRUE(turns.driver.ended().ok());
  EXPECT_EQ(turns.driver.stats().scheduler.pages_used, 0);
}

TEST(DriverTurns, AStepsTimeIsFromItsLaunchToItsEnd) {
  Turns turns({.held = true});
  Collector sink;
  ASSERT_TRUE(turns.driver.Submit(Asking(10), &sink).ok());
  turns.driver.Turn();
  EXPECT_EQ(turns.driver.stats().step_started_us, 1);
  turns.now_us = 501;
  turns.driver.Turn();
  turns.driver.Post(turns.executor.EndStep());
  turns.driver.Turn();
  EXPECT_EQ(turns.driver.stats().step_us_last, 500);
  EXPECT_EQ(turns.driver.stats().step_started_us, 501) << "the next step's";
}

TEST(DriverTurns, ALostGroupEndsEveryRequestWithItsError) {
  bool lost = false;
  const auto exchange = [&](std::vector<Event> events) -> Result<std::vector<Event>> {
    if (lost) return Error{ErrorCode::kUnavailable, "rank 2 does not answer"};
    return events;
  };
  Turns turns({.held = true, .exchange = exchange});
  Collector running, unread;
  ASSERT_TRUE(turns.driver.Submit(Asking(10), &running).ok());
  EXPECT_TRUE(turns.driver.Turn());
  Request second = Asking(10);
  second.id = RequestId(1);
  ASSERT_TRUE(turns.driver.Submit(second, &unread).ok());
  lost = true;
  EXPECT_EQ(turns.driver.Run().error().message, "rank 2 does not answer");
  EXPECT_EQ(running.Await(), FinishReason::kError);
  EXPECT_EQ(unread.Await(), FinishReason::kError);
  Collector late;
  second.id = RequestId(2);
  EXPECT_EQ(turns.driver.Submit(second, &late).error().message, "rank 2 does not answer");
}

TEST(Driver, RefusesAnInadmissibleRequestAtOnce) {
  Serving serving(0);
  Collector sink;
  const Status status = serving.driver.Submit(serving.MakeRequest(1000, 1), &sink);
  EXPECT_EQ(status.error().field, "prompt");
}

TEST(Driver, TheHeartbeatGoesOnWhileIdleAndShowsAStepThatHangs) {
  std::mutex gate;
  Serving serving(0, Config(), {.before_step = [&] { std::lock_guard wait(gate); }});
  const int64_t before = serving.driver.stats().heartbeat_us;
  while (serving.driver.stats().heartbeat_us == before) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(serving.driver.stats().step_started_us, 0);
  gate.lock();
  Collector sink;
  ASSERT_TRUE(serving.driver.Submit(serving.MakeRequest(5, 1), &sink).ok());
  while (serving.driver.stats().step_started_us == 0) std::this_thread::yield();
  const int64_t hung = serving.driver.stats().heartbeat_us;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(serving.driver.stats().heartbeat_us, hung);
  gate.unlock();
  EXPECT_EQ(sink.Await(), FinishReason::kLength);
}

}  // namespace
}  // namespace braid
