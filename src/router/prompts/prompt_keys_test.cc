// Which requests have the same first blocks.
#include "router/prompts/prompt_keys.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

const std::string kLong(2000, 'a');

PromptKeys Chat(std::string_view messages, std::string_view more = "",
                std::string_view tenant = "") {
  return ReadPromptKeys(kChat, fmt::format(R"({{"messages": [{}]{}}})", messages, more),
                        {.tenant = tenant});
}

std::string User(std::string_view text) {
  return fmt::format(R"({{"role": "user", "content": "{}"}})", text);
}

size_t Common(const PromptKeys& a, const PromptKeys& b) {
  size_t same = 0;
  while (same < a.blocks.size() && same < b.blocks.size() && a.blocks[same] == b.blocks[same]) {
    ++same;
  }
  return same;
}

TEST(PromptKeys, TheNextTurnBeginsWithTheBlocksOfTheLast) {
  const PromptKeys first = Chat(User(kLong));
  const PromptKeys next =
      Chat(User(kLong) + R"(, {"role": "assistant", "content": "yes"}, )" + User(kLong));
  EXPECT_EQ(first.blocks.size(), 7u);
  EXPECT_EQ(Common(first, next), 7u);
  EXPECT_GT(next.blocks.size(), 14u);
  EXPECT_NEAR(static_cast<double>(first.tokens), 500, 10);
}

TEST(PromptKeys, ABlockIsAFunctionOfAllBeforeIt) {
  const PromptKeys a = Chat(User("b" + kLong)), b = Chat(User("c" + kLong));
  EXPECT_EQ(Common(a, b), 0u);
  ASSERT_EQ(a.blocks.size(), b.blocks.size());
  EXPECT_NE(a.blocks.back(), b.blocks.back());
}

TEST(PromptKeys, FieldsThatChangeNoPromptChangeNoBlock) {
  const PromptKeys plain = Chat(User(kLong));
  EXPECT_EQ(Common(plain, Chat(User(kLong), R"(, "temperature": 1, "stream": true)")), 7u);
  const std::string parts = fmt::format(
      R"({{"role": "user", "content": [{{"id": "part_1", "type": "text", "cache_control":
          {{"type": "ephemeral", "ttl": "1h"}}, "text": "{}"}}]}})",
      kLong);
  EXPECT_EQ(Common(plain, Chat(parts)), 7u);
}

TEST(PromptKeys, TenantsSaltsAndModelsShareNothing) {
  const PromptKeys plain = Chat(User(kLong));
  EXPECT_EQ(Common(plain, Chat(User(kLong), "", "ann")), 0u);
  EXPECT_EQ(Common(plain, Chat(User(kLong), R"(, "cache_salt": "s")")), 0u);
  EXPECT_EQ(Common(plain, Chat(User(kLong), R"(, "model": "m")")), 0u);
}

TEST(PromptKeys, ABlockOfTokenIdsHas64) {
  std::string ids = "1";
  for (int i = 2; i <= 130; ++i) ids += fmt::format(",{}", i);
  const auto keys = ReadPromptKeys(kCompletions, fmt::format(R"({{"prompt": [{}]}})", ids), {});
  EXPECT_EQ(keys.blocks.size(), 2u);
  EXPECT_EQ(keys.tokens, 130);
  const auto nested = ReadPromptKeys(kCompletions, fmt::format(R"({{"prompt": [[{}]]}})", ids), {});
  EXPECT_EQ(Common(keys, nested), 2u);
}

TEST(PromptKeys, TheHeaderNamesTheSessionBeforeTheBody) {
  const auto read = [](std::string_view body, std::string_view header) {
    return ReadPromptKeys(kChat, body, {.tenant = "ann", .session = header}).session;
  };
  EXPECT_EQ(read(R"({"user": "u"})", ""), SessionKey("ann", "u"));
  EXPECT_EQ(read(R"({"user": "u", "session_id": "s"})", ""), SessionKey("ann", "s"));
  EXPECT_EQ(read(R"({"metadata": {"user_id": "m"}, "user": "u"})", ""), SessionKey("ann", "m"));
  EXPECT_EQ(read(R"({"user": "u"})", "h"), SessionKey("ann", "h"));
  EXPECT_EQ(read("{}", ""), 0u);
  EXPECT_NE(SessionKey("ann", "u"), SessionKey("bob", "u"));
}

TEST(PromptKeys, AResponseNamesWhatItContinues) {
  const auto keys = ReadPromptKeys(
      kResponses, R"({"previous_response_id": "resp_1", "input": "go on", "stream": true})", {});
  EXPECT_EQ(keys.stored_id, "resp_1");
  EXPECT_TRUE(keys.stream);
  const auto items =
      ReadPromptKeys(kResponses, R"({"input": [{"type": "item_reference", "id": "msg_1"}]})", {});
  EXPECT_TRUE(items.names_items);
  const auto names_items = [](const char* body) {
    return ReadPromptKeys(kResponses, body, {}).names_items;
  };
  EXPECT_TRUE(names_items(R"({"input": [{"id": "msg_1"}]})"));
  EXPECT_TRUE(names_items(R"({"input": [{"id": "msg_1", "type": null}]})"));
  EXPECT_FALSE(names_items(R"({"input": [{"id": "msg_1", "role": "user", "content": "x"}]})"));
  EXPECT_FALSE(names_items(R"({"input": [{"id": "msg_1", "type": "message"}]})"));
}

TEST(PromptKeys, ABodyThatIsNotJsonHasNoBlocks) {
  const PromptKeys keys = ReadPromptKeys(kChat, "{\"messages\": [" + kLong, {});
  EXPECT_TRUE(keys.generates);
  EXPECT_TRUE(keys.blocks.empty());
  EXPECT_FALSE(ReadPromptKeys(kTokenize, "{}", {}).generates);
}

}  // namespace
}  // namespace braid
