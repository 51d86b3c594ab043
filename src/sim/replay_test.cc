// Runs of a real driver with the hash LM, recorded, damaged and repeated.
#include "scheduler/replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/rng.h"
#include "scheduler/driver.h"
#include "sim/hash_executor.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

SchedulerConfig ReplayedConfig() {
  return {
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 4}, {"state", GroupKind::kState, 256, 1}},
                .page_bytes = 256,
                .pages = 40},
      .context_tokens_max = 1000,
      .step_tokens_max = 200,
      .running_max = 6,
      .vocabulary = 500};
}

struct Deaf : OutputSink {
  void OnOutput(Output) override {}
};

class RecordedRun : public ::testing::Test {
 protected:
  RecordedRun()
      : path_(std::filesystem::temp_directory_path() /
              ("braid_replay_test_" + std::to_string(getpid()))) {}
  ~RecordedRun() override { std::filesystem::remove(path_); }

  // Clients on threads of their own, so that no two recordings are alike. A request of no tokens
  // scores its prompt.
  void Record(int32_t overlap_depth, int32_t tokens_least = 0) {
    auto log = EventLogWriter::Create(path_, {.config = ReplayedConfig(), .model = "the hash LM"});
    ASSERT_TRUE(log.ok()) << log.error().message;
    HashExecutor executor(ReplayedConfig().cache, ReplayedConfig().vocabulary);
    Driver driver(*Scheduler::Create(ReplayedConfig()), executor,
                  {.overlap_depth = overlap_depth, .event_log = log->get()});
    Deaf sink;
    std::thread engine([&] { EXPECT_TRUE(driver.Run().ok()); });
    std::vector<std::thread> clients;
    for (uint64_t client = 0; client < 3; ++client) {
      clients.emplace_back([&, client] {
        Rng rng(client);
        for (int i = 0; i < 12; ++i) {
          Request r;
          r.id = driver.NewRequestId();
          const RequestId id = r.id;
          r.prompt.assign(static_cast<size_t>(1 + rng.Below(400)), static_cast<TokenId>(client));
          r.stop.new_tokens_max = std::max(tokens_least, static_cast<int32_t>(rng.Below(60)));
          r.tenant = client == 2 ? "other" : "";
          r.logprobs = static_cast<int32_t>(rng.Below(3)) - 1;
          r.prompt_logprobs = r.stop.new_tokens_max == 0 ? 1 : -1;
          r.sampling.temperature = 0.5f;
          r.sampling.seed = rng.Next();
          EXPECT_TRUE(driver.Submit(std::move(r), &sink).ok());
          if (i % 5 == 4) driver.Abort(id);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    driver.Stop(false);
    engine.join();
  }

  Result<ReplayReport> Repeat(int32_t vocabulary = ReplayedConfig().vocabulary) {
    ASSIGN_OR_RETURN(EventLogReader log, EventLogReader::Open(path_));
    HashExecutor executor(ReplayedConfig().cache, vocabulary);
    return Replay(log, &executor);
  }
  std::string Content() const { return *ReadFile(path_, 1 << 24); }
  std::string ErrorOf(const std::string& content) {
    EXPECT_TRUE(WriteFile(path_, content).ok());
    const auto report = Repeat();
    return report.ok() ? "" : report.error().message;
  }

  const std::string path_;
};

TEST_F(RecordedRun, RepeatsPlanByPlanAndTokenByToken) {
  for (int32_t depth : {0, 1}) {
    Record(depth);
    const auto report = Repeat();
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_EQ(report->requests, 36);
    EXPECT_GT(report->plans, 30);
    EXPECT_GT(report->tokens, 300);
    EXPECT_FALSE(report->truncated);
    auto log = EventLogReader::Open(path_);
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->start().model, "the hash LM");
    const auto plans_only = Replay(*log, nullptr);
    ASSERT_TRUE(plans_only.ok());
    EXPECT_EQ(plans_only->plans, report->plans);
  }
}

TEST_F(RecordedRun, DiffersForAnotherModel) {
  Record(0, 1);  // a prompt that is only scored, were it the first, has no token to differ
  const auto report = Repeat(ReplayedConfig().vocabulary - 1);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("recorded token"));
}

TEST_F(RecordedRun, DiffersWhenAnEventIsMissing) {
  Record(0);
  auto log = EventLogReader::Open(path_);
  ASSERT_TRUE(log.ok());
  const std::string copy = path_ + ".copy";
  {
    auto writer = EventLogWriter::Create(copy, log->start());
    ASSERT_TRUE(writer.ok());
    int aborts = 0;
    while (true) {
      auto record = log->Next();
      ASSERT_TRUE(record.ok());
      if (!record->has_value()) break;
      const Event* event = std::get_if<Event>(&**record);
      if (event == nullptr) continue;
      aborts += std::holds_alternative<Abort>(*event);
      if (!std::holds_alternative<Abort>(*event)) (*writer)->Add(*event, log->at_us());
    }
    EXPECT_GT(aborts, 0);
  }
  auto changed = EventLogReader::Open(copy);
  ASSERT_TRUE(changed.ok());
  const auto report = Replay(*changed, nullptr);
  std::filesystem::remove(copy);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("no run can have written this log"));
}

TEST_F(RecordedRun, CutAnywhereRepeatsUpToThere) {
  Record(0);
  const std::string whole = Content();
  int64_t plans = -1;
  for (size_t size = 200; size < whole.size(); size += 1 + whole.size() / 60) {
    ASSERT_TRUE(WriteFile(path_, whole.substr(0, size)).ok());
    const auto report = Repeat();
    ASSERT_TRUE(report.ok()) << size << ": " << report.error().message;
    EXPECT_GE(report->plans, plans);
    plans = report->plans;
  }
  EXPECT_GT(plans, 0);
}

TEST_F(RecordedRun, DamageIsFoundWhereverItIs) {
  Record(0);
  const std::string whole = Content();
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = whole;
    const auto at = static_cast<size_t>(rng.Below(static_cast<int64_t>(whole.size())));
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << rng.Below(8)));
    ASSERT_TRUE(WriteFile(path_, damaged).ok());
    const auto report = Repeat();
    // A length that grew past the file's end looks like a file that was cut off.
    EXPECT_TRUE(!report.ok() || report->truncated) << "a flipped bit at byte " << at;
  }
}

TEST_F(RecordedRun, WhatIsNoLogIsSaidToBeNone) {
  Record(0);
  const std::string whole = Content();
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("this is no event log"));
  for (const size_t size : {8, 20}) {
    EXPECT_THAT(ErrorOf(whole.substr(0, size)), HasSubstr("ends before its start record does"));
  }
  std::string later = whole;
  for (const int version : {6, 9}) {
    later[8] = static_cast<char>(version);
    EXPECT_THAT(ErrorOf(later),
                HasSubstr(fmt::format("version {}; this program reads version 7", version)));
  }
  std::filesystem::remove(path_);
  const auto missing = EventLogReader::Open(path_);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace braid
