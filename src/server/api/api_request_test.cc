// Bodies of requests: the walk over the field table at, below and above every limit, and the
// structured fields one by one.
#include "server/api/api_request.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/api/fields.h"
#include "server/api/limits.h"

namespace braid {
namespace {

constexpr RequestLimits kLimits{.vocabulary = 100, .answers_max = 128};

// The least body of each endpoint, with room for one more field.
std::string Body(Endpoint endpoint, const std::string& field) {
  std::string rest = field.empty() ? "" : fmt::format(", {}", field);
  if (endpoint == kCompletions) return R"({"prompt": "a")" + rest + "}";
  if (endpoint == kDetokenize) return R"({"tokens": [1])" + rest + "}";
  if (endpoint == kResponses) return R"({"input": "a")" + rest + "}";
  if (endpoint == kAbort) return R"({"rid": "a")" + rest + "}";
  if (endpoint == kPause || endpoint == kFlush) return fmt::format("{{{}}}", field);
  if (endpoint == kParseCalls || endpoint == kSeparateReasoning)
    return R"({"text": "a")" + rest + "}";
  if (endpoint == kMessages && field.find("\"max_tokens") == std::string::npos)
    rest += R"(, "max_tokens": 131072)";
  return R"({"messages": [{"role": "user", "content": "a"}])" + rest + "}";
}

Result<ApiRequest, ApiError> Parse(Endpoint endpoint, const std::string& body) {
  return ParseApiRequest(endpoint, body, kLimits);
}

// The refusal's field, "ok", or "body" if no field is named.
std::string Refused(Endpoint endpoint, const std::string& body) {
  auto parsed = Parse(endpoint, body);
  if (parsed) return "ok";
  const ApiError* error = &parsed.error();
  EXPECT_EQ(error->status, 400) << error->message;
  return error->param.empty() ? "body" : error->param;
}

std::string With(Endpoint endpoint, std::string_view name, const std::string& value) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) {
    return Refused(endpoint, Body(endpoint, fmt::format("\"{}\": {}", name, value)));
  }
  const std::string object =
      fmt::format("{{\"{}\": {}}}", name.substr(dot + 1), value);  // a member's
  const std::string more = name.starts_with("stream_options.") ? "\"stream\": true, " : "";
  return Refused(endpoint,
                 Body(endpoint, fmt::format("{}\"{}\": {}", more, name.substr(0, dot), object)));
}

std::vector<Endpoint> EndpointsOf(const Field& field) {
  std::vector<Endpoint> endpoints;
  for (uint32_t bit = kChat; bit <= kFlush; bit *= 2) {
    const auto endpoint = static_cast<Endpoint>(bit);
    if ((field.endpoints & endpoint) != 0) endpoints.push_back(endpoint);
  }
  return endpoints;
}

const std::string kAbsurd[] = {
    "\"x\"",   "[]",   "{}", "1e400", "-9223372036854775809", "9223372036854775808",
    "1.5e300", "\"\"", "[1]"};

TEST(ApiRequest, NumbersAreTakenAtTheirLimitsAndRefusedBeyond) {
  for (const Field& field : Fields()) {
    auto* rule = std::get_if<NumberRule>(&field.rule);
    if (rule == nullptr) continue;
    for (Endpoint endpoint : EndpointsOf(field)) {
      SCOPED_TRACE(field.name);
      EXPECT_EQ(With(endpoint, field.name, fmt::format("{}", rule->max)), "ok");
      EXPECT_EQ(With(endpoint, field.name, fmt::format("{}", rule->min)),
                rule->above_min ? field.name : "ok");
      EXPECT_EQ(With(endpoint, field.name, fmt::format("{}", rule->max + 0.001)), field.name);
      EXPECT_EQ(With(endpoint, field.name, fmt::format("{}", rule->min - 0.001)), field.name);
      EXPECT_EQ(With(endpoint, field.name, "null"), "ok") << "null is absent";
      EXPECT_EQ(With(endpoint, field.name, "true"), field.name);
      for (const std::string& value : kAbsurd)
        EXPECT_NE(With(endpoint, field.name, value), "ok") << value;
    }
  }
}

TEST(ApiRequest, IntegersAreTakenAtTheirLimitsAndRefusedBeyond) {
  for (const Field& field : Fields()) {
    auto* rule = std::get_if<IntegerRule>(&field.rule);
    if (rule == nullptr) continue;
    for (Endpoint endpoint : EndpointsOf(field)) {
      SCOPED_TRACE(field.name);
      // Fields that lean on another one come with it.
      std::string more = field.name == "top_logprobs" ? R"("logprobs": true, )" : "";
      const bool openai = endpoint == kChat || endpoint == kCompletions;
      if (openai && field.name.ends_with("_tokens")) more = R"("prompt_logprobs": 0, )";
      auto with = [&](const std::string& value) {
        return Refused(endpoint,
                       Body(endpoint, fmt::format("{}\"{}\": {}", more, field.name, value)));
      };
      int64_t max = MaxOf(*rule, kLimits);
      EXPECT_EQ(with(fmt::format("{}", max)), "ok");
      EXPECT_EQ(with(fmt::format("{}", rule->min)), "ok");
      if (max < std::numeric_limits<int64_t>::max()) {
        EXPECT_EQ(with(fmt::format("{}", max + 1)), field.name);
        EXPECT_EQ(with("2147483648"), field.name);
        EXPECT_EQ(with("4294967296"), field.name);
        EXPECT_EQ(with("9223372036854775807"), field.name);
      }
      if (rule->min > std::numeric_limits<int64_t>::min()) {
        EXPECT_EQ(with(fmt::format("{}", rule->min - 1)), field.name);
      }
      const bool required = endpoint == kMessages && field.name == "max_tokens";
      EXPECT_EQ(with("null"), required ? field.name : "ok");
      EXPECT_EQ(with("1.0"), "ok");
      EXPECT_EQ(with("1.5"), field.name);
      EXPECT_EQ(with("true"), field.name);
      for (const std::string& value : kAbsurd) EXPECT_NE(with(value), "ok") << value;
    }
  }
}

TEST(ApiRequest, FlagsAreTrueFalseOrNull) {
  for (const Field& field : Fields()) {
    if (!std::holds_alternative<FlagRule>(field.rule)) continue;
    for (Endpoint endpoint : EndpointsOf(field)) {
      SCOPED_TRACE(field.name);
      EXPECT_EQ(With(endpoint, field.name, "false"), "ok");
      EXPECT_EQ(With(endpoint, field.name, "null"), "ok");
      EXPECT_EQ(With(endpoint, field.name, "1"), field.name);
      EXPECT_EQ(With(endpoint, field.name, "\"true\""), field.name);
    }
  }
}

TEST(ApiRequest, WhatIsUnsupportedIsRefusedUnlessItAsksForNothing) {
  for (const Field& field : Fields()) {
    auto* rule = std::get_if<RefusedRule>(&field.rule);
    if (rule == nullptr) continue;
    for (Endpoint endpoint : EndpointsOf(field)) {
      SCOPED_TRACE(field.name);
      EXPECT_EQ(With(endpoint, field.name, "\"x\""), field.name);
      EXPECT_EQ(With(endpoint, field.name, "{\"a\": 1}"), field.name);
      EXPECT_EQ(With(endpoint, field.name, "null"), "ok");
      if (rule->neutral.empty()) {
        EXPECT_EQ(With(endpoint, field.name, "\"\""), "ok");
        EXPECT_EQ(With(endpoint, field.name, "0"), "ok");
        EXPECT_EQ(With(endpoint, field.name, "false"), "ok");
        continue;
      }
      const json::value neutral = json::parse(rule->neutral);
      for (const json::value& value : neutral.as_array()) {
        EXPECT_EQ(With(endpoint, field.name, json::serialize(value)), "ok");
      }
    }
  }
}

TEST(ApiRequest, WhatIsHarmlessIsTaken) {
  for (const Field& field : Fields()) {
    if (!std::holds_alternative<HarmlessRule>(field.rule)) continue;
    for (Endpoint endpoint : EndpointsOf(field)) {
      EXPECT_EQ(With(endpoint, field.name, "\"x\""), "ok") << field.name;
    }
  }
}

TEST(ApiRequest, ParsedFieldsRefuseOtherTypes) {
  for (const Field& field : Fields()) {
    if (!std::holds_alternative<ParseRule>(field.rule)) continue;
    for (Endpoint endpoint : EndpointsOf(field)) {
      SCOPED_TRACE(field.name);
      std::string name(field.name);
      bool replaces = Body(endpoint, "").find(fmt::format("\"{}\"", name)) != std::string::npos ||
                      name == "prompt" || name == "messages";
      for (const char* value : {"1.5", "true"}) {
        std::string body = replaces ? fmt::format("{{\"{}\": {}}}", name, value)
                                    : Body(endpoint, fmt::format("\"{}\": {}", name, value));
        // "true" is a schema: of any value.
        const bool is_schema = name == "json_schema" && value == std::string_view("true");
        EXPECT_EQ(Refused(endpoint, body), is_schema ? "ok" : name) << value;
      }
    }
  }
}

TEST(ApiRequest, BrokenJsonIsRefused) {
  const std::string bodies[] = {"",
                                "{",
                                "[]",
                                "null",
                                "{\"a\":}",
                                "{} x",
                                "{'a':1}",
                                "{\"a\":NaN}",
                                "{\"prompt\":\"\xff\"}",
                                R"({"prompt": "\ud800"})"};
  for (const std::string& body : bodies) EXPECT_EQ(Refused(kCompletions, body), "body") << body;
  EXPECT_EQ(Refused(kCompletions, R"({"prompt": "a", "prompt": "b"})"), "prompt") << "twice";
  std::string deep = std::string(65, '[') + std::string(65, ']');
  EXPECT_NE(Refused(kCompletions, R"({"prompt": "a", "x": )" + deep + "}"), "ok");
  std::string key(limits::kJsonKeyBytesMax + 1, 'k');
  EXPECT_EQ(Refused(kCompletions, R"({"prompt": "a", ")" + key + R"(": 1})"), "body");
  std::string many = "[1";
  for (int64_t i = 0; i < limits::kJsonValuesMax; ++i) many += ",1";
  EXPECT_EQ(Refused(kCompletions, R"({"prompt": "a", "x": )" + many + "]}"), "body");
}

TEST(ApiRequest, PromptsComeInFourForms) {
  auto prompts = [](const std::string& value) {
    auto parsed = Parse(kCompletions, R"({"prompt": )" + value + "}");
    return parsed ? parsed->prompts : std::vector<Prompt>{};
  };
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{std::string("a")}));
  EXPECT_EQ(prompts(R"(["a", "b"])"), (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[0, 99]"), (std::vector<Prompt>{std::vector<TokenId>{0, 99}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]"),
            (std::vector<Prompt>{std::vector<TokenId>{1}, std::vector<TokenId>{2, 3}}));
  auto refused = [](const std::string& value) {
    return Refused(kCompletions, R"({"prompt": )" + value + "}");
  };
  EXPECT_EQ(refused("[]"), "prompt");
  EXPECT_EQ(refused("[100]"), "prompt[0]");
  EXPECT_EQ(refused("[1, -1]"), "prompt[1]");
  EXPECT_EQ(refused("[[1], [2, 100]]"), "prompt[1][1]");
  EXPECT_EQ(refused(R"(["a", 1])"), "prompt[1]");
  EXPECT_EQ(Refused(kCompletions, "{}"), "prompt");
  EXPECT_EQ(Refused(kTokenize, R"({"prompt": [1]})"), "prompt");
  EXPECT_EQ(Refused(kTokenize, R"({"input_ids": [1]})"), "input_ids");
  EXPECT_EQ(Refused(kTokenize, R"({"prompt": null, "input_ids": ["a", "b"]})"), "input_ids");
  std::string many = "\"a\"";
  for (int64_t i = 0; i < limits::kAnswersMax; ++i) many += ",\"a\"";
  EXPECT_EQ(refused(fmt::format("[{}]", many)), "prompt");
  EXPECT_EQ(Refused(kCompletions,
                    fmt::format(R"({{"n": 64, "prompt": [{}"a"]}})", many.substr(0, 4 * 2))),
            "prompt")
      << "prompts times n";
}

TEST(ApiRequest, MessagesAreCheckedWithTheirPath) {
  auto refused = [](const std::string& messages) {
    return Refused(kChat, R"({"messages": )" + messages + "}");
  };
  EXPECT_EQ(refused("[]"), "messages");
  EXPECT_EQ(Refused(kChat, "{}"), "messages");
  EXPECT_EQ(refused("[1]"), "messages[0]");
  EXPECT_EQ(refused(R"([{"content": "a"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"role": "root", "content": "a"}])"), "messages[0].role");
  EXPECT_EQ(refused(R"([{"role": "user"}])"), "messages[0].content");
  EXPECT_EQ(refused(R"([{"role": "user", "content": null}])"), "messages[0].content");
  EXPECT_EQ(refused(R"([{"role": "user", "content": 1}])"), "messages[0].content");
  EXPECT_EQ(refused(R"([{"role": "user", "content": "a"}, {"role": "user", "content": {}}])"),
            "messages[1].content");
  EXPECT_EQ(refused(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])"),
            "messages[0].content[0]");
  EXPECT_EQ(refused(R"([{"role": "user", "content": "a", "name": 1}])"), "messages[0].name");
  EXPECT_EQ(refused(R"([{"role": "assistant", "content": "a", "reasoning": 1}])"),
            "messages[0].reasoning_content");
  EXPECT_EQ(refused(R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])"), "ok");
  EXPECT_EQ(refused(R"([{"role": "developer", "content": "a"}])"), "ok");
}

TEST(ApiRequest, ThinkingComesBackUnderEitherName) {
  const auto thought = [](const std::string& fields) {
    const auto parsed =
        Parse(kChat, R"({"messages": [{"role": "assistant", "content": "a", )" + fields + "}]}");
    EXPECT_TRUE(parsed) << fields;
    return parsed->messages.at(0).at("reasoning_content");
  };
  EXPECT_EQ(thought(R"("reasoning": "hm")"), "hm");
  EXPECT_EQ(thought(R"("reasoning_content": "hm")"), "hm");
  EXPECT_EQ(thought(R"("reasoning": "hm", "reasoning_content": null)"), "hm");
  EXPECT_EQ(thought(R"("reasoning": "no", "reasoning_content": "hm")"), "hm");
}

TEST(ApiRequest, StopsAndBiasesHaveTheirLimits) {
  auto stops = [](size_t count, size_t bytes) {
    std::string list;
    for (size_t i = 0; i < count; ++i) {
      list += fmt::format("{}\"{}\"", i == 0 ? "" : ",", std::string(bytes, 's'));
    }
    return With(kChat, "stop", fmt::format("[{}]", list));
  };
  EXPECT_EQ(stops(limits::kStopStringsMax, limits::kStopStringBytesMax), "ok");
  EXPECT_EQ(stops(limits::kStopStringsMax + 1, 1), "stop");
  EXPECT_EQ(stops(1, limits::kStopStringBytesMax + 1), "stop[0]");
  EXPECT_EQ(stops(1, 0), "stop[0]");
  EXPECT_EQ(With(kChat, "stop", "\"\""), "stop");
  EXPECT_EQ(With(kChat, "stop_token_ids", "[99]"), "ok");
  EXPECT_EQ(With(kChat, "stop_token_ids", "[100]"), "stop_token_ids[0]");
  EXPECT_EQ(With(kChat, "logit_bias", R"({"99": 100, "0": -100})"), "ok");
  EXPECT_EQ(With(kChat, "logit_bias", R"({"100": 1})"), "logit_bias");
  EXPECT_EQ(With(kChat, "logit_bias", R"({"-1": 1})"), "logit_bias");
  EXPECT_EQ(With(kChat, "logit_bias", R"({"1x": 1})"), "logit_bias");
  EXPECT_EQ(With(kChat, "logit_bias", R"({"1": 100.5})"), "logit_bias.1");
  EXPECT_EQ(With(kChat, "logit_bias", R"({"1": "1"})"), "logit_bias.1");
}

TEST(ApiRequest, OptionsOfAStreamAreWhatTheClientSaid) {
  const auto parsed = [](const std::string& options) {
    const auto request =
        Parse(kChat, Body(kChat, R"("stream": true, "stream_options": )" + options));
    EXPECT_TRUE(request) << options;
    return std::pair(request->include_usage, request->continuous_usage);
  };
  using Options = std::pair<std::optional<bool>, std::optional<bool>>;
  EXPECT_EQ(parsed(R"({"include_usage": true})"), (Options{true, {}}));
  EXPECT_EQ(parsed(R"({"include_usage": false, "continuous_usage_stats": true})"),
            (Options{false, true}));
  EXPECT_EQ(parsed(R"({"include_usage": null})"), (Options{false, {}}));
  const auto biased = Parse(kChat, Body(kChat, R"("logit_bias": {"9": 1.5, "2": -3})"));
  ASSERT_TRUE(biased);
  EXPECT_EQ(biased->logit_bias, (std::vector<std::pair<TokenId, float>>{{2, -3.0f}, {9, 1.5f}}));
}

TEST(ApiRequest, FieldsThatContradictEachOtherAreRefused) {
  EXPECT_EQ(With(kChat, "max_tokens", "0"), "max_tokens");
  EXPECT_EQ(Refused(kCompletions, Body(kCompletions, R"("max_tokens": 0, "echo": true)")), "ok");
  EXPECT_EQ(Refused(kChat, Body(kChat, R"("max_tokens": 3, "min_tokens": 4)")), "min_tokens");
  EXPECT_EQ(With(kChat, "top_logprobs", "2"), "top_logprobs");
  EXPECT_EQ(With(kChat, "stream_options", R"({"include_usage": true})"), "stream_options");
  EXPECT_EQ(With(kChat, "continue_final_message", "true"), "continue_final_message");
  EXPECT_EQ(With(kChat, "response_format", R"({"type": "text"})"), "ok");
  EXPECT_EQ(With(kChat, "response_format", R"({"type": "json_object"})"), "ok");
  EXPECT_EQ(With(kChat, "response_format", R"({"type": "poem"})"), "response_format.type");
  EXPECT_EQ(With(kChat, "tool_choice", "\"required\""), "tool_choice") << "there are no tools";
  EXPECT_EQ(With(kChat, "chat_template_kwargs", R"({"messages": []})"),
            "chat_template_kwargs.messages");
  EXPECT_EQ(With(kChat, "tools", R"([{"type": "function", "function": {"name": "a b"}}])"),
            "tools[0].function.name");
}

TEST(ApiRequest, AllowedToolsAreTakenInBothForms) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "a"}},
                   {"type": "function", "function": {"name": "b"}}], "tool_choice": )";
  const auto parse = [&](const std::string& choice) {
    auto parsed = Parse(kChat, Body(kChat, tools + choice));
    return parsed ? *std::move(parsed) : ApiRequest{};
  };
  const std::string nested = R"([{"type": "function", "function": {"name": "b"}}])";
  const std::string flat = R"([{"type": "function", "name": "b"}])";
  for (const std::string& body :
       {R"({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": )" + nested + "}}",
        R"({"type": "allowed_tools", "mode": "auto", "tools": )" + flat + "}"}) {
    EXPECT_EQ(parse(body).allowed_tools, std::vector<std::string>{"b"}) << body;
    EXPECT_EQ(parse(body).tool_choice, ToolChoice::kAuto) << body;
  }
  EXPECT_EQ(
      parse(R"({"type": "allowed_tools", "mode": "required", "tools": )" + flat + "}").tool_choice,
      ToolChoice::kRequired);
  EXPECT_EQ(parse(R"({"type": "function", "name": "a"})").allowed_tools,
            std::vector<std::string>{"a"})
      << "the flat form of a named tool";
  const auto refused = [&](const std::string& choice) {
    return Refused(kChat, Body(kChat, tools + choice));
  };
  EXPECT_EQ(refused(R"({"type": "allowed_tools", "mode": "any", "tools": )" + flat + "}"),
            "tool_choice.mode");
  EXPECT_EQ(refused(R"({"type": "allowed_tools", "mode": "auto", "tools": []})"),
            "tool_choice.tools");
  EXPECT_EQ(refused(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]})"),
            "tool_choice.tools[0]");
  EXPECT_EQ(refused(R"({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "c"}]})"),
            "tool_choice");
  EXPECT_EQ(refused(R"({"type": "custom", "name": "a"})"), "tool_choice");
}

TEST(ApiRequest, AnIdByWhichNothingCouldBeEndedIsRefused) {
  const auto quoted = [](const std::string& id) { return "\"" + id + "\""; };
  const std::string longest(limits::kRequestIdBytesMax, 'a');
  for (const Endpoint endpoint : {kChat, kCompletions, kResponses, kMessages, kAbort}) {
    for (const char* name : {"request_id", "rid"}) {
      if (endpoint == kAbort && std::string_view(name) == "rid") continue;  // Body has one
      for (const std::string& id : {std::string("Az09._:-"), longest}) {
        EXPECT_EQ(With(endpoint, name, quoted(id)), "ok") << id;
      }
      for (const std::string& id : {std::string("a b"), std::string("a/b"), std::string("\u00e4"),
                                    std::string("a\\n"), longest + "a"}) {
        EXPECT_EQ(With(endpoint, name, quoted(id)), name) << id;
      }
    }
  }
  EXPECT_EQ(With(kChat, "request_id", "\"\""), "ok") << "the same as none";
  EXPECT_EQ(Refused(kAbort, R"({"rid": "", "abort_all": true})"), "ok");
  const auto refused = Parse(kChat, Body(kChat, R"("rid": "a b")"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "rid: must be at most 128 of the characters A-Z, a-z, 0-9, '.', '_', ':' and '-', "
            "got \"a b\"");
}

TEST(ApiRequest, ErrorsShowNumbersAsTheyWereSent) {
  auto parsed = Parse(kChat, Body(kChat, R"("max_tokens": 5.5)"));
  EXPECT_NE(parsed.error().message.find("got 5.5"), std::string::npos) << parsed.error().message;
}

TEST(ApiRequest, AThinkingBudgetIsAnIntegerHoweverItIsWritten) {
  const auto with = [](const std::string& budget) {
    return Body(kMessages, R"("thinking": {"type": "enabled", "budget_tokens": )" + budget + "}");
  };
  for (const char* budget : {"1024", "1024.0", "1.024e3"}) {
    const auto parsed = Parse(kMessages, with(budget));
    ASSERT_TRUE(parsed.ok()) << budget << ": " << parsed.error().message;
    EXPECT_EQ(parsed->thinking_budget, 1024) << budget;
  }
  for (const char* budget : {"1024.5", "0", "-1.0", "\"1024\"", "1e300"}) {
    EXPECT_EQ(Refused(kMessages, with(budget)), "thinking.budget_tokens") << budget;
  }
}

TEST(ApiRequest, MessagesAskForThinkingUnderEitherNameOrGetNone) {
  const auto values = [](const std::string& field) {
    const auto parsed = Parse(kMessages, Body(kMessages, field));
    EXPECT_TRUE(parsed) << field;
    return parsed->template_values;
  };
  const json::object none{{"enable_thinking", false}, {"thinking", false}};
  const json::object both{{"enable_thinking", true}, {"thinking", true}};
  EXPECT_EQ(values(""), none);
  EXPECT_EQ(values(R"("thinking": {"type": "disabled"})"), none);
  EXPECT_EQ(values(R"("thinking": {"type": "adaptive"})"), both);
  for (const char* name : {"enable_thinking", "thinking"}) {
    const std::string own = fmt::format(R"("chat_template_kwargs": {{"{}": true}})", name);
    EXPECT_EQ(values(own), (json::object{{name, true}}));
  }
}

TEST(ApiRequest, MessagesThatEndWithAnAnswerContinueIt) {
  const auto continues = [](Endpoint endpoint, const std::string& content) {
    const std::string most = endpoint == kCountTokens ? "" : R"("max_tokens": 9, )";
    const auto parsed = Parse(endpoint, "{" + most + R"("messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": )" + content + "}]}");
    EXPECT_TRUE(parsed) << content;
    return parsed->continue_final_message.value_or(false);
  };
  for (const Endpoint endpoint : {kMessages, kCountTokens}) {
    EXPECT_TRUE(continues(endpoint, "\"It is\""));
    EXPECT_TRUE(continues(endpoint, R"([{"type": "text", "text": "It is"}])"));
    EXPECT_FALSE(continues(endpoint, "\" \\n\""));
    EXPECT_FALSE(continues(endpoint, R"([{"type": "text", "text": "It is"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {}}])"));
  }
  EXPECT_FALSE(continues(kChat, "\"It is\"")) << "there a field says so";
  const auto calls = Parse(kChat, R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]})");
  ASSERT_FALSE(calls);
  EXPECT_EQ(calls.error().param, "continue_final_message");
  const auto also = [](const std::string& field) {
    const auto parsed = Parse(kMessages, R"({"max_tokens": 2048, "messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}], )" + field + "}");
    EXPECT_TRUE(parsed) << field;
    return parsed->continue_final_message.value_or(false);
  };
  EXPECT_TRUE(also(R"("thinking": {"type": "disabled"})"));
  EXPECT_FALSE(also(R"("thinking": {"type": "enabled", "budget_tokens": 1024})"));
  EXPECT_FALSE(also(R"("chat_template_kwargs": {"thinking": true})"));
  EXPECT_FALSE(also(R"("output_config": {"format": {"type": "json_schema",
      "schema": {"type": "object"}}})"));
}

TEST(ApiRequest, UnknownFieldsAndMembersAreRefused) {
  EXPECT_EQ(With(kChat, "nonsense", "{}"), "nonsense");
  EXPECT_EQ(With(kChat, "nonsense", "false"), "nonsense") << "false may ask for something";
  EXPECT_EQ(With(kChat, "nonsense", "null"), "ok") << "null is absent";
  EXPECT_EQ(With(kCompletions, "instructions", "\"a\""), "instructions") << "of another endpoint";
  EXPECT_EQ(With(kChat, "stream_options.nonsense", "1"), "stream_options.nonsense");
  EXPECT_EQ(Refused(kChat, Body(kChat, R"("thinking.display": "omitted")")), "thinking.display");
}

TEST(ApiRequest, FormatsOfMessagesAreGrammars) {
  const std::string format = R"({"type": "json_schema", "schema": {"type": "integer"}})";
  for (const std::string& field :
       {R"("output_config": {"format": )" + format + "}", R"("output_format": )" + format}) {
    auto parsed = Parse(kMessages, Body(kMessages, field));
    ASSERT_TRUE(parsed) << field;
    const auto& grammar = parsed->grammar;
    ASSERT_TRUE(grammar.has_value()) << field;
    EXPECT_EQ(grammar->schema.at("type"), "integer");
  }
  EXPECT_EQ(With(kMessages, "output_config.format", R"({"type": "poem"})"), "output_config.format");
  EXPECT_EQ(With(kMessages, "output_config.effort", "\"low\""), "ok");
  EXPECT_EQ(With(kMessages, "output_config.effort", "\"giant\""), "output_config.effort");
  EXPECT_EQ(With(kMessages, "output_config.task_budget", R"({"total": 5})"),
            "output_config.task_budget");
}

}  // namespace
}  // namespace braid
