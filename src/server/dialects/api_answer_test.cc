// Answers with many log-probabilities: the memory that is held for them, and what happens where
// there is too little. A real driver, and an executor that describes every prompt.
#include "server/dialects/api_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <latch>
#include <thread>

#include "base/check.h"
#include "base/system/file.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

struct DescribingExecutor final : Executor {
  void Launch(Plan plan, EventSink& events) override {
    StepDone done{.step = plan.step};
    const bool prompts = std::ranges::any_of(plan.rows, &Row::prompt_logprobs);
    if (!prompts) may_decode.wait();
    for (const Row& row : plan.rows) {
      done.rows.push_back({.request = row.request, .token = row.sample ? 7 : TokenId{-1}});
      if (row.prompt_logprobs) {
        done.rows.back().prompt_logprobs.resize(static_cast<size_t>(row.token_count));
      }
    }
    events.Post(std::move(done));
  }
  std::latch may_decode{1};
};

Scheduler SchedulerOfPrompts() {
  SchedulerConfig config{.context_tokens_max = 4096, .vocabulary = 100};
  config.cache = {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64}},
                  .page_bytes = 64,
                  .pages = 100};
  return *Scheduler::Create(config);
}

class ApiAnswerTest : public testing::Test {
 protected:
  ApiAnswerTest()
      : driver_(SchedulerOfPrompts(), executor_, {}),
        service_(config_,
                 {.driver = driver_,
                  .card = {.name = "m", .context_tokens_max = 4096, .vocabulary = 100}},
                 1),
        engine_([this] { EXPECT_TRUE(driver_.Run().ok()); }) {}
  ~ApiAnswerTest() override {
    driver_.Stop(true);
    engine_.join();
  }

  std::unique_ptr<ApiAnswer> Start(size_t prompt_tokens, bool stream, MemoryBudget& budget,
                                   int32_t new_tokens = 1) {
    service_.memory = &budget;
    GenerationPlan plan;
    plan.choices.emplace_back();
    plan.choices[0].request.prompt.assign(prompt_tokens, 1);
    plan.choices[0].request.stop.new_tokens_max = new_tokens;
    plan.choices[0].request.prompt_logprobs = 0;
    auto started = Generation::Start(service_, std::move(plan), {.path = "/v1/completions"}, [] {});
    CHECK(started, "{}", started.error().message);
    return std::make_unique<ApiAnswer>(
        *std::move(started),
        AnswerShape{.endpoint = kCompletions, .stream = stream, .prompt_logprobs = 0});
  }
  // All steps as one; what takes long is done here.
  static AnswerStep TakeAll(ApiAnswer& answer) {
    AnswerStep all;
    while (!all.last) {
      AnswerStep step = answer.Take();
      if (step.work) std::exchange(step.work, nullptr)(step);
      all.events += step.events;
      if (step.response) all.response = std::move(step.response);
      all.last = step.last;
    }
    return all;
  }

  ServerConfig config_;
  DescribingExecutor executor_;
  Driver driver_;
  Service service_;
  std::thread engine_;
};

constexpr size_t kMany = 3000;  // more than are written while others wait
constexpr int64_t kEntryBytes = int64_t{sizeof(TokenLogprob)};

TEST_F(ApiAnswerTest, LogprobsAndTheirJsonAreHeldAndThenOnlyWhatIsToBeSent) {
  for (const bool stream : {false, true}) {
    SCOPED_TRACE(stream);
    MemoryBudget budget({.server_bytes = 1 << 30});
    auto answer = Start(kMany, stream, budget);
    const AnswerStep all = TakeAll(*answer);
    EXPECT_GT(budget.TakePeak(), int64_t{kMany} * (kEntryBytes + 300));
    if (stream) {
      EXPECT_THAT(all.events, HasSubstr("prompt_logprobs"));
      EXPECT_GT(budget.stats().used_bytes, 0) << "the events are not sent yet";
      EXPECT_LE(budget.stats().used_bytes, std::ssize(all.events));
    } else {
      EXPECT_EQ(all.response->status, 200);
      EXPECT_EQ(budget.stats().used_bytes, 0) << "the connection holds the text";
    }
    answer.reset();
    EXPECT_EQ(budget.stats().used_bytes, 0);
  }
}

TEST_F(ApiAnswerTest, EventsThatAreSentHoldNothing) {
  MemoryBudget budget({.server_bytes = 1 << 30});
  const auto answer = Start(kMany, true, budget, 2);
  std::string events;
  for (int quiet = 0; events.empty() || quiet < 20; ++quiet) {
    AnswerStep step = answer->Take();
    if (step.work) std::exchange(step.work, nullptr)(step);
    if (!step.events.empty()) quiet = 0;
    events += step.events;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(events, HasSubstr("prompt_logprobs"));
  EXPECT_EQ(budget.stats().used_bytes, 0) << "the answer goes on, its prompt's text is sent";
  executor_.may_decode.count_down();
  TakeAll(*answer);
}

TEST_F(ApiAnswerTest, FewLogprobsAreMadeWhereRequestsHoldMostOfTheMemory) {
  MemoryBudget budget({.server_bytes = 4 << 20});
  const auto status = [&](int64_t held, size_t prompt_tokens) {
    const auto others = budget.Take(held, 0);
    return TakeAll(*Start(prompt_tokens, false, budget)).response->status;
  };
  EXPECT_EQ(status(0, kMany), 200);
  EXPECT_EQ(status(1 << 20, kMany), 503) << "half is left to requests";
  EXPECT_EQ(status(3 << 20, 100), 200);
}

TEST_F(ApiAnswerTest, WithoutMemoryForTheirJsonAnAnswerEndsWithAnError) {
  const std::string path = testing::TempDir() + "api_answer_test";
  std::filesystem::remove(path);
  auto request_log = *RequestLog::Open(path, false);
  config_.request_log = request_log.get();
  for (const bool stream : {false, true}) {
    SCOPED_TRACE(stream);
    MemoryBudget budget({.server_bytes = 1 << 20});
    auto answer = Start(kMany, stream, budget);
    const AnswerStep all = TakeAll(*answer);
    if (stream) {
      EXPECT_THAT(all.events, HasSubstr("no memory for the answer's log-probabilities"));
      EXPECT_THAT(all.events, Not(HasSubstr("prompt_logprobs")));
    } else {
      ASSERT_TRUE(all.response);
      EXPECT_EQ(all.response->status, 503);
      EXPECT_GT(all.response->retry_after_seconds, 0);
    }
    EXPECT_EQ(budget.stats().shed, 1);
    answer.reset();
    EXPECT_EQ(budget.stats().used_bytes, 0);
    EXPECT_EQ(TakeAll(*Start(100, false, budget)).response->status, 200) << "small ones go on";
  }
  request_log.reset();  // writes what is left
  const std::string log = *ReadFile(path, 1 << 20);
  const auto said = [&](const std::string& status) {
    int lines = 0;
    for (size_t at = 0; (at = log.find(status, at)) != std::string::npos; ++at) ++lines;
    return lines;
  };
  EXPECT_EQ(said("status=503"), 2) << log;
  EXPECT_EQ(said("status=200"), 2) << log;
}

}  // namespace
}  // namespace braid
