// Runs of a real scheduler, recorded and read as a load: what comes back is what the scheduler
// gave.
#include "cluster/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <map>

#include "base/rng.h"
#include "base/system/file.h"
#include "cluster/cluster.h"
#include "forecast/test_forecast.h"
#include "scheduler/event_log.h"
#include "scheduler/scheduler.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 5000, kSimulated = 1000;

SchedulerConfig Config(int32_t pages = 400) {
  return {
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = pages},
      .context_tokens_max = 2048,
      .step_tokens_max = 512,
      .running_max = 8,
      .vocabulary = kVocabulary,
      .draft_tokens_max = 3};
}

// A request that was made, and all that came of it.
struct Made {
  Request request;
  int64_t at_us = 0;
  std::vector<TokenId> output;
  int32_t cached_tokens = 0;
  bool ended = false;
  // What a cache can hold of it: the last token is not computed.
  std::vector<TokenId> computed() const {
    std::vector<TokenId> tokens = request.prompt;
    if (!output.empty()) tokens.insert(tokens.end(), output.begin(), output.end() - 1);
    return tokens;
  }
};

// A scheduler that is recorded. Steps end when the test says so, with random tokens and drafts.
class Recorder {
 public:
  explicit Recorder(const std::string& path, const SchedulerConfig& config = Config())
      : scheduler_(*Scheduler::Create(config)),
        log_(*EventLogWriter::Create(path, {.config = config, .model = "random"})) {}

  void Apply(Event event) {
    log_->Add(event, now_us);
    scheduler_.Apply(std::move(event));
    for (const Output& output : scheduler_.TakeOutputs()) {
      Made& of = made.at(static_cast<size_t>(output.id.value));
      of.output.insert(of.output.end(), output.tokens.begin(), output.tokens.end());
      of.cached_tokens = output.cached_tokens;
      of.ended = output.finish.has_value();
    }
  }
  void Submit(Request request) {
    request.id = RequestId(std::ssize(made));
    made.push_back({.request = request, .at_us = now_us});
    Apply(braid::Submit{std::move(request)});
  }
  // False: there was nothing to plan.
  bool Plan() {
    braid::Plan plan = scheduler_.NextPlan();
    log_->Add(plan);
    if (plan.empty()) return false;
    running.push_back(std::move(plan));
    return true;
  }
  void EndStep(Rng& rng) {
    const braid::Plan plan = std::move(running.front());
    running.pop_front();
    StepDone done{.step = plan.step};
    for (const Row& row : plan.rows) {
      RowResult& result = done.rows.emplace_back(RowResult{.request = row.request});
      if (row.prompt_logprobs) result.prompt_logprobs.resize(static_cast<size_t>(row.token_count));
      if (!row.sample) continue;
      result.accepted = static_cast<int32_t>(rng.Below(row.drafts + 1));
      result.token = static_cast<TokenId>(rng.Below(kVocabulary));
      for (int64_t n = rng.Below(4); n > 0; --n) {
        result.drafts.push_back(static_cast<TokenId>(rng.Below(kVocabulary)));
      }
      if (rng.Below(150) == 0) result.error = "non-finite logits";
    }
    Apply(std::move(done));
  }
  void Drain(Rng& rng) {
    while ((running.empty() && Plan()) || !running.empty()) EndStep(rng);
    EXPECT_TRUE(scheduler_.idle());
  }
  // The request and its answer, alone.
  const Made& Ask(Request request) {
    now_us += 1'000'000;
    Submit(std::move(request));
    Rng rng(made.size());
    Drain(rng);
    return made.back();
  }
  void Stop() { Apply(StopRequested{}); }
  Status Flush() { return log_->Flush(); }
  int64_t preemptions() const { return scheduler_.stats().preemptions; }

  int64_t now_us = int64_t{1} << 40;
  std::vector<Made> made;
  std::deque<braid::Plan> running;

 private:
  Scheduler scheduler_;
  std::unique_ptr<EventLogWriter> log_;
};

Request Asking(std::vector<TokenId> prompt, int32_t new_tokens_max) {
  Request request;
  request.prompt = std::move(prompt);
  request.stop.new_tokens_max = new_tokens_max;
  return request;
}

std::vector<TokenId> RandomTokens(Rng& rng, int64_t count) {
  std::vector<TokenId> tokens;
  for (; count > 0; --count) tokens.push_back(static_cast<TokenId>(rng.Below(kVocabulary)));
  return tokens;
}

// One that may begin as an earlier one with its answer, or with a part of it.
Request Drawn(Rng& rng, const std::vector<Made>& made) {
  std::vector<TokenId> prompt;
  if (!made.empty() && rng.Below(3) > 0) {
    const Made& earlier = made[static_cast<size_t>(rng.Below(std::ssize(made)))];
    prompt = earlier.computed();
    if (rng.Below(2) > 0) prompt.resize(static_cast<size_t>(1 + rng.Below(std::ssize(prompt))));
    prompt.resize(std::min<size_t>(prompt.size(), 1500));
  }
  const std::vector<TokenId> more = RandomTokens(rng, 1 + rng.Below(200));
  prompt.insert(prompt.end(), more.begin(), more.end());
  Request request = Asking(std::move(prompt), static_cast<int32_t>(rng.Below(120)));
  if (request.stop.new_tokens_max == 0 || rng.Below(10) == 0) request.prompt_logprobs = 0;
  request.tenant = rng.Below(4) == 0 ? "ann" : "";
  request.cache_salt = rng.Below(4) == 0 ? "salt" : "";
  request.priority = static_cast<int32_t>(rng.Below(3)) - 1;
  // A token in two hundred ends the answer.
  for (TokenId t = 0; t < kVocabulary; t += 200) request.stop.stop_tokens.push_back(t);
  request.stop.new_tokens_min = rng.Below(2) == 0 ? 8 : 0;
  return request;
}

int64_t CommonBlocks(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const auto end = a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size()));
  return (std::mismatch(a.begin(), end, b.begin()).first - a.begin()) / kBlockTokens;
}

std::vector<TokenId> ComputedTokens(const ClusterRequest& request) {
  std::vector<TokenId> tokens = PromptTokens(request, kSimulated);
  for (int32_t i = 0; i + 1 < request.answer_tokens(); ++i) {
    tokens.push_back(AnswerToken(request, i, kSimulated));
  }
  return tokens;
}

class Trace : public ::testing::Test {
 protected:
  Trace()
      : path_(std::filesystem::temp_directory_path() /
              ("braid_trace_test_" + std::to_string(getpid()))) {}
  ~Trace() override { std::filesystem::remove(path_); }

  ClusterTrace Read(double seconds = 1e6) {
    auto trace = ReadTrace(path_, seconds);
    EXPECT_TRUE(trace) << trace.error().message;
    return trace ? *std::move(trace) : ClusterTrace();
  }
  std::string ErrorOf() {
    const auto trace = ReadTrace(path_, 1e6);
    return trace ? "" : trace.error().message;
  }
  std::string Content() const { return *ReadFile(path_, size_t{1} << 28); }
  void Write(std::string_view content) { ASSERT_TRUE(WriteFile(path_, content)); }

  const std::string path_;
};

// Random requests come and go, with one step in flight or two.
void RandomRun(Recorder& run, Rng& rng, size_t depth) {
  for (int i = 0; i < 1200; ++i) {
    run.now_us += rng.Below(20'000);
    if (rng.Below(3) == 0) run.Submit(Drawn(rng, run.made));
    if (rng.Below(10) == 0 && !run.made.empty()) {
      run.Apply(Abort{RequestId(rng.Below(std::ssize(run.made)))});
    }
    while (run.running.size() < depth && run.Plan()) continue;
    if (!run.running.empty() && rng.Below(3) > 0) run.EndStep(rng);
  }
}

TEST_F(Trace, RequestsOfARunGetAsManyTokensAsTheyGotAndShareWhatTheyShared) {
  for (const size_t depth : {1, 2}) {
    SCOPED_TRACE(depth);
    Rng rng(depth);
    std::vector<Made> made;
    int64_t preemptions = 0;
    {
      Recorder run(path_, Config(34));
      RandomRun(run, rng, depth);
      run.Apply(StopRequested{.now = depth == 2});
      run.Drain(rng);
      made = run.made;
      preemptions = run.preemptions();
    }
    const ClusterTrace trace = Read();
    EXPECT_FALSE(trace.cut);
    ASSERT_EQ(trace.requests.size(), made.size());
    ASSERT_GT(made.size(), 200U);
    std::vector<std::vector<TokenId>> computed;
    int64_t empty = 0, shared = 0;
    for (size_t i = 0; i < made.size(); ++i) {
      const ClusterRequest& got = trace.requests[i];
      const Request& asked = made[i].request;
      EXPECT_EQ(got.at_us, made[i].at_us - made[0].at_us);
      EXPECT_EQ(got.follows, -1);
      EXPECT_EQ(got.prompt_tokens(), std::ssize(asked.prompt));
      EXPECT_EQ(got.answer_tokens(), std::ssize(made[i].output)) << "request " << i;
      EXPECT_EQ(got.answer_max, asked.stop.new_tokens_max);
      EXPECT_EQ(got.scores_prompt, asked.prompt_logprobs == 0);
      EXPECT_EQ(got.priority, asked.priority);
      EXPECT_EQ(got.tenant, asked.tenant);
      empty += got.answer.empty();
      computed.push_back(ComputedTokens(got));
      for (size_t j = 0; j < i; ++j) {
        const Request& other = made[j].request;
        const bool space = asked.tenant == other.tenant && asked.cache_salt == other.cache_salt;
        const int64_t blocks = space ? CommonBlocks(made[i].computed(), made[j].computed()) : 0;
        ASSERT_EQ(CommonBlocks(computed[i], computed[j]), blocks) << i << " and " << j;
        shared += blocks;
      }
    }
    EXPECT_GT(empty, 3);
    EXPECT_GT(preemptions, 0);
    EXPECT_GT(shared, 100);
  }
}

ClusterReport Simulated(const ClusterTrace& trace, const ClusterOptions& options = {}) {
  ModelSpec model = Dense();
  model.vocabulary = kSimulated;
  auto report = SimulateCluster(model, Machine(), {}, options, trace.requests);
  CHECK(report, "{}", report.error().message);
  return *std::move(report);
}

TEST_F(Trace, ASimulatedEngineReusesWhatTheRealOneReused) {
  std::vector<Made> made;
  {
    Recorder run(path_);
    Rng rng(5);
    const std::vector<TokenId> introduction = RandomTokens(rng, 300);
    run.Ask(Asking(introduction, 100));
    std::vector<TokenId> turn = run.made.back().computed();
    turn.insert(turn.end(), 40, 7);
    run.Ask(Asking(turn, 10));  // the next turn
    Request foreign = Asking(turn, 10);
    foreign.tenant = "ann";
    run.Ask(foreign);
    foreign.cache_salt = "salt";
    run.Ask(foreign);
    run.Ask(foreign);  // what it asked for is there, but for the last tokens
    foreign.prompt_logprobs = 0;
    run.Ask(foreign);
    // Two choices of one prompt: the second waits for the first one's blocks.
    const std::vector<TokenId> both = RandomTokens(rng, 700);
    run.now_us += 1000;
    run.Submit(Asking(both, 5));
    run.Submit(Asking(both, 70));
    run.Drain(rng);
    run.Ask(Asking(run.made.back().computed(), 3));
    // Nothing but the prompt.
    run.Ask(Asking(RandomTokens(rng, 130), 0));
    run.Stop();
    made = run.made;
  }
  const std::vector<int64_t> want{0, 384, 0, 0, 384, 0, 0, 640, 768, 0};
  int64_t prompts = 0, reused = 0, outputs = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i].cached_tokens, want.at(i)) << "request " << i;
    prompts += std::ssize(made[i].request.prompt);
    reused += made[i].cached_tokens;
    outputs += std::ssize(made[i].output);
  }
  for (const int32_t engines : {1, 2}) {  // with two, one computes the prompts of the other
    const ClusterReport report =
        Simulated(Read(), {.engines = engines, .prefill_engines = engines - 1});
    EXPECT_EQ(report.requests, std::ssize(made));
    EXPECT_EQ(report.finished, std::ssize(made));
    EXPECT_EQ(report.input_tokens, prompts);
    EXPECT_EQ(report.output_tokens, outputs);
    if (engines == 1) {
      EXPECT_EQ(report.reused_tokens, reused);
    }
  }
}

TEST_F(Trace, ARunThatWasCutOffIsReadAsFarAsItGoes) {
  Recorder run(path_);
  Rng rng(3);
  run.Submit(Asking(RandomTokens(rng, 100), 50));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(run.Plan());
    run.EndStep(rng);
  }
  ASSERT_TRUE(run.Flush());
  const auto got = static_cast<int32_t>(run.made[0].output.size());
  ASSERT_GE(got, 4);
  EXPECT_TRUE(Read().cut) << "between records";
  EXPECT_EQ(Read().requests.at(0).answer_tokens(), got);
  const std::string whole = Content();
  Write(whole.substr(0, whole.size() - 5));
  EXPECT_TRUE(Read().cut) << "inside the last step";
  EXPECT_LT(Read().requests.at(0).answer_tokens(), got);
  EXPECT_GT(Read().requests.at(0).answer_tokens(), 0);
}

TEST_F(Trace, OnlyClientsRequestsCountAndOnlyThoseThatComeInTime) {
  {
    Recorder run(path_);
    Request own = Asking({0, 0}, 2);
    own.tenant = kOwnTenant;
    run.Ask(own);
    for (int i = 0; i < 3; ++i) run.Ask(Asking({1, 2, 3}, 2));
    run.Stop();
  }
  const ClusterTrace trace = Read();
  ASSERT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.requests[0].at_us, 0) << "the first client's";
  EXPECT_EQ(trace.requests[2].at_us, 2'000'000);
  EXPECT_EQ(Read(2).requests.size(), 2U);
}

TEST_F(Trace, BadLogsAreRefusedWithWhatIsWrong) {
  {
    Recorder run(path_);
    run.Stop();
  }
  EXPECT_THAT(ErrorOf(), HasSubstr(path_ + ": the event log has no request"));
  {
    Recorder run(path_);
    run.Ask(Asking({1, 2, 3}, 2));
  }
  const std::string whole = Content();
  std::string damaged = whole;
  damaged[damaged.size() - 9] ^= 1;
  Write(damaged);
  EXPECT_THAT(ErrorOf(), HasSubstr(fmt::format("{}: the record before byte {} is damaged", path_,
                                               whole.size())));
  std::string old = whole;
  old[8] = 6;
  Write(old);
  EXPECT_THAT(ErrorOf(), HasSubstr("version 6; this program reads version 7"));
  const auto with = [&](const auto&... records) {
    std::string text = whole;
    (AppendRecord(records, text), ...);
    Write(text);
    return ErrorOf();
  };
  Request next = Asking({1}, 5);
  next.id = RequestId(9);
  EXPECT_EQ(with(Event(Submit{next})), "");
  EXPECT_THAT(with(Event(Submit{next}), Event(Submit{next})),
              HasSubstr("no run can have written this log: request 9 comes twice"));
  EXPECT_THAT(with(TimeMark{5}, Event(Submit{next})),
              HasSubstr("request 9 comes before the first one"));
  EXPECT_THAT(with(Event(Submit{{.id = RequestId(8)}})), HasSubstr("request 8 has no prompt"));
  Write("something else");
  EXPECT_THAT(ErrorOf(), HasSubstr("line 1: needs TIMESTAMP"));
  std::filesystem::remove(path_);
  EXPECT_THAT(ErrorOf(), HasSubstr(path_));
}

}  // namespace
}  // namespace braid
