// OpenAI-style messages become what templates expect; errors name the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/chat/chat_template.h"

namespace braid {
namespace {

using testing::HasSubstr;

TEST(MessagesTest, JoinsTextPartsAndParsesArguments) {
  auto messages = NormalizeMessages(json::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2.0]}"}},
      {"id": "2", "function": {"name": "g", "arguments": " "}},
      {"id": "3", "function": {"name": "h", "arguments": {"x": null}}}]}])"));
  ASSERT_TRUE(messages) << messages.error().message;
  EXPECT_EQ(json::serialize(*messages), json::serialize(json::parse(R"([
    {"role": "user", "content": "ab"},
    {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": {"b": 1, "a": [2.0]}}},
      {"id": "2", "function": {"name": "g", "arguments": {}}},
      {"id": "3", "function": {"name": "h", "arguments": {"x": null}}}]}])")));
}

// Some templates ask only whether the field is there.
TEST(MessagesTest, AnEmptyListOfCallsIsNone) {
  for (const char* calls : {"[]", "null"}) {
    auto messages = NormalizeMessages(json::parse(
        std::string(R"([{"role": "assistant", "content": "a", "tool_calls": )") + calls + "}]"));
    ASSERT_TRUE(messages) << messages.error().message;
    EXPECT_EQ(json::value(*messages), json::parse(R"([{"role": "assistant", "content": "a"}])"));
  }
}

TEST(MessagesTest, LeavesArgumentsThatAreNoJsonObjectAsText) {
  for (const char* text : {"{\"city\": \"Par", "[1]", "Paris"}) {
    const json::value sent = json::array{
        json::object{{"role", "assistant"},
                     {"tool_calls",
                      json::array{json::object{{"function", json::object{{"arguments", text}}}}}}}};
    auto messages = NormalizeMessages(sent);
    ASSERT_TRUE(messages) << text;
    EXPECT_EQ(json::value(*messages), sent);
  }
}

// As the model wrote them, and as the client, which may have read them, sends them back.
TEST(MessagesTest, TheLastOfEqualKeysInArgumentsCounts) {
  auto messages = NormalizeMessages(json::parse(R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"a\": 1, \"a\": {\"b\": 2, \"b\": 3}}"}}]}])"));
  ASSERT_TRUE(messages) << messages.error().message;
  EXPECT_EQ(json::value(*messages), json::parse(R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": {"a": {"b": 3}}}}]}])"));
}

TEST(MessagesTest, ErrorsNameTheField) {
  struct Case {
    std::string_view messages;
    std::string_view field;
    std::string_view message;
  };
  const std::vector<Case> cases = {
      {R"({})", "messages", "expected an array of messages"},
      {R"([])", "messages", "at least one message"},
      {R"(["hi"])", "messages[0]", "is a string, expected an object"},
      {R"([{"content": "x"}])", "messages[0].role", "expected a string"},
      {R"([{"role": "user", "content": "x"}, {"role": 3}])", "messages[1].role",
       "expected a string"},
      {R"([{"role": "user", "content": 3}])", "messages[0].content", "a string or a list"},
      {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]", "expected an object"},
      {R"([{"role": "user", "content": [{"type": "image_url"}]}])", "messages[0].content[0].type",
       "\"image_url\", expected \"text\""},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text",
       "expected a string"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls",
       "expected an array"},
      {R"([{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls[0]", "an object"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": 7}}]}])",
       "messages[0].tool_calls[0].function.arguments", "a string that holds a JSON object"},
  };
  for (const Case& c : cases) {
    auto messages = NormalizeMessages(json::parse(c.messages));
    ASSERT_FALSE(messages) << c.messages;
    EXPECT_EQ(messages.error().field, c.field);
    EXPECT_THAT(messages.error().message, HasSubstr(c.message));
    EXPECT_THAT(messages.error().message, HasSubstr(c.field));
  }
}

}  // namespace
}  // namespace braid
