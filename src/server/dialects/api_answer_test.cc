// Answers with many log-probabilities: the memory that is held for them, and what happens where
// there is too little. A real driver, and an executor that describes every prompt.
#include "server/dialects/api_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/check.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

struct DescribingExecutor final : Executor {
  void Launch(Plan plan, EventSink& events) override {
    StepDone done{.step = plan.step};
    for (const Row& row : plan.rows) {
      done.rows.push_back({.request = row.request, .token = row.sample ? 7 : TokenId{-1}});
      if (row.prompt_logprobs) {
        done.rows.back().prompt_logprobs.resize(static_cast<size_t>(row.token_count));
      }
    }
    events.Post(std::move(done));
  }
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

  std::unique_ptr<ApiAnswer> Start(size_t prompt_tokens, bool stream, MemoryBudget& budget) {
    service_.memory = &budget;
    GenerationPlan plan;
    plan.choices.emplace_back();
    plan.choices[0].request.prompt.assign(prompt_tokens, 1);
    plan.choices[0].request.stop.new_tokens_max = 1;
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

TEST_F(ApiAnswerTest, WithoutMemoryForTheirJsonAnAnswerEndsWithAnError) {
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
}

}  // namespace
}  // namespace braid
