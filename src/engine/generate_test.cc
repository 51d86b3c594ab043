// The assembled engine on braid-tiny: answers, windows of requests, interruptions and refusals.
#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/check.h"
#include "base/system/thread_pool.h"
#include "model/checkpoint/test_directory.h"
#include "model/writing/make_model.h"

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
  }
  EXPECT_EQ(stages.front(), "reading config.json");
  EXPECT_EQ(stages.back(), "starting the engine");
  EXPECT_THAT(directory.Read("trace.json"), HasSubstr("traceEvents"));
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
  EXPECT_EQ(generated->text.content, "");
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
