// What a request refers to in the store is prepared within the server's memory.
#include "server/dialects/responses_input.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(ResponsesInput, StoredItemsTakeMemoryBeforeTheyAreCopiedAndAsLongAsTheRequestLives) {
  ResponseStore store({.bytes = 1 << 20, .responses = 10});
  const std::string text = fmt::format(
      R"({{"id":"m1","type":"message","role":"user","content":"{}"}})", std::string(500, 'a'));
  ASSERT_TRUE(store.Begin("", "resp_1", R"({"a":1})", {{.id = "m1", .text = text}}));
  ASSERT_TRUE(store.Finish("", "resp_1", R"({"a":1})", {}));
  const int64_t bytes = std::ssize(text) * limits::kPrepareTimesBody;
  MemoryBudget memory({.server_bytes = bytes});
  const RequestLimits limits{
      .vocabulary = 100, .responses = {.store = &store, .bytes_max = 1000, .memory = &memory}};
  for (const char* body : {R"({"previous_response_id": "resp_1", "input": "b"})",
                           R"({"input": [{"type": "item_reference", "id": "m1"}]})"}) {
    {
      const auto request = ParseApiRequest(kResponses, body, limits);
      ASSERT_TRUE(request) << request.error().message;
      EXPECT_EQ(memory.stats().used_bytes, bytes);
      const auto refused = ParseApiRequest(kResponses, body, limits);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().status, 503);
      EXPECT_EQ(refused.error().code, "overloaded");
    }
    EXPECT_EQ(memory.stats().used_bytes, 0);
    EXPECT_TRUE(ParseApiRequest(kResponses, body, limits));
  }
}

}  // namespace
}  // namespace braid
