// Conversations as templates of several kinds take them: those that write every system message,
// that refuse a late one, that leave it out.
#include "server/serving/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;

constexpr const char* kWritesAll =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
constexpr const char* kRefusesLate =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr const char* kLeavesLateOut =
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
    "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
constexpr const char* kWantsObjects =
    "{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}"
    "{% for key, value in c.function.arguments | items %}{{ key }}={{ value }};{% endfor %}"
    "{% endfor %}{% endfor %}";

Result<std::string, ApiError> Render(const char* source, Endpoint endpoint,
                                     const std::string& body) {
  ASSIGN_OR_RETURN(auto request, ParseApiRequest(endpoint, body, {.vocabulary = 100}));
  return RenderChat(*ChatTemplate::FromSource(source, {}), request);
}

std::string Text(const char* source, Endpoint endpoint, const std::string& body) {
  auto text = Render(source, endpoint, body);
  const ApiError* error = text ? nullptr : &text.error();
  EXPECT_EQ(error, nullptr) << error->message;
  return error == nullptr ? *text : "";
}

ApiError Refusal(const char* source, Endpoint endpoint, const std::string& body) {
  auto text = Render(source, endpoint, body);
  EXPECT_FALSE(text) << *text;
  return text ? ApiError{} : text.error();
}

TEST(ChatPrompt, LeadingSystemMessagesOfAnyApiAreJoined) {
  EXPECT_EQ(Text(kRefusesLate, kChat,
                 R"({"messages": [{"role": "system", "content": "a"},
                    {"role": "developer", "content": [{"type": "text", "text": "b"}]},
                    {"role": "system", "content": "c"}, {"role": "user", "content": "d"}]})"),
            "<system>a\n\nb\n\nc<user>d");
  EXPECT_EQ(Text(kRefusesLate, kResponses,
                 R"({"instructions": "a", "input": [{"role": "developer", "content": "b"},
                    {"type": "message", "role": "developer",
                     "content": [{"type": "input_text", "text": "c"}]},
                    {"role": "user", "content": "d"}]})"),
            "<system>a\n\nb\n\nc<user>d");
  EXPECT_EQ(Text(kRefusesLate, kMessages,
                 R"({"max_tokens": 1, "system": [{"type": "text", "text": "a"}], "messages": [
                    {"role": "system", "content": "b"}, {"role": "user", "content": "d"}]})"),
            "<system>a\n\nb<user>d");
}

TEST(ChatPrompt, OneSystemMessageStaysAsItIs) {
  EXPECT_EQ(Text(kWritesAll, kChat,
                 R"({"messages": [{"role": "system", "content": " a\n"},
                    {"role": "user", "content": "d"}]})"),
            "<system> a\n<user>d");
  EXPECT_EQ(Text(kWritesAll, kChat,
                 R"({"messages": [{"role": "system", "content": ""},
                    {"role": "user", "content": "d"}]})"),
            "<system><user>d");
}

TEST(ChatPrompt, ALateSystemMessageStaysWhereTheTemplateWritesIt) {
  EXPECT_EQ(Text(kWritesAll, kChat,
                 R"({"messages": [{"role": "user", "content": "a"},
                    {"role": "system", "content": "b"}, {"role": "user", "content": "c"}]})"),
            "<user>a<system>b<user>c");
}

TEST(ChatPrompt, ALateSystemMessageThatTheTemplateRefusesIsNamed) {
  const ApiError error = Refusal(
      kRefusesLate, kChat,
      R"({"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b"},
         {"role": "user", "content": "c"}, {"role": "developer", "content": "d"}]})");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "messages[3]") << "as it was sent, though two messages were joined";
  EXPECT_THAT(error.message, HasSubstr("at the beginning only"));
  EXPECT_THAT(error.message, HasSubstr("System message must be at the beginning."));
  EXPECT_EQ(Refusal(kRefusesLate, kResponses,
                    R"({"instructions": "a", "input": [{"role": "user", "content": "b"},
                       {"role": "assistant", "content": "c"}, {"type": "reasoning", "summary": []},
                       {"role": "developer", "content": "d"}]})")
                .param,
            "input[3]");
}

TEST(ChatPrompt, ASystemMessageThatTheTemplateDropsIsRefused) {
  const ApiError error = Refusal(
      kLeavesLateOut, kChat,
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]})");
  EXPECT_EQ(error.param, "messages[1]");
  EXPECT_THAT(error.message, HasSubstr("drops system messages"));
  EXPECT_EQ(Refusal("{{ messages[-1].content }}", kMessages,
                    R"({"max_tokens": 1, "system": "x",
                        "messages": [{"role": "user", "content": "a"}]})")
                .param,
            "system");
}

TEST(ChatPrompt, ToolsThatTheTemplateDropsAreRefusedUnlessAMessageNamesThem) {
  const auto body = [](const std::string& system, const std::string& choice) {
    return R"({"tools": [{"type": "function", "function": {"name": "get_time"}}],
               "tool_choice": ")" +
           choice + R"(", "messages": [{"role": "system", "content": ")" + system +
           R"("}, {"role": "user", "content": "a"}]})";
  };
  for (const char* choice : {"auto", "required"}) {
    const ApiError error = Refusal(kWritesAll, kChat, body("b", choice));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "tools");
    EXPECT_THAT(error.message, HasSubstr("does not write tools"));
    EXPECT_EQ(Text(kWritesAll, kChat, body("Call get_time.", choice)),
              "<system>Call get_time.<user>a");
  }
  EXPECT_EQ(Text(kWritesAll, kChat, body("b", "none")), "<system>b<user>a");
}

// The content may occur in the tag that ends the message.
TEST(ChatPrompt, AContinuedMessageIsCutBehindItsContentNotInATag) {
  constexpr const char* kChatMl =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
      "{% endfor %}";
  for (const std::string content : {"<", "|", "end", "m", "i", "_", "<|im_end|>", "a b", " a\\n"}) {
    const std::string body = R"({"messages": [{"role": "user", "content": "u"},
        {"role": "assistant", "content": ")" +
                             content + R"("}], "continue_final_message": true})";
    EXPECT_EQ(Text(kChatMl, kChat, body),
              "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n" +
                  (content == " a\\n" ? "a" : content));
  }
}

TEST(ChatPrompt, AMessageThatTheTemplateChangesCannotBeContinued) {
  constexpr const char* kLastPart =
      "{% for m in messages %}<{{ m.role }}>{{ m.content.split('</think>')[-1] }}{% endfor %}";
  const auto body = [](const std::string& content) {
    return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": ")" +
           content + R"("}], "continue_final_message": true})";
  };
  EXPECT_EQ(Text(kLastPart, kChat, body("b")), "<user>u<assistant>b");
  for (const char* content : {"a</think>b", "", " \\n"}) {
    EXPECT_EQ(Refusal(kLastPart, kChat, body(content)).param, "continue_final_message") << content;
  }
  EXPECT_EQ(Refusal("{{ messages[0].content }}", kChat, body("u")).param, "continue_final_message");
}

// Templates remove more blanks than those of ASCII.
TEST(ChatPrompt, BlanksThatATemplateTrimsAreNoPartOfAMessage) {
  constexpr const char* kTrims =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";
  for (const std::string blank : {"\\u3000", "\\u00a0", "\\u0085", "\\u2003", "\\f", "\\u000b"}) {
    const std::string body = R"({"messages": [
        {"role": "system", "content": "B s B"}, {"role": "user", "content": "B u B"},
        {"role": "assistant", "content": "B a B"}], "continue_final_message": true})";
    std::string sent;
    for (const char c : body) sent += c == 'B' ? blank : std::string(1, c);
    EXPECT_EQ(Text(kTrims, kChat, sent), "<system>s<user>u<assistant>a") << blank;
  }
}

constexpr const char* kCutOff =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "",
       "tool_calls": [{"id": "1", "type": "function",
                       "function": {"name": "f", "arguments": "{\"city\": \"Par"}}]}]})";

TEST(ChatPrompt, ArgumentsOfACallThatWasCutOffAreWrittenAsText) {
  EXPECT_EQ(Text(kWritesAll, kChat, kCutOff), R"(<user>a<assistant>"{\"city\": \"Par")");
}

// As some published templates do.
TEST(ChatPrompt, ArgumentsThatATemplateAddsToATextAreOne) {
  constexpr const char* kAdds =
      "{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls or [] %}"
      "{{ c.function.name + ':' + c.function.arguments + ';' }}{% endfor %}{% endfor %}";
  constexpr const char* kWritten = R"(<user><assistant>f:{"city": "Köln", "n": 2.0};)";
  EXPECT_EQ(Text(kAdds, kChat,
                 R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant",
                    "content": null, "tool_calls": [{"id": "1", "type": "function", "function":
                      {"name": "f", "arguments": "{\"city\":\"Köln\",\"n\":2.0}"}}]}]})"),
            kWritten);
  EXPECT_EQ(Text(kAdds, kMessages,
                 R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f",
                      "input": {"city": "Köln", "n": 2.0}}]}]})"),
            kWritten);
}

TEST(ChatPrompt, CallsAreWrittenHoweverAClientSaysThatThereIsNoText) {
  constexpr const char* kPrintsAnything =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
      "[{{ c.function.name }}]{% endfor %}{% endfor %}";
  // A published template, in short: another content hides the calls.
  constexpr const char* kWantsNone =
      "{% for message in messages %}<{{ message['role'] }}>"
      "{%- if message['role'] == 'assistant' and message['content'] is none %}"
      "{%- for tool in message['tool_calls'] %}[{{ tool['function']['name'] }}]{% endfor %}"
      "{%- else %}{{ message['content'] }}{% endif %}{% endfor %}";
  for (const char* chat : {kPrintsAnything, kWantsNone}) {
    for (const std::string content : {"", R"("content": null, )", R"("content": "", )"}) {
      EXPECT_EQ(Text(chat, kChat,
                     R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )" +
                         content +
                         R"("tool_calls": [{"id": "1", "type": "function",
                                            "function": {"name": "f", "arguments": "{}"}}]}]})"),
                "<user>a<assistant>[f]")
          << chat << content;
    }
    EXPECT_EQ(Text(chat, kResponses,
                   R"({"input": [{"role": "user", "content": "a"}, {"type": "function_call",
                      "call_id": "1", "name": "f", "arguments": "{}"}]})"),
              "<user>a<assistant>[f]")
        << chat;
  }
}

TEST(ChatPrompt, ArgumentsThatTheTemplateCannotWriteAreNamed) {
  const ApiError error = Refusal(kWantsObjects, kChat, kCutOff);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "messages[1]");
  EXPECT_THAT(error.message, HasSubstr("arguments"));
}

}  // namespace
}  // namespace braid
