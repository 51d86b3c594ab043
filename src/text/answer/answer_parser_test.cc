// Transcripts of every format of tool calls: the same events however the text is cut, arguments
// that are JSON of the schema's types, and what happens to calls that are cut off or are none.
#include "text/answer/answer_parser.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/text/written_json.h"
#include "text/answer/test_answer.h"
#include "text/test_model.h"

namespace braid {
namespace {

json::array Tools() {
  return ParseJson(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {
       "type": "object",
       "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                      "metric": {"type": "boolean"}, "where": {"$ref": "#/$defs/place"},
                      "tags": {"type": "array", "items": {"type": "string"}},
                      "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
       "$defs": {"place": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "now"}}])",
                   "tools")
      ->as_array();
}

using Call = JoinedCall;
using Answer = JoinedAnswer;

struct Case {
  std::string format;
  std::string text;
  Answer expected;
  bool inside = false;  // begins in thinking
  bool cut = false;     // ended by length
};

Answer Read(const Case& c, const std::vector<std::string_view>& pieces) {
  const AnswerSyntax syntax{.split_reasoning = true,
                            .reasoning_tags = {},
                            .tools = FindToolFormat(c.format),
                            .schemas = ToolSchemas(Tools())};
  AnswerParser parser(syntax, c.inside);
  Answer answer;
  for (std::string_view piece : pieces) Add(parser.Push(piece), &answer);
  Add(parser.Flush(c.cut), &answer);
  return answer;
}

const std::string kParis = R"({"city": "Paris", "days": 3})";

std::vector<Case> HermesCases() {
  const std::string call =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + kParis + "}\n</tool_call>";
  const Call paris{"get_weather", kParis, "", true};
  return {
      {"hermes", call, {"", "", {paris}}},
      {"hermes", "Let me look.\n" + call, {"Let me look.", "", {paris}}},
      {"hermes", call + "\n" + call + "\n", {"", "", {paris, paris}}},
      {"hermes", call + "\nDone.", {"\nDone.", "", {paris}}},
      {"hermes", "<think>\nHm.\n</think>\n\n" + call, {"", "Hm.", {paris}}},
      // Within thinking, which is never closed, or is closed after it.
      {"hermes", "Hm.\n" + call, {"", "Hm.", {paris}}, true},
      {"hermes", "Hm.\n" + call + "\n</think>\n\nSo.", {"So.", "Hm.", {paris}}, true},
      // Thinking that only speaks of calls.
      {"hermes",
       "I write <tool_call> with {\"name\": X}, or <tool_call>{\"name\": \"x\"}</tool_call>",
       {"", "I write <tool_call> with {\"name\": X}, or <tool_call>{\"name\": \"x\"}</tool_call>"},
       true},
      // The keys in the other order, other keys between.
      {"hermes",
       "<tool_call>{\"id\": [1, {\"a\": \"}\"}], \"arguments\": {\"a\": [1, 2]}, \"name\": "
       "\"now\"}</tool_call>",
       {"", "", {{"now", R"({"a": [1, 2]})", "", true}}}},
      {"hermes", "<tool_call>{\"name\": \"now\"}</tool_call>", {"", "", {{"now", "{}", "", true}}}},
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
       {"", "", {{"now", "{}", "", true}}}},
      // A backslash before a real newline.
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b\\\nc\\\\\\\"d\"}}</tool_call>",
       {"", "", {{"now", R"({"a": "b\nc\\\"d"})", "", true}}}},
      // Tags, brackets and escapes inside strings.
      {"hermes",
       R"(<tool_call>{"name": "now", "arguments": {"a": "</tool_call>\"}\\"}}</tool_call>x)",
       {"x", "", {{"now", R"({"a": "</tool_call>\"}\\"})", "", true}}}},
      // A newline inside a string, which JSON forbids.
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"1\n2\"}}</tool_call>",
       {"", "", {{"now", R"({"a": "1\n2"})", "", true}}}},
      // A tool that was not offered.
      {"hermes",
       "<tool_call>{\"name\": \"fly\", \"arguments\": {}}</tool_call>",
       {"", "", {{"fly", "{}", "", true}}}},
      // No closing tag, or a bracket too few.
      {"hermes", call.substr(0, call.size() - 12), {"", "", {paris}}},
      {"hermes", call.substr(0, call.size() - 14), {"", "", {paris}}},
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1</tool_call>",
       {"", "", {{"now", R"({"a": [1]})", "", true}}}},
      // Cut off: what was read, and open.
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"Par",
       {"", "", {{"now", "{\"a\": \"Par"}}},
       false,
       true},
      {"hermes", "<tool_call>{\"name\": \"no", {"<tool_call>{\"name\": \"no"}, false, true},
      {"hermes", "a <tool", {"a <tool"}, false, true},
      // No calls.
      {"hermes", "<tool_call>now</tool_call> ", {"<tool_call>now</tool_call> "}},
      {"hermes", "<tool_call>{\"a\": 1}", {"<tool_call>{\"a\": 1}"}},
      {"hermes", "x < y <tool_cal> <<tool_call", {"x < y <tool_cal> <<tool_call"}},
  };
}

// Arguments that are no object: the text of one, none, another value.
std::vector<Case> ObjectlessCases() {
  return {
      {"hermes",
       R"(<tool_call>{"name": "now", "arguments": "{\"a\": \"b\"}"}</tool_call>)",
       {"", "", {{"now", R"({"a": "b"})", "", true}}}},
      // Equal keys are for the client's parser to choose from.
      {"hermes",
       R"(<tool_call>{"name": "now", "arguments": "{\"a\": 1, \"a\": 2}"}</tool_call>)",
       {"", "", {{"now", R"({"a": 1, "a": 2})", "", true}}}},
      {"hermes",
       R"(<tool_call>{"arguments": null, "name": "now"}</tool_call>)",
       {"", "", {{"now", "{}", "", true}}}},
      {"hermes",
       R"(<tool_call>{"name": "now", "arguments": [1, {"a": 2}]}</tool_call>)",
       {"", "", {{"now", R"([1, {"a": 2}])", "", true}}}},
      // The turn ends before the value does: what is missing is closed, but not a string.
      {"hermes",
       R"(<tool_call>{"name": "now", "arguments": [1, {"a": 2)",
       {"", "", {{"now", R"([1, {"a": 2}])", "", true}}}},
      {"hermes",
       R"(<tool_call>{"name": "now", "arguments": {"a": [1, {"b": 2)",
       {"", "", {{"now", R"({"a": [1, {"b": 2}]})", "", true}}}},
  };
}

std::vector<Case> ParameterCases() {
  return {
      {"qwen3_xml",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
       "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"get_weather", R"({"city": "Paris", "days": 3})", "", true}}}},
      // Every type; strings that look like numbers stay strings.
      {"qwen3_coder",
       "Look:\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n7\n</parameter>\n"
       "<parameter=metric>\nTrue\n</parameter>\n<parameter=where>\n{\"lat\": 1.50}\n</parameter>\n"
       "<parameter=tags>\n[\"a\",\n \"b\"]\n</parameter>\n<parameter=note>\nnull\n</parameter>\n"
       "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       {"Look:",
        "",
        {{"get_weather",
          "{\"city\": \"7\", \"metric\": true, \"where\": {\"lat\": 1.50}, \"tags\": [\"a\",\n "
          "\"b\"], \"note\": null}",
          "", true},
         {"now", "{}", "", true}}}},
      // A value with newlines, quotes and tags; one that is not what its type says.
      {"qwen3_xml",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n<b>\"x\"\n\\ </b>\n\n"
       "</parameter>\n<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>",
       {"",
        "",
        {{"get_weather", R"({"city": "\n<b>\"x\"\n\\ </b>\n", "days": "many"})", "", true}}}},
      // The end within the tag before a value.
      {"glm",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_val",
       {"", "", {{"get_weather", R"({"city": ""})", "", true}}}},
      // Repeated and unknown parameters.
      {"qwen3_xml",
       "<tool_call><function=now><parameter=a>1</parameter><parameter=a>2</parameter>"
       "<parameter=b>x y</parameter></function></tool_call>",
       {"", "", {{"now", R"({"a": 1, "b": "x y"})", "", true}}}},
      // Without the outer tag.
      {"qwen3_xml",
       "Well. <function=now>\n</function>\n</tool_call>",
       {"Well.", "", {{"now", "{}", "", true}}}},
      {"qwen3_xml",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
       {"", "", {{"get_weather", "{\"city\": \"Par"}}},
       false,
       true},
      {"qwen3_xml",
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis",
       {"", "", {{"get_weather", R"({"city": "Paris"})", "", true}}}},
      {"qwen3_xml", "<tool_call>\nhello <function", {"<tool_call>\nhello <function"}},
      {"qwen3_xml",
       "Hm.\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n</think>\n\nSo.",
       {"So.", "Hm.", {{"now", "{}", "", true}}},
       true},
      {"ling3",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
       {"", "", {{"get_weather", kParis, "", true}}}},
      {"glm45",
       "<tool_call>get_weather<arg_key>city</arg_key><arg_value>\nIl \"y\" a\n</arg_value>"
       "</tool_call><tool_call>now</tool_call>",
       {"",
        "",
        {{"get_weather", R"({"city": "\nIl \"y\" a\n"})", "", true}, {"now", "{}", "", true}}}},
  };
}

// Values, keys and calls that a model leaves unclosed: no text is lost, no argument invented.
std::vector<Case> UnclosedCases() {
  const std::string open = "<tool_call>\n<function=get_weather>\n";
  const std::string close = "</function>\n</tool_call>";
  const std::string city = "<parameter=city>\n", days = "<parameter=days>\n3\n</parameter>\n";
  const std::string now = "<tool_call>\n<function=now>\n" + close;
  const Call paris{"get_weather", R"({"city": "Paris"})", "", true};
  const Call both{"get_weather", kParis, "", true}, no_arguments{"now", "{}", "", true};
  return {
      {"qwen3_xml", open + city + "Paris\n" + close, {"", "", {paris}}},
      {"qwen3_xml", open + city + "Paris\n" + close + "\nDone.", {"\nDone.", "", {paris}}},
      {"qwen3_xml", open + city + "Paris" + close + "Done.", {"Done.", "", {paris}}},
      {"qwen3_xml", open + city + "Paris\n</tool_call>", {"", "", {paris}}},
      {"qwen3_xml", open + city + "Paris\n" + days + close, {"", "", {both}}},
      {"qwen3_xml",
       open + "<parameter=days>\n3\n<parameter=note>\nnull\n" + close,
       {"", "", {{"get_weather", R"({"days": 3, "note": null})", "", true}}}},
      {"qwen3_xml",
       open + city + "Paris\n" + close + "\n" + now + "\nSo.",
       {"\nSo.", "", {paris, no_arguments}}},
      {"qwen3_xml",
       open + city + "Paris\n" + close + "\n" + open + days + close,
       {"", "", {paris, {"get_weather", R"({"days": 3})", "", true}}}},
      // A value that is closed is all before that, and one that is cut off may yet be closed.
      {"qwen3_xml",
       open + city + "a <parameter=b>\n" + close + "\n <tool_cal c\n</parameter>\n" + close,
       {"",
        "",
        {{"get_weather", R"({"city": "a <parameter=b>\n</function>\n</tool_call>\n <tool_cal c"})",
          "", true}}}},
      {"qwen3_xml",
       open + city + "Paris\n" + close + "\nDo",
       {"", "", {{"get_weather", R"({"city": "Paris\n</function>\n</tool_call>\nDo)"}}},
       false,
       true},
      // A key without its end, and a call without its own.
      {"qwen3_xml",
       open + "<parameter=city\nParis\n</parameter>\n" + days + close,
       {"", "", {{"get_weather", R"({"days": 3})", "", true}}}},
      {"qwen3_xml",
       open + days + open + city + "Paris\n</parameter>\n" + close,
       {"", "", {{"get_weather", R"({"days": 3})", "", true}, paris}}},
      {"qwen3_xml",
       open + days + "So it is <b.\n",
       {"So it is <b.\n", "", {{"get_weather", R"({"days": 3})", "", true}}}},
      {"qwen3_xml",
       "<function=now>\nWell.\n" + now + "\nSo.",
       {"Well.\nSo.", "", {no_arguments, no_arguments}}},
      {"glm",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris\n"
       "<arg_key>days</arg_key>\n<arg_value>3</tool_call>\nDone.",
       {"\nDone.", "", {both}}},
      {"glm",
       "<tool_call>get_weather\n<arg_key>city\n<arg_value>Paris</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
       {"", "", {{"get_weather", R"({"days": 3})", "", true}}}},
      // Text behind a call that is not closed keeps its fences and brackets.
      {"qwen3_xml",
       "<function=now>\n</function>\n\n```sh\nls\n```",
       {"\n\n```sh\nls\n```", "", {no_arguments}}},
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}\n```sh\nls\n```\n",
       {"\n```sh\nls\n```\n", "", {no_arguments}}},
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}}\n```\n</tool_call>",
       {"", "", {no_arguments}}},
      {"deepseek_v3",
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```\n```sh\nls\n```",
       {"\n```sh\nls\n```", "", {no_arguments}}},
  };
}

std::vector<Case> TokenTagCases() {
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>";
  const std::string open = "<｜tool▁call▁begin｜>", close = "<｜tool▁call▁end｜>";
  const std::string sep = "<｜tool▁sep｜>";
  return {
      {"kimi_k2",
       "Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
       "<|tool_call_argument_begin|>" +
           kParis +
           "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}"
           "<|tool_call_end|><|tool_calls_section_end|>",
       {"Ok.",
        "",
        {{"get_weather", kParis, "functions.get_weather:0", true},
         {"now", "{}", "functions.now:1", true}}}},
      {"kimi",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.now",
       {"<|tool_call_begin|>functions.now"},
       false,
       true},
      {"deepseek_v3",
       "Ok.\n\n" + begin + open + "function" + sep + "get_weather\n```json\n" + kParis + "\n```" +
           close + "\n" + open + "function" + sep + "now\n```json\n{}\n```" + close + end,
       {"Ok.", "", {{"get_weather", kParis, "", true}, {"now", "{}", "", true}}}},
      {"deepseek_v31",
       begin + open + "get_weather" + sep + kParis + close + open + "now" + sep + "{}" + close +
           end,
       {"", "", {{"get_weather", kParis, "", true}, {"now", "{}", "", true}}}},
  };
}

std::vector<Case> AllCases() {
  std::vector<Case> all = HermesCases();
  for (auto* more : {&ObjectlessCases, &ParameterCases, &UnclosedCases, &TokenTagCases}) {
    for (Case& c : (*more)()) all.push_back(std::move(c));
  }
  return all;
}

TEST(AnswerParser, ReadsEveryTranscript) {
  for (const Case& c : AllCases()) {
    ASSERT_NE(FindToolFormat(c.format), nullptr) << c.format;
    EXPECT_EQ(Read(c, {c.text}), c.expected) << c.format << ": " << c.text;
  }
}

TEST(AnswerParser, F5_IsTheSameCutAtEveryByte) {
  for (const Case& c : AllCases()) {
    const std::string_view text = c.text;
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      bytes.push_back(text.substr(i, 1));
      EXPECT_EQ(Read(c, {text.substr(0, i), text.substr(i)}), c.expected) << c.text << " at " << i;
    }
    EXPECT_EQ(Read(c, bytes), c.expected) << c.text << ", byte by byte";
    Rng rng(1);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::string_view> pieces;
      for (size_t at = 0; at < text.size();) {
        pieces.push_back(text.substr(at, 1 + rng.Below(7)));
        at += pieces.back().size();
      }
      EXPECT_EQ(Read(c, pieces), c.expected) << c.text << " in pieces";
    }
  }
}

TEST(AnswerParser, WholeCallsHaveArgumentsThatAreJson) {
  for (const Case& c : AllCases()) {
    for (const Call& call : Read(c, {c.text}).calls) {
      if (!call.whole) continue;
      EXPECT_TRUE(ParseWrittenJson(call.arguments, "arguments")) << c.text << "\n"
                                                                 << call.arguments;
    }
  }
}

TEST(AnswerParser, ArgumentsComeBeforeTheCallHasEnded) {
  const AnswerSyntax syntax{.split_reasoning = false,
                            .reasoning_tags = {},
                            .tools = FindToolFormat("qwen3_xml"),
                            .schemas = ToolSchemas(Tools())};
  AnswerParser parser(syntax, false);
  Answer answer;
  Add(parser.Push("<tool_call>\n<function=get_weather>\n<parameter=city>\nA long str"), &answer);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, "{\"city\": \"A long str");
}

TEST(AnswerParser, AnyTextIsReadWithoutLossOrDelay) {
  // Pieces of tags in any order: nothing crashes, and the cuts make no difference.
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=",
                                          "now",
                                          ">",
                                          "<parameter=",
                                          "a",
                                          "</parameter>",
                                          "</function>",
                                          "\n",
                                          "{",
                                          "}",
                                          "\"name\"",
                                          ":",
                                          "\"now\"",
                                          ",",
                                          "\"arguments\"",
                                          "\"",
                                          "\\",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "</think>",
                                          "[",
                                          "]",
                                          "1",
                                          "x",
                                          "```"};
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    Case c{.format = std::string(ToolFormats()[seed % ToolFormats().size()].name),
           .text = {},
           .expected = {},
           .inside = rng.Below(2) == 0,
           .cut = rng.Below(2) == 0};
    for (uint64_t i = 0, count = 1 + rng.Below(30); i < count; ++i) {
      c.text += words[rng.Below(words.size())];
    }
    const Answer whole = Read(c, {c.text});
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < c.text.size(); ++i)
      bytes.push_back(std::string_view(c.text).substr(i, 1));
    ASSERT_EQ(Read(c, bytes), whole) << c.format << ": " << c.text;
  }
}

// A call is one whether its text comes at once or in pieces, however long the rest of it is; a name
// or a key that does not end is none, at the same place in both.
// The text at once and in pieces of 7 bytes gives the same, and so many calls.
void ExpectCallsHoweverCut(const ToolFormat& format, const std::string& text, size_t calls) {
  const Case c{std::string(format.name), text, {}, false, true};
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at < text.size(); at += 7) {
    pieces.push_back(std::string_view(text).substr(at, 7));
  }
  const Answer whole = Read(c, {text});
  EXPECT_EQ(whole, Read(c, pieces)) << format.name << text.substr(0, 60);
  EXPECT_EQ(whole.calls.size(), calls) << format.name << text.substr(0, 60);
}

TEST(AnswerParser, BoundsDoNotDependOnThePieces) {
  const std::string more(10'000, 'x');
  for (const ToolFormat& format : ToolFormats()) {
    const std::string open(format.open[0]), close(format.close);
    if (format.body == ToolFormat::Body::kJsonCall) {
      const std::string begin = open + R"({"name": "now", "arguments": {"a": ")" + more;
      const std::string endless = open + more;
      ExpectCallsHoweverCut(format, begin, 1);
      ExpectCallsHoweverCut(format, endless, 0);
      ExpectCallsHoweverCut(format, begin + endless, 1);
      ExpectCallsHoweverCut(format, open + R"({"name": ")" + more + "\"}" + close, 0);
      ExpectCallsHoweverCut(format, open + "{\"" + more + R"(": 1, "name": "now"})" + close, 0);
      continue;
    }
    const auto header = [&](const std::string& name) {
      return open + std::string(format.name_begin) + std::string(format.name_prefix) + name +
             std::string(format.name_end) + "\n";
    };
    const auto key = [&](const std::string& name) {
      return std::string(format.key_begin) + name + std::string(format.key_end) +
             std::string(format.value_begin);
    };
    const std::string begin = header("now") + key("a") + more;
    const std::string endless = open + std::string(format.name_begin) + more;
    ExpectCallsHoweverCut(format, begin, 1);
    ExpectCallsHoweverCut(format, endless, 0);
    ExpectCallsHoweverCut(format, begin + endless, 1);
    ExpectCallsHoweverCut(format, header(more) + "{}" + close, 0);
    if (format.key_begin.empty()) continue;
    const std::string end = "1" + std::string(format.value_end) + std::string(format.body_end);
    ExpectCallsHoweverCut(format, header("now") + key(more) + end + close, 1);
  }
}

// Arguments that are no object are held back until they end or pass a bound. Nothing is lost.
TEST(AnswerParser, LongArgumentsThatAreNoObjectAreWhole) {
  std::string list = "[0";
  while (list.size() < 200'000) list += ", " + std::to_string(list.size());
  list += "]";
  const std::string text = R"(<tool_call>{"name": "now", "arguments": )" + list + "}</tool_call>";
  const Answer expected{"", "", {{"now", list, "", true}}};
  EXPECT_EQ(Read({"hermes", text, {}}, {text}), expected);
  const size_t half = text.size() / 2;
  EXPECT_EQ(Read({"hermes", text, {}},
                 {std::string_view(text).substr(0, half), std::string_view(text).substr(half)}),
            expected);
}

// What is too long for a key is dropped; no half of a character is left of it.
TEST(AnswerParser, LongKeysAreCutBetweenCharacters) {
  std::string key;
  while (key.size() < 4200) key += "世";
  for (const ToolFormat& format : ToolFormats()) {
    if (format.key_begin.empty()) continue;
    const std::string text = std::string(format.open[0]) + std::string(format.name_begin) + "now" +
                             std::string(format.name_end) + "\n" + std::string(format.key_begin) +
                             key;
    ExpectCallsHoweverCut(format, text, 1);
    const Answer expected{key.substr(4095), "", {{"now", "{}", "", true}}};
    EXPECT_EQ(Read({std::string(format.name), text, {}}, {text}), expected) << format.name;
  }
}

// Work that grows with the square of the text would take minutes on a request's body.
TEST(AnswerParser, LongTextsTakeTimeInProportion) {
  constexpr size_t kBytes = 1 << 18;
  const json::array tools = Tools();
  for (const ToolFormat& format : ToolFormats()) {
    const std::string open(format.open[0]), name(format.name_begin);
    const std::string call = open + name + "now" + std::string(format.name_end) + "\n";
    const std::string starts[] = {"",
                                  open,
                                  call,
                                  call + std::string(format.key_begin),
                                  call + std::string(format.key_begin) + "k" +
                                      std::string(format.key_end) + std::string(format.value_begin),
                                  open + "{\"name\": \"now\", \"arguments\": "};
    const std::string parts[] = {"x ",
                                 "<",
                                 "{\"a\": [",
                                 "\"",
                                 "\\",
                                 open,
                                 call,
                                 std::string(format.section[0]),
                                 open + "{\"arguments\": \"",
                                 open + "{",
                                 std::string(format.key_begin)};
    for (const std::string& start : starts) {
      for (const std::string& part : parts) {
        if (part.empty()) continue;
        const AnswerSyntax syntax{.split_reasoning = true,
                                  .reasoning_tags = {},
                                  .tools = &format,
                                  .schemas = ToolSchemas(tools)};
        const auto seconds = [&](size_t bytes) {
          std::string text = start;
          while (text.size() < bytes) text += part;
          const double before = CpuSeconds();
          AnswerParser parser(syntax, false);
          parser.Push(text);
          parser.Flush(false);
          return CpuSeconds() - before;
        };
        // In proportion is 4 times, the square 16; what is added is the clock's own error.
        EXPECT_LT(seconds(kBytes), 8 * seconds(kBytes / 4) + 0.05)
            << format.name << " " << start << " and " << part;
      }
    }
  }
}

TEST(AnswerParser, WithoutAFormatCallsAreText) {
  const AnswerSyntax syntax;
  AnswerParser parser(syntax, false);
  Answer answer;
  Add(parser.Push("<tool_call>{\"name\": \"now\"}</tool_call>\n"), &answer);
  Add(parser.Flush(false), &answer);
  EXPECT_EQ(answer, (Answer{"<tool_call>{\"name\": \"now\"}</tool_call>\n", "", {}}));
}

TEST(ToolFormat, IsKnownByTheTemplateThatTeachesIt) {
  const auto detected = [](std::string_view text) {
    const ToolFormat* format = DetectToolFormat(text);
    return format == nullptr ? std::string_view("none") : format->name;
  };
  EXPECT_EQ(detected("{{ messages }}"), "none");
  EXPECT_EQ(detected("<tool_call>{\"name\": …"), "hermes");
  EXPECT_EQ(detected("<tool_call>\n<function=x>\n<parameter=y>"), "qwen3_xml");
  EXPECT_EQ(detected("<tool_call>x\n<arg_key>k</arg_key><arg_value>v"), "glm");
  EXPECT_EQ(detected("<|tool_call_begin|>x<|tool_call_argument_begin|>"), "kimi");
  EXPECT_EQ(detected("<｜tool▁call▁begin｜>function<｜tool▁sep｜>\\n```json"), "deepseek_v3");
  EXPECT_EQ(detected("<｜tool▁call▁begin｜>x<｜tool▁sep｜>{}"), "deepseek_v31");
  EXPECT_EQ(FindToolFormat("qwen25")->name, "hermes");
  EXPECT_EQ(FindToolFormat("nothing"), nullptr);
  EXPECT_EQ(FindToolFormat(""), nullptr);
}

TEST(ReasoningFormat, SaysWhereAnAnswerBegins) {
  EXPECT_TRUE(StartsInReasoning(*FindReasoningFormat("think"), "x<think>\n"));
  EXPECT_FALSE(StartsInReasoning(*FindReasoningFormat("think"), "x"));
  EXPECT_TRUE(StartsInReasoning(*FindReasoningFormat("deepseek-r1"), "x"));
  EXPECT_FALSE(StartsInReasoning(*FindReasoningFormat("deepseek-r1"), "x</think>\n"));
  EXPECT_FALSE(StartsInReasoning(*FindReasoningFormat("none"), "x<think>"));
  EXPECT_EQ(DetectReasoningFormat("a ◁think▷ b").tags.open, "◁think▷");
  EXPECT_FALSE(FindReasoningFormat("psychic"));
}

}  // namespace
}  // namespace braid
