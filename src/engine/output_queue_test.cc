// Outputs of requests in their order, and what they are together.
#include "engine/output_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace braid {
namespace {

using ::testing::ElementsAre;

Output OutputOf(int64_t id, std::vector<TokenId> tokens) {
  return {.id = RequestId(id), .tokens = std::move(tokens)};
}

TEST(OutputQueue, GivesOutputsInOrderWithTheirTimes) {
  OutputQueue queue;
  EXPECT_FALSE(queue.NextWithin(0)) << "nothing is there";
  const int64_t before_us = MonotonicUs();
  queue.OnOutput(OutputOf(1, {5}));
  queue.OnOutput(OutputOf(2, {6}));
  const int64_t after_us = MonotonicUs();
  const std::optional<TimedOutput> first = queue.NextWithin(0);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->output.id, RequestId(1));
  EXPECT_GE(first->at_us, before_us);
  EXPECT_LE(first->at_us, after_us);
  EXPECT_EQ(queue.Next().output.id, RequestId(2));
  EXPECT_FALSE(queue.NextWithin(1)) << "each is given once";
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    queue.OnOutput(OutputOf(3, {}));
    queue.OnOutput(OutputOf(4, {}));
  });
  EXPECT_EQ(queue.Next().output.id, RequestId(3));
  EXPECT_TRUE(queue.NextWithin(60'000));
  late.join();
}

TEST(RequestResult, IsTheSumOfItsOutputs) {
  RequestResult result;
  result.submitted_us = 1000;
  EXPECT_EQ(result.finish, FinishReason::kAbort);
  Output first = OutputOf(1, {5, 6});
  first.logprobs = {{.token = 5}, {.token = 6}};
  first.prompt_logprobs = {{.token = 1}};
  first.prompt_tokens = 7;
  first.cached_tokens = 3;
  result.Add({first, 3500});
  EXPECT_EQ(result.finish, FinishReason::kAbort) << "it goes on";
  Output second = first;
  second.tokens = {8};
  second.logprobs = {{.token = 8}};
  second.prompt_logprobs = {{.token = 2}};
  second.finish = FinishReason::kError;
  second.error = "why";
  result.Add({second, 4000});
  EXPECT_THAT(result.tokens, ElementsAre(5, 6, 8));
  EXPECT_THAT(result.token_us, ElementsAre(3500, 3500, 4000));
  ASSERT_EQ(result.logprobs.size(), 3u);
  EXPECT_EQ(result.logprobs[2].token, 8);
  ASSERT_EQ(result.prompt_logprobs.size(), 2u);
  EXPECT_EQ(result.prompt_logprobs[1].token, 2);
  EXPECT_EQ(result.finish, FinishReason::kError);
  EXPECT_EQ(result.error, "why");
  EXPECT_EQ(result.prompt_tokens, 7);
  EXPECT_EQ(result.cached_tokens, 3);
  EXPECT_DOUBLE_EQ(result.ttft_ms(), 2.5);
}

}  // namespace
}  // namespace braid
