// Requests that wait for their grammar: listed and ended like all others, and paid for.
#include "server/serving/pending_answer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/test_router.h"

namespace braid {
namespace {

// Runs until it is cancelled.
struct EndlessTrial : GrammarTrial {
  GrammarVerdict Try(GrammarKind, std::string_view, const std::atomic<bool>& cancelled) override {
    begun = true;
    while (!cancelled) std::this_thread::yield();
    return {.status = Error{ErrorCode::kUnavailable, "cancelled"}, .cpu_us = cpu_us};
  }
  std::atomic<bool> begun = false;
  int64_t cpu_us = 0;  // that it has used then
};

constexpr const char* kBody =
    R"({"prompt": [1], "regex": "[ab]+", "max_tokens": 9, "rid": "of-body"})";

std::string Aborting(const std::string& id) { return R"({"rid": ")" + id + R"("})"; }

TEST_F(RouterTest, ARequestThatWaitsForItsGrammarIsEndedByEachOfItsIds) {
  EndlessTrial trial;
  const auto grammars = *GrammarLibrary::Create(tokenizer_, 4066, {.trial = &trial});
  router().SetKeys(kKeys);
  MakeReady(grammars.get());
  for (const std::string by : {"its own", "of-header", "of-body"}) {
    SCOPED_TRACE(by);
    const auto answer = Start("/v1/completions", kBody, "ann", "of-header");
    ASSERT_NE(answer, nullptr);
    EXPECT_FALSE(answer->Settle());
    const std::vector<std::string> ids = IdsSeenBy("ann");
    ASSERT_EQ(ids.size(), 1U);
    EXPECT_TRUE(ids[0].starts_with("cmpl-")) << ids[0];
    EXPECT_TRUE(IdsSeenBy("bob").empty());
    EXPECT_EQ(Post("/abort_request", Aborting("another"), "root").body, R"({"aborted":0})");
    EXPECT_FALSE(answer->Settle());
    const std::string body = Aborting(by == "its own" ? ids[0] : by);
    EXPECT_EQ(Post("/abort_request", body, "root").body, R"({"aborted":1})");
    EXPECT_EQ(Post("/abort_request", body, "root").body, R"({"aborted":0})") << "it is ending";
    const std::optional<ReplyContent> settled = answer->Settle();
    ASSERT_TRUE(settled && std::holds_alternative<HttpResponse>(*settled));
    EXPECT_EQ(std::get<HttpResponse>(*settled).status, 499);
    EXPECT_EQ(CodeOf(std::get<HttpResponse>(*settled)), kAbortedCode);
    EXPECT_TRUE(IdsSeenBy("ann").empty());
  }
  router().StopCompiling();
}

TEST_F(RouterTest, AResponseThatWaitsForItsGrammarCanBeCancelled) {
  EndlessTrial trial;
  const auto grammars = *GrammarLibrary::Create(tokenizer_, 4066, {.trial = &trial});
  router().SetKeys(kKeys);
  MakeReady(grammars.get());
  const auto answer = Start("/v1/responses", R"({"input": "a", "regex": "[ab]+"})", "ann");
  ASSERT_NE(answer, nullptr);
  ASSERT_EQ(IdsSeenBy("ann").size(), 1U);
  const std::string path = "/v1/responses/" + IdsSeenBy("ann")[0];
  EXPECT_NE(Get(path, "ann").body.find(R"("status":"in_progress")"), std::string::npos);
  EXPECT_EQ(Post(path + "/cancel", "", "bob").status, 404);
  EXPECT_FALSE(answer->Settle());
  EXPECT_NE(Post(path + "/cancel", "", "ann").body.find(R"("status":"cancelled")"),
            std::string::npos);
  const std::optional<ReplyContent> settled = answer->Settle();
  ASSERT_TRUE(settled && std::holds_alternative<HttpResponse>(*settled));
  EXPECT_EQ(CodeOf(std::get<HttpResponse>(*settled)), kAbortedCode);
  router().StopCompiling();
}

TEST_F(RouterTest, ARequestKeepsItsIdWhenItsGrammarIsCompiled) {
  const auto grammars = *GrammarLibrary::Create(tokenizer_, 4066);
  router().SetKeys(kKeys);
  MakeReady(grammars.get());
  auto answer = Start("/v1/completions", kBody, "ann");
  ASSERT_NE(answer, nullptr);
  ASSERT_TRUE(answer->Pending());
  const std::vector<std::string> waiting = IdsSeenBy("ann");
  EXPECT_EQ(waiting.size(), 1U);
  std::optional<ReplyContent> settled;
  while (!(settled = answer->Settle())) std::this_thread::yield();
  auto* begun = std::get_if<std::unique_ptr<Answer>>(&*settled);
  ASSERT_NE(begun, nullptr) << std::get<HttpResponse>(*settled).body;
  EXPECT_EQ(IdsSeenBy("ann"), waiting);
  answer.reset();
  EXPECT_EQ(IdsSeenBy("ann"), waiting);
  EXPECT_EQ(Post("/abort_request", Aborting("of-body"), "root").body, R"({"aborted":1})");
  const AnswerStep step = (*begun)->Take();
  ASSERT_TRUE(step.response);
  EXPECT_EQ(CodeOf(*step.response), kAbortedCode);
  begun->reset();
  EXPECT_TRUE(IdsSeenBy("ann").empty());
  router().StopCompiling();
}

TEST_F(RouterTest, ARequestThatIsEndedBeforeItsGrammarIsKnownGetsTheReasonsCode) {
  EndlessTrial trial;
  const auto grammars = *GrammarLibrary::Create(tokenizer_, 4066, {.trial = &trial});
  MakeReady(grammars.get());
  const std::pair<EndReason, const char*> codes[] = {{EndReason::kDrained, "shutting_down"},
                                                     {EndReason::kQueuedTooLong, "queue_timeout"}};
  for (const auto& [reason, code] : codes) {
    const auto answer = Start("/v1/completions", kBody);
    ASSERT_NE(answer, nullptr);
    answer->End(reason);
    const std::optional<ReplyContent> settled = answer->Settle();
    ASSERT_TRUE(settled && std::holds_alternative<HttpResponse>(*settled));
    EXPECT_EQ(std::get<HttpResponse>(*settled).status, 503);
    EXPECT_EQ(CodeOf(std::get<HttpResponse>(*settled)), code);
  }
  router().StopCompiling();
}

TEST_F(RouterTest, AKeyPaysForCompilingAlsoWhenItsClientLeaves) {
  EndlessTrial trial;
  trial.cpu_us = 60'000'000;
  const auto grammars = *GrammarLibrary::Create(tokenizer_, 4066, {.trial = &trial});
  router().SetKeys(kKeys);
  MakeReady(grammars.get());
  const std::string body = R"({"prompt": [1], "regex": "[ab]+"})";
  auto left = Start("/v1/completions", body, "ann");
  while (!trial.begun) std::this_thread::yield();
  left.reset();
  router().StopCompiling();
  EXPECT_EQ(Post("/v1/completions", body, "ann").status, 429);
  EXPECT_NE(Start("/v1/completions", body, "bob"), nullptr);
}

}  // namespace
}  // namespace braid
