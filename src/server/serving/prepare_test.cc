// From parsed requests to the engine's: defaults, seeds, limits that need token counts.
#include "server/serving/prepare.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "server/api/limits.h"

namespace braid {
namespace {

// Plans are made, never run.
struct NoExecutor : Executor {
  void Launch(Plan, EventSink&) override {}
};

Scheduler SchedulerOfTexts() {
  SchedulerConfig config{.context_tokens_max = 100, .vocabulary = 4073};
  config.cache = {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64}},
                  .page_bytes = 64,
                  .pages = 100};
  return *Scheduler::Create(config);
}

class PrepareTest : public testing::Test {
 protected:
  PrepareTest()
      : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        chat_(*ChatTemplate::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        grammars_(*GrammarLibrary::Create(tokenizer_, 4066)),
        driver_(SchedulerOfTexts(), executor_, {}),
        service_(config_,
                 {.driver = driver_,
                  .tokenizer = &tokenizer_,
                  .chat = &chat_,
                  .grammars = grammars_.get(),
                  .card = {.name = "m",
                           .context_tokens_max = 100,
                           .vocabulary = 4073,
                           .eos_tokens = {4064, 4066}}},
                 1) {}

  Result<GenerationPlan, ApiError> Plan(Endpoint endpoint, const std::string& body,
                                        std::string_view tenant = "ann") {
    ASSIGN_OR_RETURN(auto parsed, ParseApiRequest(endpoint, body, service_.limits()));
    return PlanGeneration(service_, std::move(parsed), tenant);
  }
  Request First(Endpoint endpoint, const std::string& body) {
    auto plan = Plan(endpoint, body);
    EXPECT_TRUE(plan) << body;
    return plan->choices.at(0).request;
  }
  ApiError Error(Endpoint endpoint, const std::string& body) {
    auto plan = Plan(endpoint, body);
    EXPECT_FALSE(plan) << body;
    return plan.error();
  }

  ServerConfig config_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  std::unique_ptr<GrammarLibrary> grammars_;
  NoExecutor executor_;
  Driver driver_;
  Service service_;
};

// Nobody else can find it.
TEST_F(PrepareTest, AGrammarIsItsTenants) {
  const Request request = First(kCompletions, R"({"prompt": "a", "regex": "[ab]+"})");
  EXPECT_EQ(request.tenant, "ann");
  EXPECT_EQ(request.grammar, GrammarText(GrammarKind::kRegex, "[ab]+", "ann"));
  EXPECT_TRUE(grammars_->Check(request.grammar).status);
  EXPECT_FALSE(grammars_->Known(GrammarText(GrammarKind::kRegex, "[ab]+", "ben")));
}

TEST_F(PrepareTest, LongTextsAreRememberedByTenantAndSalt) {
  service_.context.card.context_tokens_max = 1 << 20;
  std::string text;
  for (int i = 0; i < 4000; ++i) text += fmt::format("{} ", i);
  const auto found = [&](std::string_view tenant, std::string_view salt) {
    const uint64_t before = tokenizer_.long_texts().found;
    const std::string body =
        fmt::format(R"({{"prompt": "{}", "cache_salt": "{}", "max_tokens": 1}})", text, salt);
    EXPECT_TRUE(Plan(kCompletions, body, tenant));
    return tokenizer_.long_texts().found > before;
  };
  EXPECT_FALSE(found("ann", "s"));
  EXPECT_TRUE(found("ann", "s"));
  EXPECT_FALSE(found("ben", "s"));
  EXPECT_FALSE(found("ann", "t"));
}

TEST_F(PrepareTest, AbsentSamplingFieldsTakeTheModelsDefaultsThenNeutralValues) {
  service_.context.card.defaults = {.temperature = 0.7, .top_p = 0.8, .top_k = 20};
  SamplingParams sampling = First(kCompletions, R"({"prompt": "a"})").sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.7f);
  EXPECT_EQ(sampling.top_k, 20);
  EXPECT_EQ(sampling.repetition_penalty, 1.0f);
  sampling = First(kCompletions, R"({"prompt": "a", "temperature": 0, "top_k": -1})").sampling;
  EXPECT_EQ(sampling.temperature, 0.0f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.8f);

  service_.context.card.defaults.do_sample = false;
  sampling = First(kCompletions, R"({"prompt": "a"})").sampling;
  EXPECT_EQ(sampling.temperature, 0.0f);
  EXPECT_EQ(sampling.top_p, 1.0f) << "greedy: the other defaults do not apply";
  sampling = First(kCompletions, R"({"prompt": "a", "temperature": 0.5})").sampling;
  EXPECT_EQ(sampling.temperature, 0.5f);
}

TEST_F(PrepareTest, NumbersNextToZeroBecomeOnesThatTheSchedulerTakes) {
  for (const char* least : {"1e-40", "1e-46", "1e-300"}) {
    const std::string body = fmt::format(
        R"({{"prompt": "a", "temperature": {0}, "top_p": {0}, "repetition_penalty": {0}}})", least);
    const Request request = First(kCompletions, body);
    const Status status = driver_.scheduler().Admissible(request);
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(request.sampling.temperature, 0.0f);
    EXPECT_GT(request.sampling.top_p, 0.0f);
    EXPECT_GT(request.sampling.repetition_penalty, 0.0f);
  }
}

TEST_F(PrepareTest, WhatIsAskedOfSamplingReachesTheEngine) {
  const Request request = First(kCompletions, R"({"prompt": "a", "temperature": 0.5, "top_k": 3,
      "top_p": 0.75, "min_p": 0.25, "repetition_penalty": 1.5, "presence_penalty": 0.5,
      "frequency_penalty": -0.5, "seed": 9, "logit_bias": {"70": -1, "7": 2.5}, "min_tokens": 4,
      "max_tokens": 8, "cache_salt": "s", "draft_tokens": 1})");
  EXPECT_EQ(request.sampling, (SamplingParams{.temperature = 0.5f,
                                              .top_k = 3,
                                              .top_p = 0.75f,
                                              .min_p = 0.25f,
                                              .repetition_penalty = 1.5f,
                                              .presence_penalty = 0.5f,
                                              .frequency_penalty = -0.5f,
                                              .seed = 9,
                                              .logit_bias = {{7, 2.5f}, {70, -1.0f}}}));
  EXPECT_EQ(request.stop.new_tokens_min, 4);
  EXPECT_EQ(Plan(kCompletions, R"({"prompt": "a", "min_tokens": 4})")->text.min_tokens, 4);
  EXPECT_EQ(request.stop.new_tokens_max, 8);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.draft_tokens, 1);
  EXPECT_EQ(request.thinking, ThinkingLimit{});
}

TEST_F(PrepareTest, AThinkingBudgetReachesTheEngine) {
  const Request request = First(kChat, R"({"messages": [{"role": "user", "content": "a"}],
      "thinking_budget": 12})");
  EXPECT_EQ(request.thinking.tokens_max, 12);
  EXPECT_EQ(request.thinking.close, *tokenizer_.TokenToId("</think>"));
}

TEST_F(PrepareTest, ChoiceIOfEveryPromptDrawsWithSeedPlusI) {
  auto plan = Plan(kCompletions, R"({"prompt": ["a", "b"], "n": 2, "seed": -1})");
  auto& choices = plan->choices;
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(choices[0].request.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(choices[1].request.sampling.seed, 0u) << "around the corner";
  EXPECT_EQ(choices[2].request.sampling.seed, choices[0].request.sampling.seed);
  EXPECT_EQ(choices[0].request.prompt, choices[1].request.prompt);
  EXPECT_NE(choices[0].request.prompt, choices[2].request.prompt);
}

TEST_F(PrepareTest, NewTokensAreClippedToTheContext) {
  EXPECT_EQ(First(kCompletions, R"({"prompt": [1, 2]})").stop.new_tokens_max, 16);
  EXPECT_EQ(First(kCompletions, R"({"prompt": [1, 2], "max_tokens": 5})").stop.new_tokens_max, 5);
  EXPECT_EQ(First(kCompletions, R"({"prompt": [1, 2], "max_tokens": 999})").stop.new_tokens_max,
            98);
  Request chat = First(kChat, R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(chat.stop.new_tokens_max, 100 - static_cast<int32_t>(chat.prompt.size()));

  service_.context.card.context_tokens_max = 1 << 18;
  EXPECT_EQ(First(kCompletions, R"({"prompt": [1, 2], "max_tokens": 200000})").stop.new_tokens_max,
            200'000);
  EXPECT_EQ(First(kChat, R"({"messages": [{"role": "user", "content": "a"}],
                             "thinking_budget": 200000})")
                .thinking.tokens_max,
            200'000);
}

TEST_F(PrepareTest, StopTokensAreTheModelsAndTheClients) {
  auto stops = [&](const std::string& more) {
    return First(kCompletions, R"({"prompt": "a")" + more + "}").stop.stop_tokens;
  };
  EXPECT_EQ(stops(""), (std::vector<TokenId>{4064, 4066}));
  EXPECT_EQ(stops(R"(, "stop_token_ids": [4066, 7])"), (std::vector<TokenId>{7, 4064, 4066}));
  EXPECT_EQ(stops(R"(, "ignore_eos": true, "stop_token_ids": [7])"), (std::vector<TokenId>{7}));
}

TEST_F(PrepareTest, APromptThatLeavesNoRoomIsRefusedWithTheNumbers) {
  json::array ids(100, json::value(5));
  ApiError error = Error(kCompletions, R"({"prompt": )" + json::serialize(ids) + "}");
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_NE(error.message.find("100 tokens"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("at most 99"), std::string::npos) << error.message;
  ids.pop_back();
  EXPECT_EQ(First(kCompletions, R"({"prompt": )" + json::serialize(ids) + "}").stop.new_tokens_max,
            1);
}

// Each token has itself and its alternatives; the table's limit is eight answers of 4,096 tokens
// with 15.
TEST_F(PrepareTest, MorePromptLogprobsThanARequestMayHaveAreRefusedWithTheNumbers) {
  service_.context.card.context_tokens_max = 8192;
  const auto body = [](size_t tokens) {
    return json::serialize(json::object{
        {"prompt", json::array(tokens, 5)}, {"n", 8}, {"max_tokens", 1}, {"prompt_logprobs", 15}});
  };
  constexpr int64_t kEntries = limits::ValueOf(limits::kFieldLimits, "prompt_logprob_entries");
  ASSERT_EQ(kEntries, 4096 * 16 * 8);
  EXPECT_TRUE(Plan(kCompletions, body(4096)));
  const ApiError refused = Error(kCompletions, body(4097));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.param, "prompt_logprobs");
  EXPECT_NE(refused.message.find("32776 prompt tokens"), std::string::npos) << refused.message;
  EXPECT_NE(refused.message.find("at most 524288 entries"), std::string::npos) << refused.message;
}

TEST_F(PrepareTest, EchoWithLogprobsScoresThePrompt) {
  Request request = First(kCompletions, R"({"prompt": "a", "echo": true, "logprobs": 3})");
  EXPECT_EQ(request.logprobs, 3);
  EXPECT_EQ(request.prompt_logprobs, 3);
  EXPECT_EQ(First(kCompletions, R"({"prompt": "a", "echo": true})").prompt_logprobs, -1);
  EXPECT_EQ(
      First(kCompletions, R"({"prompt": "a", "echo": true, "max_tokens": 0})").prompt_logprobs, 0);
  const std::string message = R"("messages": [{"role": "user", "content": "a"}])";
  EXPECT_EQ(First(kChat, "{" + message + R"(, "logprobs": true})").logprobs, 0);
  EXPECT_EQ(First(kChat, "{" + message + R"(, "logprobs": false})").logprobs, -1);
}

TEST_F(PrepareTest, ThinkingStartsWhereTheTemplateOpensIt) {
  const std::string message = R"("messages": [{"role": "user", "content": "a"}])";
  auto inside = [&](const std::string& more) {
    auto plan = Plan(kChat, "{" + message + more + "}");
    return plan->choices.at(0).starts_in_reasoning;
  };
  EXPECT_TRUE(inside(""));
  EXPECT_FALSE(inside(R"(, "chat_template_kwargs": {"enable_thinking": false})"));
  EXPECT_FALSE(inside(R"(, "reasoning_effort": "none")"));
}

TEST_F(PrepareTest, AContinuedMessageIsInTheThinkingOnlyIfItOpensItAndDoesNotCloseIt) {
  for (const char* format : {"think", "deepseek_r1"}) {
    service_.context.card.reasoning = *FindReasoningFormat(format);
    const auto inside = [&](const std::string& content) {
      auto plan = Plan(kChat, R"({"messages": [{"role": "user", "content": "What is <think>?"},
          {"role": "assistant", "content": ")" +
                                  content + R"("}], "continue_final_message": true})");
      return plan->choices.at(0).starts_in_reasoning;
    };
    EXPECT_FALSE(inside("The answer is")) << format;
    EXPECT_FALSE(inside("It is <think> and")) << format;
    EXPECT_FALSE(inside("<think>\\nSo.\\n</think>\\n\\nThe answer is")) << format;
    EXPECT_FALSE(inside("<think>\\nSo.\\n</think>")) << format;
    EXPECT_TRUE(inside("<think>\\nSo")) << format;
    EXPECT_TRUE(inside("<think>")) << format;
  }
}

TEST_F(PrepareTest, AFinalMessageIsContinuedRightAfterItsContent) {
  Request request = First(kChat, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "The answer is "}], "continue_final_message": true})");
  EXPECT_TRUE(tokenizer_.Decode(request.prompt, false).ends_with("The answer is"));
  request = First(kMessages, R"({"max_tokens": 9, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "The answer is "}]})");
  EXPECT_TRUE(tokenizer_.Decode(request.prompt, false).ends_with("The answer is"));
  EXPECT_EQ(Error(kMessages, R"({"max_tokens": 9, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "a </think> b"}]})")
                .param,
            "messages[1]");
  EXPECT_EQ(Error(kChat, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": ""}], "continue_final_message": true})")
                .param,
            "continue_final_message");
}

TEST_F(PrepareTest, ATemplatesOwnRefusalIsTheClientsError) {
  ApiError error = Error(kChat, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "system", "content": "late"}]})");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "messages[1]");
  EXPECT_NE(error.message.find("Unexpected role"), std::string::npos) << error.message;
}

TEST_F(PrepareTest, AModelWithoutTokenizerTakesIdsOnly) {
  service_.context.tokenizer = nullptr;
  EXPECT_EQ(First(kCompletions, R"({"prompt": [1]})").prompt, (std::vector<TokenId>{1}));
  EXPECT_EQ(Error(kCompletions, R"({"prompt": "a"})").param, "prompt");
  EXPECT_EQ(Error(kCompletions, R"({"prompt": [1], "stop": "x"})").param, "stop");
  EXPECT_EQ(Error(kChat, R"({"messages": [{"role": "user", "content": "a"}]})").param, "messages");
}

}  // namespace
}  // namespace braid
