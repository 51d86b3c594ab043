// A recorded run repeats, and a log that tells of another run is refused.
#include "scheduler/replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "scheduler/planning/plan_hash.h"
#include "scheduler/testing/scheduler_fixture.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

struct Steps final : Executor {
  void Launch(Plan plan, EventSink& events) override { events.Post(ResultOf(plan, token)); }
  TokenId token = 7;
};

// The records of a run, to be changed.
struct Records final : RecordSource {
  const LogStart& start() const override { return start_; }
  Result<std::optional<LogRecord>> Next() override {
    if (at == records.size()) return std::optional<LogRecord>();
    return std::optional<LogRecord>(records[at++]);
  }
  LogStart start_;
  std::vector<LogRecord> records;
  size_t at = 0;
};

class ReplayTest : public SchedulerFixture {
 protected:
  // Two requests; the second one comes during the first and follows its prefix.
  Records Record(int32_t prompt_logprobs = -1) {
    Records out;
    const SchedulerConfig config = BlockConfig();
    out.start_.config = config;
    Use(config);
    next_id_ = 0;
    const auto apply = [&](Event event) {
      out.records.emplace_back(event);
      s_.Apply(event);
      Take();
    };
    Request first = Make(100, 3);
    first.prompt_logprobs = prompt_logprobs;
    apply(Submit{first});
    for (int i = 0; i < 100; ++i) {
      const Plan plan = s_.NextPlan();
      out.records.emplace_back(PlanMark{plan.step, HashPlan(plan)});
      if (plan.empty()) break;
      apply(ResultOf(plan));
      if (i == 0) apply(Submit{Make(150, 2)});
    }
    EXPECT_TRUE(s_.idle());
    return out;
  }
  static Result<ReplayReport> Run(Records records, Executor* executor = nullptr) {
    return Replay(records, executor);
  }
  static std::string ErrorOf(Records records, Executor* executor = nullptr) {
    const auto report = Run(std::move(records), executor);
    return report ? "" : report.error().message;
  }
  template <class F>
  static void OfSteps(Records& records, F change) {
    for (LogRecord& record : records.records) {
      Event* event = std::get_if<Event>(&record);
      StepDone* done = event == nullptr ? nullptr : std::get_if<StepDone>(event);
      if (done != nullptr && change(*done)) return;
    }
  }
};

TEST_F(ReplayTest, ARunRepeatsWithAndWithoutAnExecutor) {
  const Records records = Record();
  Steps steps;
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&steps)}) {
    const auto report = Run(records, executor);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->requests, 2);
    EXPECT_EQ(report->tokens, 5);
    EXPECT_EQ(report->plans, 3);
    EXPECT_EQ(report->events, 2 + 3);
  }
}

TEST_F(ReplayTest, ADifferentTokenIsFoundWhenItIsComputed) {
  const Records records = Record();
  Steps steps;
  steps.token = 8;
  EXPECT_EQ(ErrorOf(records, &steps), "step 0, request 0: recorded token 7, computed token 8");
  EXPECT_EQ(ErrorOf(records), "");
}

TEST_F(ReplayTest, APlanThatDiffersIsFound) {
  Records records = Record();
  std::get<PlanMark>(records.records[1]).hash ^= 1;
  const auto report = Run(records);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kInternal);
  EXPECT_THAT(report.error().message, HasSubstr("plan 0 differs"));
  // An event that the run had and the log has not.
  records = Record();
  records.records.erase(records.records.begin() + 3);  // the second request
  EXPECT_THAT(ErrorOf(records), HasSubstr("differs"));
}

TEST_F(ReplayTest, ALogThatNoRunWroteIsRefused) {
  Records records = Record();
  records.records.insert(records.records.begin(), records.records.front());
  EXPECT_THAT(ErrorOf(records), HasSubstr("request 0 comes twice"));

  records = Record();
  OfSteps(records, [](StepDone& done) { return done.rows.pop_back(), true; });
  EXPECT_THAT(ErrorOf(records), HasSubstr("with 0 rows comes back"));

  records = Record();
  OfSteps(records, [](StepDone& done) { return done.step = StepId(9), true; });
  EXPECT_THAT(ErrorOf(records), HasSubstr("step 9 with 1 rows comes back"));

  for (const TokenId token : {-1, 5000}) {
    records = Record();
    OfSteps(records, [&](StepDone& done) { return done.rows[0].token = token, true; });
    EXPECT_THAT(ErrorOf(records), HasSubstr("row 0 of step 0 is request 0's, with token"));
  }

  records = Record();
  OfSteps(records, [](StepDone& done) { return done.rows[0].request = RequestId(1), true; });
  EXPECT_THAT(ErrorOf(records), HasSubstr("row 0 of step 0 is request 1's"));

  records = Record();
  records.records.insert(records.records.begin() + 1, Event(ResetCache{}));
  EXPECT_THAT(ErrorOf(records), HasSubstr("the cache is reset while requests are alive"));

  records = Record(1);
  EXPECT_EQ(ErrorOf(records), "");
  OfSteps(records, [](StepDone& done) { return done.rows[0].prompt_logprobs.pop_back(), true; });
  EXPECT_THAT(ErrorOf(records),
              HasSubstr("row 0 of step 0 has 99 prompt log-probabilities, not 100"));

  // The step that is in flight still uses the blocks of what was aborted.
  records = Record();
  const LogRecord submit = records.records.front();
  records.records.insert(records.records.begin() + 2, {Event(Abort{RequestId(0)}), submit});
  EXPECT_THAT(ErrorOf(records), HasSubstr("request 0 comes twice"));
}

// The log-probabilities of a prompt whose numbers are not finite are NaN, which equals nothing.
TEST_F(ReplayTest, ARowThatFailsRepeatsWhateverItsNumbersAre) {
  struct Failing final : Executor {
    static StepDone Of(const Plan& plan, const char* why) {
      StepDone done = ResultOf(plan, -1);
      done.rows[0].error = why;
      for (TokenLogprob& entry : done.rows[0].prompt_logprobs) {
        entry.logprob = std::numeric_limits<float>::quiet_NaN();
      }
      return done;
    }
    void Launch(Plan plan, EventSink& events) override { events.Post(Of(plan, error)); }
    const char* error = "not finite";
  };
  Records records;
  records.start_.config = BlockConfig();
  Request request = Make(100, 3);
  request.prompt_logprobs = 1;
  Send(request);
  const Plan plan = s_.NextPlan();
  ASSERT_EQ(plan.rows.size(), 1u);
  ASSERT_TRUE(plan.rows[0].prompt_logprobs);
  records.records = {Event(Submit{request}), PlanMark{plan.step, HashPlan(plan)},
                     Event(Failing::Of(plan, "not finite"))};
  Failing failing;
  EXPECT_EQ(ErrorOf(records, &failing), "");
  failing.error = "";
  EXPECT_THAT(ErrorOf(records, &failing), HasSubstr("recorded \"not finite\", computed \"\""));
}

TEST_F(ReplayTest, TheEndOfEachRequestIsToldOnce) {
  Records records = Record();
  std::vector<int64_t> ended;
  const auto report =
      Replay(records, nullptr, nullptr, [&](RequestId id) { ended.push_back(id.value); });
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(ended, ::testing::UnorderedElementsAre(0, 1));
}

TEST_F(ReplayTest, EventsInAFileHaveTheirTimes) {
  const std::string path = ::testing::TempDir() + "/replay_times_test.log";
  const std::vector<int64_t> times{0, 500, 500, 300, int64_t{1} << 45};  // one may go back
  {
    auto log = EventLogWriter::Create(path, {.config = BlockConfig(), .model = "m"});
    ASSERT_TRUE(log) << log.error().message;
    for (const int64_t at_us : times) {
      (*log)->Add(Tick{at_us}, at_us);
      (*log)->Add(Plan());
    }
  }
  auto reader = EventLogReader::Open(path);
  ASSERT_TRUE(reader) << reader.error().message;
  for (const int64_t at_us : times) {
    const auto event = reader->Next();
    ASSERT_TRUE(event && event->has_value());
    EXPECT_EQ(std::get<Tick>(std::get<Event>(**event)).now_us, at_us);
    EXPECT_EQ(reader->at_us(), at_us);
    const auto plan = reader->Next();
    EXPECT_TRUE(plan && plan->has_value() && std::holds_alternative<PlanMark>(**plan));
  }
  std::string bytes = *ReadFile(path, 1 << 20);
  AppendRecord(TimeMark{-1}, bytes);
  std::ofstream(path) << bytes;
  auto damaged = EventLogReader::Open(path);
  ASSERT_TRUE(damaged) << damaged.error().message;
  for (size_t i = 0; i < 2 * times.size(); ++i) ASSERT_TRUE(damaged->Next().ok());
  const auto below = damaged->Next();
  ASSERT_FALSE(below);
  EXPECT_THAT(below.error().message,
              HasSubstr(fmt::format("the record before byte {} is damaged: its time is below 0",
                                    bytes.size())));
  std::filesystem::remove(path);
}

TEST_F(ReplayTest, AFileOfARunRepeatsItAndTellsACutEnd) {
  const std::string path = ::testing::TempDir() + "/replay_test.log";
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = files();
  const Records records = Record();
  {
    auto log = EventLogWriter::Create(path, records.start_);
    ASSERT_TRUE(log) << log.error().message;
    Use(BlockConfig());
    int64_t at_us = 0;
    for (const LogRecord& record : records.records) {
      if (const Event* event = std::get_if<Event>(&record)) {
        (*log)->Add(*event, at_us += 7);
        s_.Apply(*event);
        Take();
      } else {
        (*log)->Add(s_.NextPlan());
      }
    }
  }
  EXPECT_EQ(files(), before) << "the writer keeps its file open";
  for (const int cut : {0, 3}) {
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - static_cast<size_t>(cut));
    auto reader = EventLogReader::Open(path);
    ASSERT_TRUE(reader) << reader.error().message;
    int told = 0;
    const auto report = Replay(*reader, nullptr, [&](const ReplayReport&) { ++told; });
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->requests, 2);
    EXPECT_EQ(report->truncated, cut > 0);
    EXPECT_EQ(told, std::ssize(records.records) - (cut > 0));
  }
  std::ofstream(path) << "something else";
  const auto other = EventLogReader::Open(path);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("this is no event log"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace braid
