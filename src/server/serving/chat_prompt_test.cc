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

// Published templates in short. This one writes calls only where there is no content at all.
constexpr const char* kCallsWhereNoContent = R"(
{%- set ns = namespace(is_first=false, is_tool=false, is_output_first=true) %}
{%- for message in messages %}
  {%- if message['role'] == 'user' %}{% set ns.is_tool = false %}
    {{- '<U>' + message['content'] }}
  {%- endif %}
  {%- if message['role'] == 'assistant' and message['content'] is none %}
    {%- set ns.is_tool = false -%}
    {%- for tool in message['tool_calls'] %}
      {%- if not ns.is_first %}
        {{- '<A><calls><call>' + tool['type'] + ':' + tool['function']['name'] }}
        {{- '\n' + tool['function']['arguments'] + '</call>' }}{% set ns.is_first = true %}
      {%- else %}
        {{- '\n<call>' + tool['type'] + ':' + tool['function']['name'] }}
        {{- '\n' + tool['function']['arguments'] + '</call>' }}{{ '</calls><end>' }}
      {%- endif %}
    {%- endfor %}
  {%- endif %}
  {%- if message['role'] == 'assistant' and message['content'] is not none %}
    {%- if ns.is_tool %}{{ '</results>' + message['content'] + '<end>' }}
      {%- set ns.is_tool = false -%}
    {%- else %}{% set content = message['content'] %}
      {%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
      {{- '<A>' + content + '<end>' }}
    {%- endif %}
  {%- endif %}
  {%- if message['role'] == 'tool' %}{% set ns.is_tool = true %}
    {{- '<results>' if ns.is_output_first else '\n' }}{% set ns.is_output_first = false %}
    {{- '<result>' + message['content'] + '</result>' }}
  {%- endif %}
{%- endfor -%}
{% if ns.is_tool %}{{ '</results>' }}{% endif %}
{%- if add_generation_prompt and not ns.is_tool %}{{ '<A>' }}{% endif %}
)";

// This one writes a text and calls together, and takes any list for calls.
constexpr const char* kCallsBesideContent = R"(
{%- if not thinking is defined %}{% set thinking = false %}{% endif %}
{%- set ns = namespace(is_first=false, is_tool=false, system='', is_last_user=false) %}
{%- for message in messages %}
  {%- if message['role'] == 'system' %}
    {%- set ns.system = ns.system + message['content'] %}
  {%- endif %}
{%- endfor %}
{%- if tools is defined and tools is not none %}
  {%- set tool_ns = namespace(text='## Tools\n') %}
  {%- for tool in tools %}
    {%- set tool_ns.text = tool_ns.text + '### ' + tool.function.name + '\n'
        + (tool.function.parameters | tojson) + '\n' %}
  {%- endfor %}
  {%- set ns.system = ns.system + '\n\n' + tool_ns.text %}
{%- endif %}
{{- bos_token }}{{ ns.system }}
{%- for message in messages %}
  {%- if message['role'] == 'user' %}
    {%- set ns.is_tool = false %}{% set ns.is_last_user = true %}
    {{- '<U>' + message['content'] }}
  {%- endif %}
  {%- if message['role'] == 'assistant' and message['tool_calls'] is defined
         and message['tool_calls'] is not none %}
    {%- if ns.is_last_user %}{{ '<A></think>' }}{% endif %}
    {%- set ns.is_last_user = false %}{% set ns.is_first = false %}{% set ns.is_tool = false %}
    {%- for tool in message['tool_calls'] %}
      {%- if not ns.is_first %}
        {%- if message['content'] is none %}{{ '<calls>' }}
        {%- else %}{{ message['content'] + '<calls>' }}{% endif %}
        {%- set ns.is_first = true %}
      {%- endif %}
      {{- '<call>' + tool['function']['name'] + ':' + tool['function']['arguments'] + '</call>' }}
    {%- endfor %}
    {{- '</calls><end>' }}
  {%- endif %}
  {%- if message['role'] == 'assistant'
         and (message['tool_calls'] is not defined or message['tool_calls'] is none) %}
    {%- if ns.is_last_user %}{{ '<A>' }}
      {%- if message['prefix'] is defined and message['prefix'] and thinking %}{{ '<think>' }}
      {%- else %}{{ '</think>' }}{% endif %}
    {%- endif %}
    {%- set ns.is_last_user = false %}
    {%- if ns.is_tool %}{{ message['content'] + '<end>' }}{% set ns.is_tool = false %}
    {%- else %}{% set content = message['content'] %}
      {%- if '</think>' in content %}{% set content = content.split('</think>', 1)[1] %}{% endif %}
      {{- content + '<end>' }}
    {%- endif %}
  {%- endif %}
  {%- if message['role'] == 'tool' %}
    {%- set ns.is_last_user = false %}{% set ns.is_tool = true %}
    {{- '<result>' + message['content'] + '</result>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and ns.is_last_user and not ns.is_tool %}
  {{- '<A>' }}{{ '<think>' if thinking else '</think>' }}
{%- endif %}
)";

// A conversation with two calls in one message, whose other fields are `fields`, and their results.
std::string TwoCalls(const std::string& fields, const std::string& after = "") {
  return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )" + fields +
         R"("tool_calls": [
      {"id": "1", "type": "function", "function":
        {"name": "f", "arguments": "{\"city\":\"Köln\"}"}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
    {"role": "tool", "tool_call_id": "1", "content": "x"},
    {"role": "tool", "tool_call_id": "2", "content": "y"})" +
         after + "]}";
}

constexpr const char* kNextTurn =
    R"(, {"role": "assistant", "content": "z"}, {"role": "user", "content": "b"})";

TEST(ChatPrompt, ATextBesideCallsIsAMessageOfItsOwnWhereATemplateWouldDropTheCalls) {
  const std::string calls =
      "<A><calls><call>function:f\n{\"city\": \"Köln\"}</call>\n<call>function:g\n{}</call></calls>"
      "<end><results><result>x</result>\n<result>y</result></results>";
  const std::string thought = R"("reasoning_content": "why", )";
  for (const std::string content : {"", R"("content": null, )", R"("content": "", )",
                                    R"("content": "\n\n", )"}) {
    EXPECT_EQ(Text(kCallsWhereNoContent, kChat, TwoCalls(content + thought)), "<U>a" + calls);
  }
  for (const std::string content : {R"("content": "t", )", R"("content": "<think>why</think>t", )",
                                    R"("content": [{"type": "text", "text": "t"}], )"}) {
    EXPECT_EQ(Text(kCallsWhereNoContent, kChat, TwoCalls(content + thought)),
              "<U>a<A>t<end>" + calls);
    EXPECT_EQ(Text(kCallsWhereNoContent, kChat, TwoCalls(content, kNextTurn)),
              "<U>a<A>t<end>" + calls + "z<end><U>b<A>");
  }
  EXPECT_EQ(Text(kCallsWhereNoContent, kMessages,
                 R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": [{"type": "text", "text": "t"},
                      {"type": "tool_use", "id": "1", "name": "f", "input": {"n": 2}}]},
                    {"role": "user", "content": [
                      {"type": "tool_result", "tool_use_id": "1", "content": "x"}]}]})"),
            "<U>a<A>t<end><A><calls><call>function:f\n{\"n\": 2}</call>"
            "<results><result>x</result></results>");
}

TEST(ChatPrompt, AThoughtIsWrittenOnceWhereATextIsAMessageOfItsOwn) {
  constexpr const char* kThinks =
      "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content or '' }}"
      "{% if m.content %}{{ m.content }}{% else %}"
      "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endif %}{% endfor %}";
  for (const std::string name : {"reasoning", "reasoning_content"}) {
    EXPECT_EQ(Text(kThinks, kChat, TwoCalls("\"content\": \"t\", \"" + name + "\": \"why\", ")),
              "<user>a<assistant>whyt<assistant>[f][g]<tool>x<tool>y");
  }
}

TEST(ChatPrompt, ATextBesideCallsStaysWhereATemplateWritesBoth) {
  const std::string calls =
      "<calls><call>f:{\"city\": \"Köln\"}</call><call>g:{}</call></calls><end>"
      "<result>x</result><result>y</result>";
  for (const std::string content : {"", R"("content": null, )", R"("content": "", )"}) {
    EXPECT_EQ(Text(kCallsBesideContent, kChat, TwoCalls(content)), "<U>a<A></think>" + calls);
  }
  EXPECT_EQ(Text(kCallsBesideContent, kChat, TwoCalls(R"("content": "t", )")),
            "<U>a<A></think>t" + calls);
  std::string thinks = TwoCalls(R"("content": "t", )", kNextTurn);
  thinks.insert(1, R"("chat_template_kwargs": {"thinking": true}, )");
  EXPECT_EQ(Text(kCallsBesideContent, kChat, thinks),
            "<U>a<A></think>t" + calls + "z<end><U>b<A><think>");
}

TEST(ChatPrompt, ToolsOfATemplateThatAddsTextsAreWritten) {
  EXPECT_EQ(Text(kCallsBesideContent, kChat,
                 R"({"messages": [{"role": "system", "content": "s"},
                                  {"role": "user", "content": "a"}],
                     "tools": [{"type": "function", "function":
                                {"name": "f", "parameters": {"type": "object"}}}]})"),
            "s\n\n## Tools\n### f\n{\"type\": \"object\"}\n<U>a<A></think>");
}

// Clients write the field in every message.
TEST(ChatPrompt, AnAnswerWithAnEmptyListOfCallsIsAText) {
  for (const std::string calls : {"[]", "null"}) {
    for (const char* chat : {kCallsBesideContent, kCallsWhereNoContent}) {
      const std::string end = chat == kCallsBesideContent ? "</think>" : "";
      EXPECT_EQ(Text(chat, kChat,
                     R"({"messages": [{"role": "user", "content": "a"},
                        {"role": "assistant", "content": "<think>w</think>t", "tool_calls": )" +
                         calls + R"(}, {"role": "user", "content": "b"}]})"),
                "<U>a<A>" + end + "t<end><U>b<A>" + end);
    }
  }
}

TEST(ChatPrompt, CallsThatATemplateDropsAreRefused) {
  for (const std::string content : {"", R"("content": "t", )"}) {
    const ApiError error = Refusal(kRefusesLate, kChat, TwoCalls(content));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "messages[1]");
    EXPECT_THAT(error.message, HasSubstr("drops tool calls"));
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
