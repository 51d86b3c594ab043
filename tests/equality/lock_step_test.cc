// Ranks that follow the first one's run, each with a scheduler of its own: the answers of one rank,
// and what ends the group.
#include "runtime/lock_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/thread_group.h"
#include "scheduler/driver.h"
#include "scheduler/inbox.h"
#include "tests/equality/table.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

struct Collector final : OutputSink {
  void OnOutput(Output output) override {
    std::lock_guard lock(mutex);
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    if (!output.finish) return;
    error = output.error;
    done = true;
    changed.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<TokenId> tokens;
  std::string error;
  bool done = false;
};

// An executor that answers every row with the sum of its tokens; ranks need no exchange for it.
class Sums final : public Executor {
 public:
  explicit Sums(int32_t wrong_at = -1) : wrong_at_(wrong_at) {}
  void Launch(Plan plan, EventSink& events) override {
    StepDone done{.step = plan.step, .rows = {}};
    for (const Row& row : plan.rows) {
      int64_t sum = row.start;
      for (int32_t i = 0; i < row.token_count; ++i) {
        sum += plan.tokens[static_cast<size_t>(row.token_begin + i)];
      }
      const bool wrong = steps_ == wrong_at_;
      done.rows.push_back({.request = row.request,
                           .token = row.sample ? static_cast<TokenId>(sum % 97 + wrong) : -1});
    }
    ++steps_;
    events.Post(std::move(done));
  }

 private:
  int32_t wrong_at_, steps_ = 0;
};

SchedulerConfig Config() {
  return {.cache = {.groups = {{"full", GroupKind::kFull, 64, 4}}, .page_bytes = 256, .pages = 40},
          .context_tokens_max = 1000,
          .step_tokens_max = 200,
          .running_max = 6,
          .vocabulary = 500};
}

Request Ask(Driver& driver, int32_t new_tokens) {
  Request request;
  request.id = driver.NewRequestId();
  request.prompt.assign(90, 3);
  request.stop.new_tokens_max = new_tokens;
  return request;
}

struct Ended {
  std::vector<Status> followers;
  std::string lost;
  Status run;  // of rank 0
  std::vector<TokenId> tokens;
  std::string error;
  std::vector<Event> reports;               // that came to rank 0
  std::vector<int32_t> submitted = {0, 0};  // as ranks 1 and 2 have seen
  std::vector<int32_t> finished = {0, 0};
};

// A run of three ranks with one request before a pause and one after it. Rank 1 has `config` and
// `model`, and its executor computes a wrong token in step `wrong_at`.
Ended RunThree(const SchedulerConfig& config, int32_t wrong_at, milliseconds deadline,
               milliseconds pause, const std::string& model = "sums, one digest") {
  ThreadGroup group(3, deadline);
  Ended ended;
  ended.followers.resize(2);
  std::vector<std::thread> threads;
  for (int32_t rank = 1; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Sums executor(rank == 1 ? wrong_at : -1);
      const LogStart own{.config = rank == 1 ? config : Config(),
                         .model = rank == 1 ? model : "sums, one digest"};
      Inbox reports;
      reports.Post(PagesMoved{.move = MoveId(rank), .error = {}, .lost = {rank}, .logprob = {}});
      const auto at = static_cast<size_t>(rank - 1);
      const auto count = [&](const Event& e) {
        ended.submitted[at] += std::holds_alternative<Submit>(e);
      };
      const auto said = [&] { return reports.Take(); };
      const auto end = [&](RequestId) { ++ended.finished[at]; };
      ended.followers[at] = FollowRun(group.rank(rank), own, executor,
                                      {.reports = said, .watch = count, .ended = end});
    });
  }
  {
    Sums executor;
    Inbox reports;
    RankLeader leader(
        group.rank(0), {.config = Config(), .model = "sums, one digest"},
        [&](const Error& error) { ended.lost = error.message; }, &reports);
    LeadingExecutor leading(executor, leader);
    Driver driver(*Scheduler::Create(Config()), leading, {.followers = &leader});
    std::thread engine([&] { ended.run = driver.Run(); });
    for (int i = 0; i < 2; ++i) {
      Collector sink;
      if (!driver.Submit(Ask(driver, 30), &sink)) break;
      sink.Wait();
      ended.error = sink.error;
      ended.tokens.insert(ended.tokens.end(), sink.tokens.begin(), sink.tokens.end());
      std::this_thread::sleep_for(pause);
    }
    driver.Stop(false);
    engine.join();
    ended.reports = reports.Take();
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

TEST(LockStep, RanksFollowToTheEndAndAnIdleGroupStaysTogether) {
  const Ended ended = RunThree(Config(), -1, milliseconds(2000), milliseconds(3000));
  for (const Status& status : ended.followers) EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(ended.lost, "");
  EXPECT_TRUE(ended.run);
  EXPECT_EQ(ended.tokens.size(), 60u);
}

TEST(LockStep, OtherRanksReportToTheFirstAndSeeItsEvents) {
  const Ended ended = RunThree(Config(), -1, milliseconds(20000), milliseconds(0));
  ASSERT_EQ(ended.reports.size(), 2u);
  for (int32_t rank = 1; rank < 3; ++rank) {
    const auto& moved = std::get<PagesMoved>(ended.reports[static_cast<size_t>(rank - 1)]);
    EXPECT_EQ(moved.move, MoveId(rank));
    EXPECT_THAT(moved.lost, ::testing::ElementsAre(rank));
  }
  EXPECT_THAT(ended.submitted, ::testing::ElementsAre(2, 2));
  EXPECT_THAT(ended.finished, ::testing::ElementsAre(2, 2));
}

TEST(LockStep, ARankWithOtherSettingsIsTold) {
  SchedulerConfig other = Config();
  other.cache.pages = 41;
  const Ended ended = RunThree(other, -1, milliseconds(300), milliseconds(0));
  ASSERT_FALSE(ended.followers[0].ok());
  EXPECT_THAT(ended.followers[0].error().message, HasSubstr("started otherwise than rank 0"));
  EXPECT_THAT(ended.lost, HasSubstr("no word from rank 1"));
  const Ended named = RunThree(Config(), -1, milliseconds(300), milliseconds(0), "sums, another");
  ASSERT_FALSE(named.followers[0].ok());
  EXPECT_THAT(named.followers[0].error().message,
              HasSubstr("it has \"another\", rank 0 has \"one digest\""));
}

TEST(LockStep, ARankThatComputesOtherwiseEndsTheGroup) {
  const Ended ended = RunThree(Config(), 7, milliseconds(300), milliseconds(0));
  ASSERT_FALSE(ended.followers[0].ok());
  EXPECT_THAT(ended.followers[0].error().message, HasSubstr("recorded token"));
  EXPECT_THAT(ended.lost, HasSubstr("the group of ranks has ended: no word from rank 1"));
  ASSERT_FALSE(ended.run);
  EXPECT_EQ(ended.run.error().message, ended.lost);
  EXPECT_EQ(ended.error, ended.lost);
  EXPECT_THAT(ended.followers[1].error().message, HasSubstr("no word from rank 1"));
}

}  // namespace
}  // namespace braid
