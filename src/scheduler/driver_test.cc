// The loop turn by turn, with an executor whose steps end when the test says so.
#include "scheduler/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <thread>

#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Client final : OutputSink {
  void OnAdmitted() override { ++admitted; }
  void OnOutput(Output output) override {
    EXPECT_FALSE(finish) << "an output after the last";
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    finish = output.finish;
    error_code = output.error_code;
    error = output.error;
  }
  int admitted = 0;
  std::vector<TokenId> tokens;
  std::optional<FinishReason> finish;
  ErrorCode error_code = ErrorCode::kInternal;
  std::string error;
};

struct HeldSteps final : Executor {
  Result<std::vector<Event>> Exchange(std::vector<Event> local) override {
    if (!lost.empty()) return Error{ErrorCode::kUnavailable, lost};
    return local;
  }
  void Launch(Plan plan, EventSink& events) override {
    plans.push_back(plan);
    running.push_back(ResultOf(plan));
    sink = &events;
  }
  // The oldest step is over.
  void End() {
    ASSERT_FALSE(running.empty());
    sink->Post(running.front());
    running.pop_front();
  }

  std::vector<Plan> plans;
  std::deque<StepDone> running;
  EventSink* sink = nullptr;
  std::string lost;
};

class DriverTest : public SchedulerFixture {
 protected:
  void Make(DriverConfig config = {}, SchedulerConfig scheduler = BlockConfig()) {
    config.now_us = [this] { return now_us_; };
    driver_ = std::make_unique<Driver>(*Scheduler::Create(scheduler), executor_, config);
  }
  Status Submit(Client& client, int32_t tokens = 100, int32_t new_tokens = 2) {
    Request request = SchedulerFixture::Make(tokens, new_tokens);
    request.id = last_ = driver_->NewRequestId();
    return driver_->Submit(std::move(request), &client);
  }
  // Turns until nothing runs.
  void Finish() {
    for (int i = 0; i < 1000; ++i) {
      driver_->Turn();
      if (executor_.running.empty()) return;
      executor_.End();
    }
    ADD_FAILURE() << "it does not end";
  }

  int64_t now_us_ = 1000;
  HeldSteps executor_;
  std::unique_ptr<Driver> driver_;
  RequestId last_;
};

TEST_F(DriverTest, ARequestIsAdmittedAnsweredAndForgotten) {
  Make();
  Client client;
  ASSERT_TRUE(Submit(client, 100, 3));
  EXPECT_EQ(client.admitted, 0);
  Finish();
  EXPECT_EQ(client.admitted, 1);
  EXPECT_THAT(client.tokens, ElementsAre(7, 7, 7));
  EXPECT_EQ(client.finish, FinishReason::kLength);
  EXPECT_TRUE(driver_->scheduler().idle());
  driver_->Abort(last_);  // too late, and of no consequence
  EXPECT_TRUE(driver_->Turn());
}

TEST_F(DriverTest, FiguresAreThoseOfTheLastTurn) {
  Make();
  Client client;
  ASSERT_TRUE(Submit(client));
  now_us_ = 5000;
  driver_->Turn();
  EXPECT_EQ(driver_->stats().scheduler.running, 1);
  EXPECT_EQ(driver_->stats().step_rows, 1);
  EXPECT_EQ(driver_->stats().step_tokens, 100);
  EXPECT_EQ(driver_->stats().step_started_us, 5000);
  EXPECT_EQ(driver_->stats().heartbeat_us, 5000);
  now_us_ = 5700;
  executor_.End();
  driver_->Turn();
  EXPECT_EQ(driver_->stats().step_us_last, 700);
  EXPECT_EQ(driver_->stats().step_tokens, 1);
  EXPECT_EQ(driver_->stats().step_started_us, 5700);
  Finish();
  EXPECT_EQ(driver_->stats().scheduler.running, 0);
  EXPECT_EQ(driver_->stats().scheduler.finished, 1);
  EXPECT_EQ(driver_->stats().step_started_us, 0) << "no step runs";
}

TEST_F(DriverTest, TheLogSaysWhenRequestsCameAndWhenTheRestHappened) {
  const std::string path = ::testing::TempDir() + "/driver_times_test.log";
  auto log = EventLogWriter::Create(path, {.config = BlockConfig(), .model = "m"});
  ASSERT_TRUE(log) << log.error().message;
  Make({.event_log = log->get()});
  Client first, second;
  ASSERT_TRUE(Submit(first));
  now_us_ = 5000;
  driver_->Turn();
  now_us_ = 6000;
  ASSERT_TRUE(Submit(second));  // during a step
  now_us_ = 9000;
  executor_.End();
  driver_->Turn();
  ASSERT_TRUE((*log)->Flush());
  auto reader = EventLogReader::Open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  std::vector<std::pair<bool, int64_t>> times;
  for (auto record = reader->Next(); record && *record; record = reader->Next()) {
    const Event* event = std::get_if<Event>(&**record);
    if (event == nullptr) continue;
    const auto* done = std::get_if<StepDone>(event);
    if (done != nullptr) {
      EXPECT_EQ(done->duration_us, 4000);
    }
    times.emplace_back(std::holds_alternative<braid::Submit>(*event), reader->at_us());
  }
  EXPECT_THAT(times,
              ElementsAre(std::pair(true, 1000), std::pair(true, 6000), std::pair(false, 9000)));
  Finish();
  std::filesystem::remove(path);
}

TEST_F(DriverTest, APauseHoldsStepsUntilItEnds) {
  Make();
  driver_->SetPaused(true);
  EXPECT_TRUE(driver_->stats().paused);
  Client client;
  ASSERT_TRUE(Submit(client));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(driver_->Turn());
    EXPECT_TRUE(driver_->stats().paused);
    EXPECT_THAT(executor_.plans, IsEmpty());
  }
  driver_->SetPaused(false);
  EXPECT_FALSE(driver_->stats().paused);
  Finish();
  EXPECT_EQ(client.tokens.size(), 2u);
}

TEST_F(DriverTest, AStopEndsAPauseAndServesWhatWasTaken) {
  Make();
  Client client, late;
  driver_->SetPaused(true);
  ASSERT_TRUE(Submit(client));
  driver_->Turn();
  driver_->Stop(false);
  const Status refused = Submit(late);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  while (driver_->Turn()) {
    ASSERT_FALSE(executor_.running.empty());
    executor_.End();
  }
  EXPECT_FALSE(driver_->stats().paused);
  EXPECT_EQ(client.finish, FinishReason::kLength);
  EXPECT_TRUE(driver_->ended());
}

TEST_F(DriverTest, AStopAtOnceAbortsWhatRunsAndWaits) {
  SchedulerConfig config = BlockConfig();
  config.running_max = 1;
  Make({}, config);
  Client runs, waits;
  ASSERT_TRUE(Submit(runs, 100, 50));
  ASSERT_TRUE(Submit(waits, 100, 50));
  driver_->Turn();
  driver_->Stop(true);
  EXPECT_TRUE(driver_->Turn()) << "a step is still in flight";
  executor_.End();
  EXPECT_FALSE(driver_->Turn());
  EXPECT_EQ(runs.finish, FinishReason::kAbort);
  EXPECT_EQ(waits.finish, FinishReason::kAbort);
}

TEST_F(DriverTest, AFullQueueRefusesAndTakesAgainWhenThereIsRoom) {
  SchedulerConfig config = BlockConfig();
  config.running_max = 1;
  config.waiting_max = 2;
  Make({}, config);
  Client clients[4];
  ASSERT_TRUE(Submit(clients[0], 10, 5));
  ASSERT_TRUE(Submit(clients[1], 10, 5));
  const Status refused = Submit(clients[2]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("2 requests wait, and at most 2 may"));
  driver_->Turn();  // the first one runs
  EXPECT_TRUE(Submit(clients[2], 10, 5));
  EXPECT_FALSE(Submit(clients[3], 10, 5)) << "what was just taken waits too";
  Finish();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(clients[i].finish, FinishReason::kLength) << i;
  EXPECT_EQ(clients[3].finish, std::nullopt);
}

TEST_F(DriverTest, ALostGroupEndsEveryRequestWithTheReason) {
  Make();
  Client runs, waits, comes, late;
  ASSERT_TRUE(Submit(runs));
  driver_->Turn();
  ASSERT_TRUE(Submit(waits));
  executor_.lost = "rank 1 is gone";
  EXPECT_FALSE(driver_->Turn());
  EXPECT_EQ(driver_->ended().error().message, "rank 1 is gone");
  for (const Client* client : {&runs, &waits}) {
    EXPECT_EQ(client->finish, FinishReason::kError);
    EXPECT_EQ(client->error_code, ErrorCode::kUnavailable);
    EXPECT_EQ(client->error, "rank 1 is gone");
  }
  const Status refused = Submit(late);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "rank 1 is gone");
}

// A rank that is lost ends none of its moves.
TEST_F(DriverTest, ALostGroupEndsTheRunWhilePagesMove) {
  SchedulerConfig config = BlockConfig();
  config.handoff = true;
  Make({.prompts_elsewhere = true}, config);
  Client client;
  ASSERT_TRUE(Submit(client, 200, 3));
  driver_->Turn();
  ASSERT_EQ(executor_.plans.at(0).moves.size(), 1u);
  executor_.End();
  EXPECT_TRUE(driver_->Turn());
  executor_.lost = "rank 1 is gone";
  EXPECT_FALSE(driver_->Run());
  EXPECT_EQ(client.finish, FinishReason::kError);
}

TEST_F(DriverTest, PromptsThatOthersMayComputeAreAwaited) {
  for (const bool elsewhere : {false, true}) {
    SchedulerConfig config = BlockConfig();
    config.handoff = true;
    executor_.plans.clear();
    executor_.running.clear();
    Make({.prompts_elsewhere = elsewhere}, config);
    Client client;
    ASSERT_TRUE(Submit(client, 200, 3));
    driver_->Turn();
    ASSERT_EQ(executor_.plans.size(), 1u);
    EXPECT_EQ(executor_.plans[0].moves.size(), elsewhere ? 1u : 0u);
    EXPECT_EQ(executor_.plans[0].rows.size(), elsewhere ? 0u : 1u);
    if (elsewhere) {
      driver_->Post(PagesMoved{.move = executor_.plans[0].moves[0].id,
                               .error = {},
                               .lost = {},
                               .token = 42,
                               .logprob = {}});
    }
    Finish();
    EXPECT_EQ(client.tokens.at(0), elsewhere ? 42 : 7);
    EXPECT_EQ(client.tokens.size(), 3u);
  }
}

TEST_F(DriverTest, AFlushClearsTheTiersOnlyWhenItSaysSo) {
  std::vector<bool> waits;
  Make({.clear_tiers = [&](bool wait) { waits.push_back(wait); }});
  Client first, second, third;
  ASSERT_TRUE(Submit(first, 200));
  Finish();
  EXPECT_GT(driver_->stats().scheduler.pages_cached, 0);
  driver_->FlushCache();
  driver_->Turn();
  EXPECT_EQ(driver_->stats().scheduler.pages_cached, 0);
  EXPECT_TRUE(waits.empty());
  driver_->FlushCache(true);
  EXPECT_EQ(waits, std::vector<bool>{true});
  driver_->Turn();
  EXPECT_EQ(waits, (std::vector<bool>{true, false})) << "of what was planned before the event";
}

TEST_F(DriverTest, BooksAreCheckedWhileNothingRuns) {
  Make({.audit_every_us = 1000});
  now_us_ = 10'000;
  driver_->Turn();
  EXPECT_EQ(driver_->stats().audits, 1);
  now_us_ += 999;
  driver_->Turn();
  EXPECT_EQ(driver_->stats().audits, 1);
  Client client;
  ASSERT_TRUE(Submit(client));
  driver_->Turn();
  now_us_ += 5000;
  driver_->Turn();
  EXPECT_EQ(driver_->stats().audits, 1) << "a step runs";
  Finish();
  EXPECT_EQ(driver_->stats().audits, 2);
  EXPECT_EQ(driver_->stats().repairs, 0);
}

TEST_F(DriverTest, OneStepMayBePlannedAhead) {
  for (const int32_t depth : {0, 1}) {
    executor_.plans.clear();
    executor_.running.clear();
    Make({.overlap_depth = depth});
    Client client;
    ASSERT_TRUE(Submit(client, 100, 4));
    driver_->Turn();
    EXPECT_EQ(executor_.running.size(), static_cast<size_t>(1 + depth));
    Finish();
    EXPECT_THAT(client.tokens, ElementsAre(7, 7, 7, 7));
  }
}

struct Prefixes final : PrefixListener {
  void OnPrefixes(DpRankId, PrefixChanges changes) override { blocks += changes.stored.size(); }
  size_t blocks = 0;
};

TEST_F(DriverTest, StoredPrefixesAreTold) {
  SchedulerConfig config = BlockConfig();
  config.report_prefixes = true;
  Prefixes prefixes;
  Make({.prefixes = &prefixes}, config);
  Client client;
  ASSERT_TRUE(Submit(client, 200, 2));
  Finish();
  EXPECT_EQ(prefixes.blocks, 3u);
}

class GrammarDriverTest : public DriverTest {
 protected:
  static SchedulerConfig OneRank() {
    SchedulerConfig config = BlockConfig();
    config.grammar_ranks = 1;
    return config;
  }
  Request Constrained(Driver& driver) {
    Request request = SchedulerFixture::Make(100, 2);
    request.id = driver.NewRequestId();
    request.grammar = "regex";
    return request;
  }
};

TEST_F(GrammarDriverTest, ARequestThatARankIsNotReadyForIsAnsweredAfterAStop) {
  Make({}, OneRank());
  Client client;
  const Request request = Constrained(*driver_);
  ASSERT_TRUE(driver_->Submit(request, &client));
  driver_->Stop(false);
  EXPECT_TRUE(driver_->Turn());
  EXPECT_TRUE(executor_.plans.empty());
  EXPECT_EQ(driver_->stats().scheduler.waiting, 1);
  driver_->Post(GrammarReady{.request = request.id, .error = {}});
  Finish();
  EXPECT_EQ(client.tokens.size(), 2u);
}

// At the pace of heartbeats a hundred questions would take 20 s.
TEST_F(GrammarDriverTest, AnIdleLoopAsksOftenWhileARankCompiles) {
  struct Steps final : Executor {
    void Launch(Plan plan, EventSink& events) override { events.Post(ResultOf(plan)); }
  } steps;
  struct Others final : RunListener {
    void Add(const Event&) override {}
    void Add(const Plan&) override {}
    void Idle() override {
      if (++asked == 100) driver->Post(GrammarReady{.request = request, .error = {}});
    }
    int asked = 0;
    Driver* driver = nullptr;
    RequestId request;
  } others;
  Driver driver(*Scheduler::Create(OneRank()), steps, {.followers = &others, .reports_us = 1000});
  Client client;
  const Request request = Constrained(driver);
  others.driver = &driver;
  others.request = request.id;
  ASSERT_TRUE(driver.Submit(request, &client));
  driver.Stop(false);
  const int64_t begin_us = MonotonicUs();
  EXPECT_TRUE(driver.Run());
  EXPECT_LT(MonotonicUs() - begin_us, 10'000'000);
  EXPECT_EQ(client.tokens.size(), 2u);
}

TEST_F(DriverTest, AThreadServesUntilItIsStopped) {
  Make();
  struct Steps final : Executor {
    void Launch(Plan plan, EventSink& events) override { events.Post(ResultOf(plan)); }
  } steps;
  Driver driver(*Scheduler::Create(BlockConfig()), steps, {});
  Client client;
  std::thread thread([&] { EXPECT_TRUE(driver.Run()); });
  Request request = SchedulerFixture::Make(100, 20);
  request.id = driver.NewRequestId();
  EXPECT_TRUE(driver.Submit(std::move(request), &client));
  driver.Stop(false);
  thread.join();
  EXPECT_EQ(client.tokens.size(), 20u);
}

}  // namespace
}  // namespace braid
