// Completions that echo a long prompt: offsets, and the work for each chunk.
#include "server/dialects/openai_format.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/clock.h"

namespace braid {
namespace {

// Nothing is ever run.
struct NoExecutor : Executor {
  void Launch(Plan, EventSink&) override {}
};

constexpr int32_t kPromptTokens = 50'000;

Scheduler LargeScheduler() {
  SchedulerConfig config{.context_tokens_max = 2 * kPromptTokens, .vocabulary = 4073};
  config.cache = {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64}},
                  .page_bytes = 64,
                  .pages = 2 * kPromptTokens / kBlockTokens};
  return *Scheduler::Create(config);
}

class OpenAiFormatTest : public testing::Test {
 protected:
  OpenAiFormatTest()
      : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        driver_(LargeScheduler(), executor_, {}),
        service_(
            config_,
            {.driver = driver_,
             .tokenizer = &tokenizer_,
             .card = {.name = "m", .context_tokens_max = 2 * kPromptTokens, .vocabulary = 4073}},
            1) {}

  std::unique_ptr<Generation> Start(std::vector<TokenId> prompt) {
    GenerationPlan plan;
    plan.choices.emplace_back();
    plan.choices.back().request.prompt = std::move(prompt);
    plan.choices.back().request.stop.new_tokens_max = 10;
    auto started = Generation::Start(service_, std::move(plan), {.path = "/v1/completions"}, [] {});
    CHECK(started, "{}", started.error().message);
    return *std::move(started);
  }
  // The time of a call.
  template <class Call>
  static int64_t Microseconds(Call call) {
    const int64_t begin_us = MonotonicUs();
    call();
    return MonotonicUs() - begin_us;
  }

  ServerConfig config_;
  Tokenizer tokenizer_;
  NoExecutor executor_;
  Driver driver_;
  Service service_;
};

// The choice in one event.
json::object ChoiceIn(const std::string& event) {
  constexpr std::string_view kStart = "data: ";
  json::value value = *ParseJson(std::string_view(event).substr(kStart.size()), "event");
  return value.at("choices").at(0).as_object();
}

TEST_F(OpenAiFormatTest, OffsetsCountFromThePromptThatIsEchoed) {
  const std::vector<TokenId> prompt = *tokenizer_.Encode("Hello w\u00f6rld", false);
  const auto generation = Start(prompt);
  OpenAiFormat format(*generation,
                      {.endpoint = kCompletions, .stream = true, .echo = true, .logprobs = 0});
  const TokenId token = prompt.front();
  ChoiceDelta first{.logprobs = {{token, -1.0f, {}}}, .text_offsets = {0}, .first = true};
  EXPECT_EQ(ChoiceIn(format.Events(first)).at("text"), "Hello w\u00f6rld");
  ChoiceDelta second{.logprobs = {{token, -1.0f, {}}}, .text_offsets = {5}};
  EXPECT_EQ(ChoiceIn(format.Events(second)).at("logprobs").at("text_offset"), json::array{11 + 5});
}

TEST_F(OpenAiFormatTest, AChunkCostsTheSameBehindALongEcho) {
  const TokenId token = tokenizer_.Encode("Hello", false)->front();
  const auto generation = Start(std::vector<TokenId>(kPromptTokens, token));
  OpenAiFormat format(*generation,
                      {.endpoint = kCompletions, .stream = true, .echo = true, .logprobs = 0});
  ChoiceDelta first{.first = true};
  first.prompt_logprobs.assign(kPromptTokens, {token, -1.0f, {}});
  const int64_t echo_us = Microseconds([&] { format.Events(first); });
  const ChoiceDelta later{.logprobs = {{token, -1.0f, {}}}, .text_offsets = {0}};
  const int64_t chunks_us = Microseconds([&] {
    for (int i = 0; i < 1000; ++i) format.Events(later);
  });
  EXPECT_LT(chunks_us, 2 * echo_us) << "a thousand chunks of one token";
}

}  // namespace
}  // namespace braid
