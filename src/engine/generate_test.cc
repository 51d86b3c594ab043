// The assembled engine on braid-tiny: answers, windows of requests, interruptions and refusals.
#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/test_directory.h"
#include "model/writing/convert_panels.h"
#include "model/writing/make_model.h"
#include "scheduler/event_log.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

EngineOptions TinyOptions() {
  EngineOptions options;
  options.model_dir = BRAID_SOURCE_DIR "/models/braid-tiny";
  options.threads = 2;
  options.cache_bytes = 64 << 20;
  options.context_tokens_max = 512;
  options.scheduler.running_max = 8;
  return options;
}

class Generating : public ::testing::Test {
 protected:
  Generating() {
    auto engine = Engine::Load(TinyOptions());
    CHECK(engine, "{}", engine.error().message);
    engine_ = *std::move(engine);
  }

  RenderedPrompt Question(const char* text) const {
    const json::array messages = {{{"role", "user"}, {"content", text}}};
    auto prompt = RenderPrompt(
        *engine_,
        {{"messages", messages}, {"add_generation_prompt", true}, {"enable_thinking", false}});
    CHECK(prompt, "{}", prompt.error().message);
    return *std::move(prompt);
  }
  Request Asking(std::vector<TokenId> prompt, int32_t tokens) const {
    return RequestFor(*engine_, std::move(prompt), {.max_tokens = tokens, .temperature = 0});
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(Generating, AnAnswerIsItsTokensWithoutTheStopToken) {
  std::string pieces;
  auto generated = Generate(*engine_, Asking(Question("How much is 62 + 12?").tokens, 64),
                            {.on_piece = [&](const TextPiece& piece) { pieces += piece.content; }});
  ASSERT_TRUE(generated) << generated.error().message;
  const RequestResult& answer = generated->answer;
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_TRUE(std::ranges::count(engine_->eos_tokens(), answer.tokens.back()));
  std::vector<TokenId> said = answer.tokens;
  said.pop_back();
  EXPECT_EQ(generated->text.content, engine_->tokenizer()->Decode(said, true));
  EXPECT_EQ(pieces, generated->text.content);
  EXPECT_THAT(pieces, HasSubstr("74"));
  EXPECT_EQ(answer.token_us.size(), answer.tokens.size());
  EXPECT_FALSE(generated->interrupted);
  EXPECT_GT(generated->elapsed_us, 0);
}

TEST_F(Generating, ThinkingIsApartWhereTheModelMarksIt) {
  const ReasoningFormat& format = ReasoningOf(*engine_);
  ASSERT_TRUE(format.separates());
  const auto encoded = EncodeText(*engine_, "<think>\n62 + 12 = 74\n</think>\n\n", false);
  ASSERT_TRUE(encoded);
  auto generated = Generate(*engine_, Asking(Question("How much is 62 + 12?").tokens, 4),
                            {.reasoning = &format, .starts_in_reasoning = true});
  ASSERT_TRUE(generated);
  EXPECT_EQ(generated->text.content, "");
  EXPECT_NE(generated->text.reasoning, "");
}

TEST_F(Generating, AnInterruptedAnswerIsAborted) {
  auto generated = Generate(*engine_, Asking(Question("Tell me a long story.").tokens, 400),
                            {.interrupted = [] { return true; }});
  ASSERT_TRUE(generated);
  EXPECT_TRUE(generated->interrupted);
  EXPECT_EQ(generated->answer.finish, FinishReason::kAbort);
  EXPECT_LT(generated->answer.tokens.size(), 400u);
}

TEST_F(Generating, ARequestFitsTheContextAndTakesTheUsersChoices) {
  const auto tokens_of = [&](size_t prompt, std::optional<int32_t> most) {
    return RequestFor(*engine_, std::vector<TokenId>(prompt, 5), {.max_tokens = most})
        .stop.new_tokens_max;
  };
  EXPECT_EQ(tokens_of(10, 100), 100);
  EXPECT_EQ(tokens_of(509, 100), 3);
  EXPECT_EQ(tokens_of(512, 100), 1);
  EXPECT_EQ(tokens_of(600, 100), 1);
  EXPECT_EQ(tokens_of(10, std::nullopt), 502);
  const Request request = RequestFor(
      *engine_, {1}, {.temperature = 0.5, .top_p = 0.25, .min_p = 0.125, .top_k = 7, .seed = 9});
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.seed, 9u);
  EXPECT_EQ(request.stop.stop_tokens, engine_->eos_tokens());
  // The checkpoint's own settings.
  const SamplingParams defaults = RequestFor(*engine_, {1}, {}).sampling;
  EXPECT_EQ(defaults.temperature, 0.7f);
  EXPECT_EQ(defaults.top_p, 0.8f);
  EXPECT_EQ(defaults.top_k, 20);
}

TEST_F(Generating, RequestsGiveTheSameAnswersInEveryWindow) {
  const auto run = [&](size_t window) {
    std::vector<Request> requests;
    for (TokenId i = 0; i < 5; ++i) requests.push_back(Asking({300, 17, 400 + 37 * i}, 6));
    std::vector<std::vector<TokenId>> answers(5);
    std::set<size_t> seen;
    const Status status = RunRequests(engine_->driver(), std::move(requests), window,
                                      [&](size_t index, RequestResult answer) {
                                        EXPECT_TRUE(seen.insert(index).second);
                                        EXPECT_EQ(answer.prompt_tokens, 3);
                                        EXPECT_GE(answer.ttft_ms(), 0);
                                        answers[index] = std::move(answer.tokens);
                                      });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(seen.size(), 5u);
    return answers;
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(3));
  EXPECT_EQ(one, run(99));
  EXPECT_NE(one[0], one[1]);
}

TEST(RunRequests, NeverFillsTheQueueBeyondItsLimit) {
  EngineOptions options = TinyOptions();
  options.scheduler.running_max = 1;
  options.scheduler.waiting_max = 2;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  std::vector<Request> requests(50);
  for (Request& request : requests) {
    request.prompt = {300, 17};
    request.stop.new_tokens_max = 1;
  }
  size_t ended = 0;
  const Status status = RunRequests((*engine)->driver(), std::move(requests), 99,
                                    [&](size_t, RequestResult) { ++ended; });
  EXPECT_TRUE(status) << status.error().message;
  EXPECT_EQ(ended, 50u);
}

TEST_F(Generating, TheFirstRefusedRequestEndsTheRun) {
  std::vector<Request> requests;
  requests.push_back(Asking({300, 301}, 2));
  requests.push_back(Asking(std::vector<TokenId>(600, 5), 2));
  requests.push_back(Asking({300, 302}, 2));
  size_t ended = 0;
  const Status status =
      RunRequests(engine_->driver(), std::move(requests), 1, [&](size_t index, RequestResult) {
        EXPECT_EQ(index, 0u);
        ++ended;
      });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(ended, 1u);
}

TEST_F(Generating, ThePlanIsToldInTextAndAsAnObject) {
  const json::object plan = engine_->PlanObject();
  EXPECT_EQ(plan.at("context_tokens_max"), 512);
  EXPECT_EQ(plan.at("running_max"), 8);
  EXPECT_EQ(plan.at("threads"), 2);
  EXPECT_GT(plan.at("weight_bytes").as_int64(), 20'000'000);
  EXPECT_LE(plan.at("cache_bytes").as_int64(), 64 << 20);
  EXPECT_FALSE(plan.at("capacity").as_array().empty());
  EXPECT_THAT(engine_->PlanText(), HasSubstr("sequences of at most 512 tokens, at most 8 at once"));
  EXPECT_THAT(engine_->PlanText(), HasSubstr("machine: 2 threads"));
  EXPECT_EQ(engine_->weight_formats().layers, ops::WeightFormat::kBF16);
  EXPECT_EQ(engine_->weight_formats().head, ops::WeightFormat::kBF16);
}

TEST(EngineLoad, WeightsRunInTheChosenFormat) {
  EngineOptions options = TinyOptions();
  options.weights = "int8";
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->weight_formats().layers, ops::WeightFormat::kI8);
  EXPECT_EQ((*engine)->weight_formats().head, ops::WeightFormat::kBF16);
}

TEST(EngineLoad, OptionsReachThePlanTheLimitsAndTheTrace) {
  const TestDirectory directory;
  EngineOptions options = TinyOptions();
  options.kv_dtype = "fp32";
  const auto wide = Engine::Load(options);
  options.kv_dtype = "int8";
  options.state_dtype = "int8";
  options.scheduler.chunk_tokens_max = 64;
  options.trace_file = directory.path() + "/trace.json";
  std::vector<std::string> stages;
  {
    const auto narrow = Engine::Load(options, [&](std::string stage) { stages.push_back(stage); });
    ASSERT_TRUE(wide && narrow);
    const auto bytes = [](const auto& engine, const char* of) {
      return engine->PlanObject().at(of).as_int64();
    };
    EXPECT_LT(bytes(*narrow, "kv_bytes_per_token"), bytes(*wide, "kv_bytes_per_token") / 2);
    const int64_t state = bytes(*narrow, "state_bytes_per_sequence");
    EXPECT_LT(state, bytes(*wide, "state_bytes_per_sequence") * 2 / 3);
    EXPECT_THAT((*narrow)->PlanText(), HasSubstr("state i8"));
    EXPECT_EQ((*narrow)->limits().chunk_tokens_max, 64);
    EXPECT_GT((*narrow)->load_seconds(), 0);
    ASSERT_TRUE(Generate(**narrow, RequestFor(**narrow, {300, 17}, {.max_tokens = 2}), {}));
  }
  EXPECT_EQ(stages.front(), "reading config.json");
  EXPECT_EQ(stages.back(), "starting the engine");
  EXPECT_THAT(directory.Read("trace.json"), HasSubstr("\"name\":\"step\""));
}

TEST(EngineLoad, ARecordedRunsArenaTakesThePlaceOfThePlannedOne) {
  const auto first = Engine::Load(TinyOptions());
  ASSERT_TRUE(first);
  EngineOptions again = TinyOptions();
  again.cache_bytes = 0;
  again.context_tokens_max = 0;
  again.recorded = (*first)->limits();
  const auto second = Engine::Load(again);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->limits().cache.pages, (*first)->limits().cache.pages);
  EXPECT_EQ((*second)->PlanObject().at("cache_bytes"), (*first)->PlanObject().at("cache_bytes"));
  EXPECT_EQ((*second)->PlanObject().at("context_tokens_max"), 512);
  again.recorded->vocabulary += 1;
  EXPECT_THAT(Engine::Load(again).error().message,
              HasSubstr("the model differs from the recorded run"));
}

TEST(EngineLoad, AModelWithoutATokenizerTakesIdsOnly) {
  const TestDirectory directory;
  ThreadPool pool(1);
  EngineOptions options = TinyOptions();
  options.model_dir = directory.path() + "/made";
  ASSERT_TRUE(MakeModel(
      {.directory = options.model_dir, .family = "qwen3_5", .shape = {"tiny"}, .progress = {}},
      pool));
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_EQ((*engine)->tokenizer(), nullptr);
  EXPECT_THAT(EncodeText(**engine, "x", false).error().message, HasSubstr("has no tokenizer"));
  EXPECT_THAT(RenderPrompt(**engine, {}).error().message, HasSubstr("has no chat template"));
  auto generated =
      Generate(**engine, RequestFor(**engine, {1, 2, 3}, {.max_tokens = 3, .temperature = 0}), {});
  ASSERT_TRUE(generated);
  EXPECT_EQ(generated->answer.tokens.size(), 3u);
  EXPECT_FALSE(std::ranges::count(generated->answer.tokens, 0) == 3) << "any token may come";
  EXPECT_EQ(generated->text.content, "");
}

// A copy of braid-tiny's files but for those that a test writes itself.
void LinkTiny(const TestDirectory& directory, const std::set<std::string>& others) {
  for (const auto& file :
       std::filesystem::directory_iterator(BRAID_SOURCE_DIR "/models/braid-tiny")) {
    const std::filesystem::path name = file.path().filename();
    if (others.count(name) == 0) {
      std::filesystem::create_symlink(file.path(), std::filesystem::path(directory.path()) / name);
    }
  }
}

TEST(EngineLoad, ACheckpointsOwnSettingsAreTheDefaults) {
  const TestDirectory directory;
  LinkTiny(directory, {"generation_config.json"});
  EngineOptions options = TinyOptions();
  options.model_dir = directory.path();
  const auto defaults = [&](const char* config, const SamplingChoice& choice) {
    directory.Write("generation_config.json", config);
    const auto engine = Engine::Load(options);
    CHECK(engine, "{}", engine.error().message);
    return RequestFor(**engine, {1}, choice).sampling;
  };
  const SamplingParams own = defaults(
      R"({"do_sample": true, "temperature": 0.5, "top_p": 0.75, "min_p": 0.25, "top_k": 9,
          "repetition_penalty": 1.5})",
      {});
  EXPECT_EQ(own.temperature, 0.5f);
  EXPECT_EQ(own.top_p, 0.75f);
  EXPECT_EQ(own.min_p, 0.25f);
  EXPECT_EQ(own.top_k, 9);
  EXPECT_EQ(own.repetition_penalty, 1.5f);
  // Without sampling the others do not count, whatever they say.
  const char* greedy = R"({"do_sample": false, "temperature": 0.5, "top_p": 0.75, "top_k": 9})";
  const SamplingParams none = defaults(greedy, {});
  EXPECT_EQ(none.temperature, 0.0f);
  const SamplingParams asked = defaults(greedy, {.temperature = 2.0});
  EXPECT_EQ(asked.temperature, 2.0f);
  EXPECT_EQ(asked.top_p, 1.0f);
  EXPECT_EQ(asked.top_k, 0);
  const SamplingParams silent = defaults("{}", {});
  EXPECT_EQ(silent.temperature, 1.0f);
  EXPECT_EQ(silent.top_p, 1.0f);
  EXPECT_EQ(silent.min_p, 0.0f);
  EXPECT_EQ(silent.top_k, 0);
  EXPECT_EQ(silent.repetition_penalty, 1.0f);
}

// An id that the model cannot give ends no answer.
TEST(EngineLoad, EndsOfAnswersAreTokensOfTheModel) {
  const TestDirectory directory;
  LinkTiny(directory, {"generation_config.json"});
  directory.Write("generation_config.json", R"({"eos_token_id": [4066, 99999]})");
  EngineOptions options = TinyOptions();
  options.model_dir = directory.path();
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  const std::vector<TokenId>& eos = (*engine)->eos_tokens();
  EXPECT_TRUE(std::ranges::count(eos, 4066));
  EXPECT_FALSE(std::ranges::count(eos, 99999));
}

TEST(EngineLoad, RanksOfThisProcessAnswerAsOneDoes) {
  const auto answer = [](EngineOptions options, const char* said) {
    const auto engine = Engine::Load(options);
    CHECK(engine, "{}", engine.error().message);
    EXPECT_THAT((*engine)->PlanText(), HasSubstr(said));
    const json::object plan = (*engine)->PlanObject();
    EXPECT_EQ(plan.at("dp"), options.mesh.dp);
    EXPECT_EQ(plan.at("tp"), options.mesh.tp);
    EXPECT_EQ(plan.at("ep"), options.mesh.ep);
    EXPECT_EQ((*engine)->limits().dp_ranks, options.mesh.dp);
    EXPECT_EQ((*engine)->rank_counts() == nullptr, options.mesh.ranks() == 1);
    EXPECT_EQ((*engine)->mover() == nullptr, !options.balance_experts);
    EXPECT_TRUE((*engine)->group_status().ok());
    auto generated = Generate(
        **engine, RequestFor(**engine, {300, 17, 400}, {.max_tokens = 12, .temperature = 0}), {});
    CHECK(generated, "{}", generated.error().message);
    return generated->answer.tokens;
  };
  EngineOptions options = TinyOptions();
  options.draft = "off";  // a step for each token: enough for a window of counted experts
  const std::vector<TokenId> alone = answer(options, "machine: 2 threads");
  options.mesh = {.dp = 2, .ep = 2};
  options.scheduler.running_max = 2;
  EXPECT_EQ(answer(options, "ranks: dp 2 x tp 1 x ep 2, threads of this process; of each:"), alone);
  options.mesh = {.tp = 2, .ep = 2};
  options.balance_experts = true;
  EXPECT_EQ(answer(options, "ranks: dp 1 x tp 2 x ep 2"), alone);
}

TEST(EngineLoad, APromptOfAPartnerIsAnsweredAsOnesOwn) {
  const auto answer = [](Engine& engine) {
    auto generated = Generate(
        engine,
        RequestFor(engine, std::vector<TokenId>(150, 11), {.max_tokens = 6, .temperature = 0}), {});
    CHECK(generated, "{}", generated.error().message);
    return generated->answer.tokens;
  };
  EngineOptions options = TinyOptions();
  const auto alone = Engine::Load(options);
  ASSERT_TRUE(alone) << alone.error().message;
  options.partners.emplace().side = handoff::Side::kPrefill;
  options.partners->listen = {"127.0.0.1", 0};
  const auto prefill = Engine::Load(options);
  ASSERT_TRUE(prefill) << prefill.error().message;
  options.partners.emplace().prefills = {{"127.0.0.1", (*prefill)->partners()->port()}};
  const auto decode = Engine::Load(options);
  ASSERT_TRUE(decode) << decode.error().message;
  EXPECT_TRUE((*decode)->limits().handoff);
  const auto stats = [&] { return (*decode)->partners()->stats(); };
  const auto until = [](auto holds) {
    for (int i = 0; i < 6000 && !holds(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return holds();
  };
  ASSERT_TRUE(until([&] { return stats().partners == 1; }));
  EXPECT_EQ(answer(**decode), answer(**alone));
  EXPECT_TRUE(until([&] { return stats().done == 1; })) << "the other engine has computed it";
  EXPECT_GT(stats().bytes, 0);
}

// The expanded form needs keys of every head, which a mapped checkpoint does not have.
TEST(EngineLoad, TheExpandedFormIsOfCheckpointsThatAreNotMapped) {
  const TestDirectory directory;
  ThreadPool pool(1);
  EngineOptions options = TinyOptions();
  options.mla = "expanded";
  options.model_dir = directory.path() + "/made";
  ASSERT_TRUE(MakeModel(
      {.directory = options.model_dir, .family = "deepseek_v3", .shape = {"tiny"}, .progress = {}},
      pool));
  {
    const auto engine = Engine::Load(options);
    ASSERT_TRUE(engine) << engine.error().message;
    EXPECT_THAT((*engine)->PlanText(), HasSubstr("mla expanded"));
    EXPECT_EQ((*engine)->PlanObject().at("mla"), "expanded");
  }
  const std::string mapped = directory.path() + "/mapped";
  ASSERT_TRUE(ConvertToPanels(
      {.from = options.model_dir, .to = mapped, .choice = {}, .progress = {}}, pool));
  options.model_dir = mapped;
  EXPECT_THAT(Engine::Load(options).error().message,
              HasSubstr("a mapped checkpoint has no keys for --mla expanded"));
  options.mla = "absorbed";
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_GT((*engine)->PlanObject().at("mapped_weight_bytes").as_int64(), 0);
}

TEST(EngineLoad, WhatDraftsTakeIsPlannedAndTold) {
  EngineOptions options = TinyOptions();
  const auto plan = [&](const char* draft) {
    options.draft = draft;
    const auto engine = Engine::Load(options);
    CHECK(engine, "{}", engine.error().message);
    const json::object object = (*engine)->PlanObject();
    const bool told = (*engine)->PlanText().find("drafts: ") != std::string::npos;
    EXPECT_EQ(told, object.at("draft_tokens_max") != 0);
    return object;
  };
  const json::object off = plan("off"), three = plan("3");
  EXPECT_EQ(off.at("draft_tokens_max"), 0);
  EXPECT_EQ(off.at("draft_bytes"), 0);
  EXPECT_EQ(three.at("draft_tokens_max"), 3);
  EXPECT_EQ(three.at("draft_adapt"), false);
  EXPECT_GT(three.at("draft_bytes").as_int64(), 0);
  // What drafts take beside the cache counts as workspace, and a sequence keeps states for them.
  EXPECT_GE(three.at("workspace_bytes").as_int64(),
            off.at("workspace_bytes").as_int64() + three.at("draft_bytes").as_int64());
  EXPECT_GT(three.at("state_bytes_per_sequence").as_int64(),
            off.at("state_bytes_per_sequence").as_int64());
  // Lookups take nothing else.
  const json::object ngram = plan("ngram");
  EXPECT_EQ(ngram.at("workspace_bytes").as_int64(),
            off.at("workspace_bytes").as_int64() + ngram.at("draft_bytes").as_int64());
  options.draft = "many";
  EXPECT_EQ(Engine::Load(options).error().field, "draft");
}

TEST(EngineLoad, WeightsWorkspaceAndCacheFillTheMemoryThatIsGiven) {
  EngineOptions options = TinyOptions();
  options.cache_bytes = 0;
  options.memory_bytes = 256 << 20;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  const json::object plan = (*engine)->PlanObject();
  int64_t sum = 0;
  for (const char* part : {"weight_bytes", "workspace_bytes", "cache_bytes"}) {
    sum += plan.at(part).as_int64();
  }
  EXPECT_LE(sum, options.memory_bytes);
  EXPECT_GT(sum, options.memory_bytes / 2);
}

// The tier and the arena are not one memory, and what a tier may have is told with it.
TEST(EngineLoad, ATierBelowTheCacheIsPartOfThePlan) {
  const TestDirectory directory;
  EngineOptions options = TinyOptions();
  options.cache_dir = directory.path() + "/pages";
  options.cache_disk_bytes = int64_t{1} << 30;
  const auto engine = Engine::Load(options);
  ASSERT_TRUE(engine) << engine.error().message;
  EXPECT_TRUE((*engine)->limits().tier);
  const json::object plan = (*engine)->PlanObject();
  EXPECT_EQ(plan.at("cache_disk_bytes"), int64_t{1} << 30);
  EXPECT_EQ(plan.at("cache_dir").as_string(), options.cache_dir);
  EXPECT_GT(plan.at("capacity").as_array()[0].at("stored_conversations").as_int64(), 0);
  EXPECT_THAT((*engine)->PlanText(), HasSubstr("pages on disk: "));
}

TEST(EngineLoad, ARunIsRecordedWithWhatItRanOn) {
  const TestDirectory directory;
  EngineOptions options = TinyOptions();
  options.event_log = directory.path() + "/run.log";
  {
    const auto engine = Engine::Load(options);
    ASSERT_TRUE(engine) << engine.error().message;
    ASSERT_TRUE(Generate(**engine, RequestFor(**engine, {300, 17}, {.max_tokens = 2}), {}));
  }
  const auto log = EventLogReader::Open(options.event_log);
  ASSERT_TRUE(log) << log.error().message;
  EXPECT_THAT(log->start().model, HasSubstr("models/braid-tiny; 2 threads, device cpu"));
  EXPECT_EQ(log->start().config.context_tokens_max, 512);
  options.event_log = "/nowhere/run.log";
  EXPECT_THAT(Engine::Load(options).error().message, HasSubstr("/nowhere/run.log"));
}

TEST(EngineLoad, FailsBeforeItReadsWeights) {
  EngineOptions small = TinyOptions();
  small.cache_bytes = 0;
  small.memory_bytes = 1 << 20;
  EXPECT_THAT(Engine::Load(small).error().message, HasSubstr("is too small"));
  EngineOptions traced = TinyOptions();
  traced.trace_file = "/nowhere/trace.json";
  EXPECT_THAT(Engine::Load(traced).error().message, HasSubstr("/nowhere/trace.json"));
  EngineOptions absent = TinyOptions();
  absent.model_dir = "/nowhere";
  EXPECT_THAT(Engine::Load(absent).error().message, HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace braid
