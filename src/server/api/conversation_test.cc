// Items of other APIs as chat messages, tools and text.
#include "server/api/conversation.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "server/api/limits.h"

namespace braid {
namespace {

json::value Json(std::string_view text) { return *ParseJson(text, "test"); }

TEST(ChatBuilder, ItemsOfOneAssistantTurnBecomeOneMessage) {
  json::array messages;
  std::vector<std::string> paths;
  ChatBuilder chat(&messages, &paths);
  chat.At("input[0]");
  chat.User("q");
  chat.At("input[1]");
  chat.AssistantThought("hm");
  chat.At("input[2]");
  chat.AssistantText("a");
  chat.AssistantText("b");
  chat.AssistantCall("c1", "f", "{}");
  chat.At("input[3]");
  chat.ToolResult("c1", "r");
  chat.AssistantText("done");
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0], Json(R"({"role": "user", "content": "q"})"));
  EXPECT_EQ(messages[1], Json(R"({"role": "assistant", "content": "ab", "reasoning_content": "hm",
      "tool_calls": [{"id": "c1", "type": "function",
                      "function": {"name": "f", "arguments": "{}"}}]})"));
  EXPECT_EQ(messages[2], Json(R"({"role": "tool", "tool_call_id": "c1", "content": "r"})"));
  EXPECT_EQ(messages[3].at("content"), "done");
  EXPECT_EQ(paths, (std::vector<std::string>{"input[0]", "input[1]", "input[3]", "input[3]"}));
}

// The roles and contents after joining, and the paths.
std::string Joined(const std::string& system, std::string_view list) {
  json::array messages = Json(list).as_array();
  std::vector<std::string> paths;
  for (size_t i = 0; i < messages.size(); ++i) paths.push_back(fmt::format("{}", i));
  JoinLeadingSystem(system, "system", &messages, &paths);
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    text += fmt::format("{}:{}@{} ", std::string_view(messages[i].at("role").as_string()),
                        std::string_view(messages[i].at("content").as_string()), paths.at(i));
  }
  EXPECT_EQ(messages.size(), paths.size());
  return text;
}

TEST(JoinLeadingSystem, JoinsThoseAtTheBeginningAndLeavesLaterOnes) {
  const std::string user = R"({"role": "user", "content": "u"})";
  const auto instructions = [](std::string_view text) {
    return fmt::format(R"({{"role": "system", "content": "{}"}})", text);
  };
  EXPECT_EQ(Joined("", "[" + user + "]"), "user:u@0 ");
  EXPECT_EQ(Joined("s", "[" + user + "]"), "system:s@system user:u@0 ");
  EXPECT_EQ(Joined("", "[" + instructions("a") + "," + user + "]"), "system:a@0 user:u@1 ");
  EXPECT_EQ(Joined("", "[" + instructions("a") + "," + instructions("b") + "," + user + "]"),
            "system:a\n\nb@0 user:u@2 ");
  EXPECT_EQ(Joined("s", "[" + instructions("a") + "," + user + "," + instructions("b") + "]"),
            "system:s\n\na@0 user:u@1 system:b@2 ");
  EXPECT_EQ(Joined("s", "[" + instructions("") + "," + user + "]"), "system:s@0 user:u@1 ");
}

TEST(ChatTools, KeepsTheToolsOfTheClientWithTheirSchema) {
  const auto has_name = [](const json::object& tool) { return tool.contains("name"); };
  const auto tools = ChatTools(
      Json(R"([{"name": "f", "description": null, "schema": {"type": "object"}, "strict": true},
               {"type": "web_search"}])"),
      "tools", "schema", has_name);
  ASSERT_TRUE(tools);
  ASSERT_EQ(tools->size(), 1U);
  EXPECT_EQ((*tools)[0], Json(R"({"type": "function", "function":
      {"name": "f", "strict": true, "parameters": {"type": "object"}}})"));
  EXPECT_EQ(ChatTools(Json("{}"), "tools", "schema", has_name).error().param, "tools");
  EXPECT_EQ(ChatTools(Json(R"([{"name": "f"}, 1])"), "tools", "schema", has_name).error().param,
            "tools[1]");
}

TEST(TextOfParts, JoinsTextAndNamesOtherParts) {
  const auto text = [](std::string_view content) {
    return TextOfParts(Json(content), "text input_text", "p");
  };
  EXPECT_EQ(*text(R"("a")"), "a");
  EXPECT_EQ(*text("null"), "");
  EXPECT_EQ(*text("[]"), "");
  EXPECT_EQ(*text(R"([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}])"), "ab");
  EXPECT_EQ(text("1").error().param, "p");
  EXPECT_EQ(text(R"([{"type": "text", "text": "a"}, {"type": "image"}])").error().param, "p[1]");
  EXPECT_EQ(text(R"([{"type": "image"}])").error().code, "unsupported_parameter");
  EXPECT_EQ(text(R"([{"type": "input"}])").error().code, "unsupported_parameter")
      << "a part of a known name";
  EXPECT_EQ(text(R"([{"type": "text"}])").error().param, "p[0]");
  EXPECT_EQ(text(R"([{"text": "a"}])").error().param, "p[0]");
  EXPECT_EQ(text(R"(["a"])").error().param, "p[0]");
}

TEST(TextOfParts, TakesPartsUpToTheLimit) {
  const auto parts = [](size_t count) {
    return json::value(json::array(count, json::object{{"type", "text"}, {"text", "a"}}));
  };
  EXPECT_EQ(TextOfParts(parts(limits::kPartsMax), "text", "p")->size(), limits::kPartsMax);
  EXPECT_EQ(TextOfParts(parts(limits::kPartsMax + 1), "text", "p").error().param, "p");
}

}  // namespace
}  // namespace braid
