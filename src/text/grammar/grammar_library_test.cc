// Grammars as requests name them: kept, copied, bounded; and tool calls that a grammar forces are
// read back by the parser of their format.
#include "text/grammar/grammar_library.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "text/answer/answer_parser.h"
#include "text/grammar/schema_limits.h"
#include "text/grammar/tool_grammar.h"
#include "text/test_model.h"

namespace braid {
namespace {

using testing::HasSubstr;

// As json.dumps writes it, and as grammars demand it.
std::string JsonOnOneLine(const json::object& value) {
  std::string out = "{";
  for (const auto& [key, member] : value) {
    out += fmt::format("{}\"{}\": {}", out.size() > 1 ? ", " : "", std::string_view(key),
                       json::serialize(member));
  }
  return out + "}";
}

// A call of "f" as a format writes it that has no JSON around the values.
std::string WrittenCall(const ToolFormat& format,
                        std::initializer_list<std::pair<std::string_view, std::string_view>> all) {
  std::string out(format.write_begin);
  out.replace(out.find("{NAME}"), 6, "f");
  const std::string_view newline = format.value_newlines ? "\n" : "";
  for (const auto& [key, value] : all) {
    out += fmt::format("{}{}{}{}{}{}{}{}{}\n", format.key_begin, key, format.key_end,
                       format.value_begin.empty() ? "" : "\n", format.value_begin, newline, value,
                       newline, format.value_end);
  }
  return fmt::format("{}{}{}{}", format.section[0], out, format.write_end, format.section[1]);
}

class GrammarLibraryTest : public testing::Test {
 protected:
  GrammarLibraryTest() : tokenizer_(LoadBraidTiny()), end_(*tokenizer_.TokenToId("<|im_end|>")) {}

  std::unique_ptr<GrammarLibrary> Library(int64_t bytes_max = int64_t{256} << 20) const {
    auto library = GrammarLibrary::Create(tokenizer_, end_, {.bytes_max = bytes_max});
    CHECK(library.ok());
    return *std::move(library);
  }

  // Random allowed tokens. What ends a string, a list, a value or all is begun now and then and
  // then written to its end.
  std::string Sample(TokenConstraint* constraint, Rng* rng, bool* ended) const {
    std::vector<TokenId> ids;
    std::vector<uint32_t> words(4096 / 32);
    *ended = false;
    std::string_view closer;  // what is left of it
    for (int i = 0; i < 400; ++i) {
      EXPECT_TRUE(constraint->Mask(words));
      std::vector<TokenId> allowed, closing;
      const bool begins = closer.empty() && rng->Below(4) == 0;
      constexpr std::string_view kClosers[] = {"\"", "]", "}", "\n</parameter>\n",
                                               "</arg_value>\n"};
      if (begins) closer = kClosers[rng->Below(std::size(kClosers))];
      for (TokenId id = 0; id < 4096; ++id) {
        if ((words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) continue;
        allowed.push_back(id);
        const std::string_view bytes = tokenizer_.TokenBytes(id);
        if (!bytes.empty() && closer.starts_with(bytes)) closing.push_back(id);
        if (id == end_) closing = {id};
        if (id == end_) break;
      }
      if (allowed.empty()) return {};
      const TokenId id = closing.empty() ? allowed[rng->Below(allowed.size())]
                                         : closing[rng->Below(closing.size())];
      *ended = id == end_;
      if (*ended) break;
      closer.remove_prefix(closing.empty() ? closer.size() : tokenizer_.TokenBytes(id).size());
      EXPECT_TRUE(constraint->Accept(id));
      ids.push_back(id);
    }
    return tokenizer_.Decode(ids, false);
  }

  // Whether a grammar allows a text, and the end behind it.
  bool Accepts(GrammarLibrary& library, const std::string& text, std::string_view answer) const {
    const Status status = library.Check(text).status;
    EXPECT_TRUE(status) << status.error().message << "\n" << text;
    if (!status) return false;
    auto constraint = *library.Start(text, false);
    std::vector<uint32_t> words(4096 / 32);
    const auto allows = [&](TokenId id) {
      return (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    };
    const std::vector<TokenId> ids = *tokenizer_.Encode(answer, false);
    for (const TokenId id : ids) {
      EXPECT_TRUE(constraint->Mask(words));
      if (!allows(id)) return false;
      EXPECT_TRUE(constraint->Accept(id));
    }
    EXPECT_TRUE(constraint->Mask(words));
    return allows(end_);
  }

  Tokenizer tokenizer_;
  TokenId end_;
};

TEST_F(GrammarLibraryTest, AConstraintIsAFunctionOfTheTokensItAccepted) {
  auto library = Library();
  const std::string text = GrammarText(GrammarKind::kRegex, "[a-z]{3}[0-9]{3}");
  auto first = *library->Start(text, false), second = *library->Start(text, false);
  std::vector<uint32_t> one(128), two(128);
  for (std::string_view token : {"a", "b", "c", "1"}) {
    ASSERT_TRUE(first->Accept(*tokenizer_.TokenToId(token)));
  }
  auto third = *library->Start(text, false);
  ASSERT_TRUE(second->Mask(one));
  ASSERT_TRUE(third->Mask(two));
  EXPECT_EQ(one, two) << "one stream does not change another";
  for (std::string_view token : {"a", "b", "c", "1"}) {
    ASSERT_TRUE(second->Accept(*tokenizer_.TokenToId(token)));
  }
  ASSERT_TRUE(first->Mask(one));
  ASSERT_TRUE(second->Mask(two));
  EXPECT_EQ(one, two);
  EXPECT_FALSE(first->Accept(*tokenizer_.TokenToId("x")));
}

TEST_F(GrammarLibraryTest, NewlinesBeforeTheAnswerAreNotPartOfIt) {
  auto library = Library();
  auto constraint = *library->Start(GrammarText(GrammarKind::kRegex, "ab"), true);
  const TokenId newline = *tokenizer_.TokenToId("Ċ"), a = *tokenizer_.TokenToId("a");
  EXPECT_TRUE(constraint->Accept(newline));
  EXPECT_TRUE(constraint->Accept(newline));
  std::vector<uint32_t> words(128);
  ASSERT_TRUE(constraint->Mask(words));
  const auto allows = [&](TokenId id) {
    return (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  EXPECT_FALSE(allows(newline));
  EXPECT_TRUE(allows(a));
  EXPECT_TRUE(constraint->Accept(a));
  EXPECT_FALSE(constraint->Accept(newline));
}

TEST_F(GrammarLibraryTest, KeepsWhatFitsAndStillCompilesTheRest) {
  auto library = Library(600 << 10);  // two grammars
  for (int round = 0; round < 3; ++round) {
    for (char c = 'a'; c < 'f'; ++c) {
      EXPECT_TRUE(library->Check(GrammarText(GrammarKind::kRegex, std::string(1, c))).status);
    }
  }
  EXPECT_FALSE(library->Check("regex\n(open").status);
  EXPECT_FALSE(library->Check("poem\na").status);
  EXPECT_FALSE(library->Check("").status);
}

TEST_F(GrammarLibraryTest, WhatFitsBesideANewGrammarStays) {
  auto library = Library();
  const std::string kinds[] = {"a", "b", "c"};
  for (const std::string& kind : kinds) {
    EXPECT_TRUE(library->Check(GrammarText(GrammarKind::kRegex, kind)).status);
  }
  for (const std::string& kind : kinds) {
    EXPECT_TRUE(library->Known(GrammarText(GrammarKind::kRegex, kind))) << kind;
  }
}

TEST_F(GrammarLibraryTest, ATenantDoesNotFindAnothersGrammars) {
  auto library = Library();
  const auto text = [](std::string_view tenant) {
    return GrammarText(GrammarKind::kRegex, "[a-z]{300}", tenant);
  };
  EXPECT_GT(library->Check(text("ann")).work_us, 0);
  EXPECT_EQ(library->Check(text("ann")).work_us, 0);
  EXPECT_TRUE(library->Known(text("ann")));
  EXPECT_FALSE(library->Known(text("ben")));
  EXPECT_FALSE(library->Known(text("")));
  EXPECT_GT(library->Check(text("ben")).work_us, 0);
  EXPECT_TRUE(library->Start(text("ben"), false).ok());
}

// What is asked for at the same time is compiled once.
TEST_F(GrammarLibraryTest, CompilesWhatManyWantOnce) {
  auto library = Library();
  const std::string text = GrammarText(GrammarKind::kRegex, "[a-z]{2000}");
  std::atomic<int> compiled = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { compiled += library->Check(text).work_us > 0 ? 1 : 0; });
  }
  threads.clear();
  EXPECT_EQ(compiled, 1);
}

TEST_F(GrammarLibraryTest, ForcedCallsAreReadBackWithTheirTypes) {
  const json::array tools = ParseJson(R"([
    {"type": "function", "function": {"name": "book", "parameters": {
       "type": "object", "additionalProperties": false, "required": ["who", "seats", "where"],
       "properties": {"who": {"type": "string", "maxLength": 12}, "seats": {"type": "integer",
                      "minimum": 1, "maximum": 99}, "window": {"type": "boolean"},
                      "class": {"type": "string", "enum": ["first", "second"]},
                      "where": {"$ref": "#/$defs/place"}},
       "$defs": {"place": {"type": "object", "properties": {"row": {"enum": [1, 2]}},
                           "required": ["row"], "additionalProperties": false}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {
       "type": "object", "properties": {}, "additionalProperties": false}}}])",
                                      "tools")
                                ->as_array();
  auto library = Library();
  Rng rng(5);
  for (const ToolFormat& format : ToolFormats()) {
    const std::string text = GrammarText(
        GrammarKind::kLark, *ToolGrammarText({.format = format, .tools = tools}, tokenizer_));
    const Status status = library->Check(text).status;
    ASSERT_TRUE(status) << format.name << ": " << status.error().message << "\n" << text;
    const AnswerSyntax syntax{.split_reasoning = false,
                              .reasoning_tags = {},
                              .tools = &format,
                              .schemas = ToolSchemas(tools)};
    int whole = 0, booked = 0;
    for (int i = 0; i < 40; ++i) {
      bool ended = false;
      const std::string answer = Sample(library->Start(text, false)->get(), &rng, &ended);
      if (!ended) continue;
      ++whole;
      AnswerParser parser(syntax, false);
      AnswerEvents events = parser.Push(answer);
      for (AnswerEvent& event : parser.Flush(true)) AddEvent(std::move(event), &events);
      EXPECT_EQ(JoinedText(events, AnswerEvent::Kind::kText), "") << answer;
      std::string name, arguments;
      for (const AnswerEvent& event : events) {
        if (event.kind == AnswerEvent::Kind::kCallBegin) {
          name = event.text;
          arguments.clear();
        }
        if (event.kind == AnswerEvent::Kind::kCallArguments) arguments += event.text;
        if (event.kind != AnswerEvent::Kind::kCallEnd) continue;
        auto value = ParseJson(arguments, "arguments");
        ASSERT_TRUE(value) << format.name << " " << arguments << "\n" << answer;
        if (name == "now") continue;
        ASSERT_EQ(name, "book");
        ++booked;
        const json::object& book = value->as_object();
        EXPECT_TRUE(book.at("who").is_string()) << arguments;
        EXPECT_TRUE(book.at("seats").is_int64()) << arguments;
        EXPECT_TRUE(book.at("where").at("row").is_int64()) << arguments;
        if (book.contains("window")) {
          EXPECT_TRUE(book.at("window").is_bool());
        }
      }
    }
    EXPECT_GT(whole, 10) << format.name;
    EXPECT_GT(booked, 3) << format.name;
  }
}

TEST_F(GrammarLibraryTest, AnEnumWithoutATypeHasTheKindsOfItsValues) {
  auto library = Library();
  for (const std::string_view strict : {"true", "false"}) {
    const std::string tool = fmt::format(
        R"([{{"function": {{"name": "f", "strict": {}, "parameters": {{"type": "object",
            "additionalProperties": false, "required": ["level", "mode"], "properties":
            {{"level": {{"enum": [1, 2]}}, "mode": {{"enum": ["auto", 1]}}}}}}}}}}])",
        strict);
    const json::array tools = ParseJson(tool, "tools")->as_array();
    for (const std::string_view name : {"qwen3_xml", "glm"}) {
      const ToolFormat& format = *FindToolFormat(name);
      const Result<std::string> lark =
          ToolGrammarText({.format = format, .tools = tools}, tokenizer_);
      ASSERT_TRUE(lark) << lark.error().message;
      const std::string text = GrammarText(GrammarKind::kLark, *lark);
      const auto accepts = [&](std::string_view level, std::string_view mode) {
        return Accepts(*library, text, WrittenCall(format, {{"level", level}, {"mode", mode}}));
      };
      EXPECT_TRUE(accepts("1", "auto")) << name;
      EXPECT_TRUE(accepts("2", "1")) << name;
      EXPECT_FALSE(accepts("", "auto")) << name;
      EXPECT_FALSE(accepts("3", "auto")) << name;
      EXPECT_FALSE(accepts("1", "2")) << name;
      EXPECT_FALSE(accepts("1", "\"auto\"")) << name << ": it would be read with its quotes";
      const AnswerSyntax syntax{.split_reasoning = false,
                                .reasoning_tags = {},
                                .tools = &format,
                                .schemas = ToolSchemas(tools)};
      AnswerParser parser(syntax, false);
      AnswerEvents events = parser.Push(WrittenCall(format, {{"level", "2"}, {"mode", "1"}}));
      for (AnswerEvent& event : parser.Flush(true)) AddEvent(std::move(event), &events);
      const std::string arguments = JoinedText(events, AnswerEvent::Kind::kCallArguments);
      EXPECT_EQ(*ParseJson(arguments, "it"), json::value({{"level", 2}, {"mode", 1}})) << name;
    }
  }
}

TEST_F(GrammarLibraryTest, ASchemaThatStandsForAnotherIsEnforcedAsThatOne) {
  auto library = Library();
  const json::array tools = ParseJson(R"([{"function": {"name": "f", "strict": true, "parameters":
      {"type": "object", "additionalProperties": false, "required": ["color"],
       "properties": {"color": {"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"}},
       "$defs": {"Color": {"enum": ["red", "blue"], "title": "Color"}}}}}])",
                                      "tools")
                                ->as_array();
  for (const std::string_view name : {"qwen3_xml", "glm"}) {
    const ToolFormat& format = *FindToolFormat(name);
    const Result<std::string> lark =
        ToolGrammarText({.format = format, .tools = tools}, tokenizer_);
    ASSERT_TRUE(lark) << lark.error().message;
    const std::string text = GrammarText(GrammarKind::kLark, *lark);
    EXPECT_TRUE(Accepts(*library, text, WrittenCall(format, {{"color", "blue"}}))) << name;
    EXPECT_FALSE(Accepts(*library, text, WrittenCall(format, {{"color", "purple"}}))) << name;
  }
}

// For each format: any text, calls of tools that are not strict with any arguments, and of strict
// ones with those of their schemas only.
TEST_F(GrammarLibraryTest, StrictToolsAreHeldToTheirSchemasWithinFreeText) {
  const json::array tools = ParseJson(R"([
    {"type": "function", "function": {"name": "look", "strict": true, "parameters": {
       "type": "object", "additionalProperties": false, "required": ["city", "days", "note"],
       "properties": {"city": {"type": "string", "minLength": 2, "maxLength": 5},
                      "days": {"type": "integer", "minimum": 1, "maximum": 9},
                      "note": {"anyOf": [{"type": "string", "pattern": "^[a-c]+$"},
                                         {"type": "null"}]}}}}},
    {"type": "function", "function": {"name": "look_up", "parameters": {
       "type": "object", "properties": {"word": {"type": "integer"}}}}}])",
                                      "tools")
                                ->as_array();
  auto library = Library();
  for (const ToolFormat& format : ToolFormats()) {
    const std::string text =
        GrammarText(GrammarKind::kLark,
                    *ToolGrammarText({.format = format, .tools = tools, .lazy = true}, tokenizer_));
    const auto accepts = [&](std::string_view answer) { return Accepts(*library, text, answer); };
    const auto call = [&](std::string_view name, const json::object& arguments) {
      std::string out(format.write_begin);
      out.replace(out.find("{NAME}"), 6, name);
      if (const size_t at = out.find("{N}"); at != std::string::npos) out.replace(at, 3, "0");
      if (format.body != ToolFormat::Body::kParameters) {
        return out + JsonOnOneLine(arguments) + std::string(format.write_end);
      }
      const std::string_view newline = format.value_newlines ? "\n" : "";
      for (const auto& [key, value] : arguments) {
        out += fmt::format(
            "{}{}{}{}{}{}{}{}\n", format.key_begin, std::string_view(key), format.key_end,
            format.value_begin.empty() ? "" : "\n", format.value_begin, newline,
            value.is_string() ? std::string(value.get_string()) : json::serialize(value),
            std::string(newline) + std::string(format.value_end));
      }
      return out + std::string(format.write_end);
    };
    const json::object right{{"city", "Rome"}, {"days", 3}, {"note", "abc"}};
    const json::object nothing{{"city", "Rome"}, {"days", 3}, {"note", nullptr}};
    EXPECT_TRUE(accepts("Just a text, a < b, <tool and no call.")) << format.name;
    EXPECT_TRUE(accepts(call("look", right))) << format.name << call("look", right);
    EXPECT_TRUE(accepts("Let me see.\n" + call("look", nothing))) << format.name;
    EXPECT_TRUE(accepts(call("look", right) + "\n" + call("look_up", {{"word", "x"}})))
        << format.name;
    EXPECT_TRUE(accepts(call("look_up", {{"other", "x"}, {"word", 2}}))) << format.name;
    json::object more = right, wrong = right, lengthy = right, unmatched = right, fewer = right;
    more["day"] = "Sunday", wrong["days"] = 30;
    lengthy["city"] = "Amsterdam";
    unmatched["note"] = "xyz";
    fewer.erase("note");
    for (const json::object& arguments : {more, wrong, lengthy, unmatched, fewer}) {
      EXPECT_FALSE(accepts("So: " + call("look", arguments)))
          << format.name << " " << json::serialize(arguments);
    }
    EXPECT_FALSE(accepts(call("lo", right))) << format.name;
  }
}

TEST_F(GrammarLibraryTest, AStrictToolThatAFormatCannotHoldIsRefusedByPointer) {
  const auto text = [&](std::string_view format, std::string_view parameters) {
    const std::string tool = fmt::format(
        R"([{{"function": {{"name": "f", "strict": true, "parameters": {}}}}}])", parameters);
    return ToolGrammarText({.format = *FindToolFormat(format),
                            .tools = ParseJson(tool, "tools")->as_array(),
                            .lazy = true},
                           tokenizer_);
  };
  const std::string_view anchors =
      R"({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a|b$"}}})";
  EXPECT_TRUE(text("hermes", anchors).ok());
  EXPECT_THAT(text("glm", anchors).error().message, HasSubstr("/properties/a/pattern: "));
  EXPECT_THAT(text("qwen3_xml", R"({"properties": {"a": {"type": "string", "format": "email"}}})")
                  .error()
                  .message,
              HasSubstr("/properties/a/format: email"));
  EXPECT_THAT(text("glm", R"({"anyOf": [{}, {}]})").error().message, HasSubstr("/anyOf: "));
  const std::pair<std::string_view, std::string_view> kWrong[] = {
      {R"({"minimum": 1})", "minimum"},
      {R"({"type": "string", "allOf": [{"minLength": 2}]})", "allOf"},
      {R"({"type": ["string", "null"], "allOf": [{"minLength": 2}]})", "allOf"},
      {R"({"allOf": [{"minLength": 2}, {"maxLength": 3}]})", "allOf"},
      {R"({"anyOf": [{"anyOf": [{"type": "integer"}]}, {"type": "null"}]})", "anyOf"},
      {R"({"anyOf": [{"type": "string"}], "maxLength": 2})", "maxLength"},
      {R"({"$ref": "#/$defs/c", "maxLength": 2})", "maxLength"},
      {R"({"enum": ["1", 2]})", "enum"}};
  for (const auto& [schema, keyword] : kWrong) {
    const std::string all =
        fmt::format(R"({{"properties": {{"a": {}}}, "$defs": {{"c": {{}}}}}})", schema);
    const Result<std::string> wrong = text("glm", all);
    ASSERT_FALSE(wrong) << schema;
    EXPECT_THAT(wrong.error().message, HasSubstr(fmt::format("/properties/a/{}: ", keyword)));
  }
  EXPECT_TRUE(text("glm", R"({"properties": {"a": {"type": "integer", "allOf": [{"minimum": 2}]},
                             "b": {"anyOf": [{"minLength": 2}, {"type": "null"}], "title": "b"},
                             "c": {"pattern": "^a$"}, "d": {},
                             "e": {"type": "object", "anyOf": [{"required": ["x"]}, {}]}}})")
                  .ok());
}

TEST_F(GrammarLibraryTest, GbnfBecomesLark) {
  auto library = Library();
  const Result<std::string> lark = LarkFromGbnf(
      "# a list\nroot ::= \"[\" item (\", \" item)*   \"]\"\nitem ::= number |\n  word-2\n"
      "number ::= [0-9]{1,2}\nword-2 ::= 'it\"s' [a-c/]+\n");
  ASSERT_TRUE(lark);
  const std::string text = GrammarText(GrammarKind::kLark, *lark);
  const Status status = library->Check(text).status;
  ASSERT_TRUE(status) << status.error().message << *lark;
  Rng rng(3);
  int whole = 0;
  for (int i = 0; i < 20; ++i) {
    bool ended = false;
    const std::string answer = Sample(library->Start(text, false)->get(), &rng, &ended);
    if (!ended) continue;
    ++whole;
    EXPECT_THAT(answer, testing::MatchesRegex(
                            "\\[([0-9]{1,2}|it\"s[a-c/]+)(, ([0-9]{1,2}|it\"s[a-c/]+))*\\]"));
  }
  EXPECT_GT(whole, 5);
  EXPECT_EQ(*LarkFromGbnf("start: \"x\""), "start: \"x\"");
  EXPECT_THAT(LarkFromGbnf("item ::= \"x\"").error().message, HasSubstr("root"));
  EXPECT_THAT(LarkFromGbnf("root ::= \"x").error().message, HasSubstr("line 1"));
  EXPECT_THAT(LarkFromGbnf("root ::= a\na ::= [b\n").error().message, HasSubstr("line 2"));
}

TEST_F(GrammarLibraryTest, ADotOfAGbnfGrammarIsAnyCharacter) {
  const Result<std::string> lark = LarkFromGbnf("root ::= \"a\" .* any.\nany ::= [x-z]\n");
  ASSERT_TRUE(lark);
  const Status status = Library()->Check(GrammarText(GrammarKind::kLark, *lark)).status;
  EXPECT_TRUE(status) << status.error().message << *lark;
}

TEST_F(GrammarLibraryTest, AClassOfAGbnfGrammarHoldsWhatItsSyntaxSays) {
  struct Case {
    std::string_view written;
    std::vector<std::string_view> in, out;
  };
  const std::vector<Case> cases = {{"[[(]", {"[", "("}, {"]", "a"}},
                                   {"[][]", {}, {}},
                                   {"[a-]", {"a", "-"}, {"b"}},
                                   {"[-a]", {"a", "-"}, {"b"}},
                                   {"[a-c-]", {"b", "-"}, {"d"}},
                                   {"[a\\-c]", {"a", "-", "c"}, {"b", "\\"}},
                                   {"[+--]", {"+", ",", "-"}, {"."}},
                                   {"[\\]x]", {"]", "x"}, {"\\"}},
                                   {"[\\[\\\\]", {"[", "\\"}, {"x"}},
                                   {"[^\\n\"]", {"a", "^", "'"}, {"\n", "\""}},
                                   {"[a^]", {"a", "^"}, {"b"}},
                                   {"[a&&b~~c]", {"a", "b", "c", "&", "~"}, {"d"}},
                                   {"[#/.*]", {"#", "/", ".", "*"}, {"a"}},
                                   {"[\\x41-\\x43]", {"A", "B", "C"}, {"D", "x"}},
                                   {"[\\u00e9\\U0001F600]", {"é", "😀"}, {"e", "U"}},
                                   {"[ぁ-ゟ]", {"あ", "ゟ"}, {"ア", "a"}},
                                   {"[\\w ]", {"a", "_", " "}, {"-"}}};
  auto library = Library();
  for (const Case& c : cases) {
    const Result<std::string> lark = LarkFromGbnf(fmt::format("root ::= {}\n", c.written));
    ASSERT_EQ(lark.ok(), !c.in.empty()) << c.written;
    if (!lark) continue;
    const std::string text = GrammarText(GrammarKind::kLark, *lark);
    for (std::string_view one : c.in) EXPECT_TRUE(Accepts(*library, text, one)) << c.written << one;
    for (std::string_view one : c.out) {
      EXPECT_FALSE(Accepts(*library, text, one)) << c.written << one;
    }
  }
  const auto error = [](std::string_view rule) {
    return LarkFromGbnf(fmt::format("root ::= a\na ::= {}\n", rule)).error().message;
  };
  EXPECT_THAT(error("[]"), HasSubstr("line 2 of the grammar: a class of characters is empty"));
  EXPECT_THAT(error("[z-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(error("[a-\\q]"), HasSubstr("\\q is no escape"));
  EXPECT_THAT(error("[\\x4]"), HasSubstr("\\x needs 2 hexadecimal digits"));
  EXPECT_THAT(error("[\\uD800]"), HasSubstr("\\uD800 is no character"));
  EXPECT_THAT(error("[\\U00110000]"), HasSubstr("is no character"));
  EXPECT_THAT(error("[a\\"), HasSubstr("a backslash"));
}

TEST_F(GrammarLibraryTest, EscapesOfAGbnfStringAreThoseOfItsClasses) {
  const Result<std::string> lark = LarkFromGbnf(R"(root ::= "\x41\u00e9\U0001F600\"\[\\\n" '"\'é')"
                                                "\n");
  ASSERT_TRUE(lark) << lark.error().message;
  auto library = Library();
  EXPECT_TRUE(Accepts(*library, GrammarText(GrammarKind::kLark, *lark), "Aé😀\"[\\\n\"'é"));
}

// Text of a request and names of tools may look like the places in a format's rows of data.
TEST_F(GrammarLibraryTest, PlacesOfFormatsInTextsAreText) {
  auto library = Library();
  const json::value tag = *ParseJson(R"({"triggers": ["<f="], "structures": [
      {"begin": "<f={N}{NAME}>", "schema": {"type": "integer"}, "end": "{N}</f>"}]})",
                                     "tag");
  const std::string structure = GrammarText(GrammarKind::kLark, StructuralTagText(tag, tokenizer_));
  EXPECT_TRUE(Accepts(*library, structure, "So: <f={N}{NAME}>12{N}</f>"));
  EXPECT_FALSE(Accepts(*library, structure, "So: <f=7{NAME}>12{N}</f>"));
  EXPECT_FALSE(Accepts(*library, structure, "So: <f={N}{NAME}>12 7</f>"));
  const json::array tools = ParseJson(R"([{"function": {"name": "f{N}"}}])", "tools")->as_array();
  const std::string call = GrammarText(
      GrammarKind::kLark,
      *ToolGrammarText({.format = *FindToolFormat("kimi"), .tools = tools}, tokenizer_));
  const auto calls = [&](std::string_view name) {
    return Accepts(*library, call,
                   fmt::format("<|tool_calls_section_begin|><|tool_call_begin|>functions.{}:3"
                               "<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
                               "<|tool_calls_section_end|>",
                               name));
  };
  EXPECT_TRUE(calls("f{N}"));
  EXPECT_FALSE(calls("f3"));
}

TEST_F(GrammarLibraryTest, AChoiceIsOneOfTheTexts) {
  auto library = Library();
  const std::string text =
      GrammarText(GrammarKind::kLark, ChoiceGrammarText({"yes", "no \"way\"", "ma/y\\be"}));
  Rng rng(4);
  for (int i = 0; i < 10; ++i) {
    bool ended = false;
    EXPECT_THAT(Sample(library->Start(text, false)->get(), &rng, &ended),
                testing::AnyOf(HasSubstr("yes"), HasSubstr("no \"way\""), HasSubstr("ma/y\\be")));
    EXPECT_TRUE(ended);
  }
}

std::string SchemaError(const std::string& schema) {
  const Status status = CheckSchema(*ParseJson(schema, "schema", {.depth_max = 100}));
  return status ? "fine" : status.error().message;
}

std::string RegexError(const std::string& regex) {
  const Status status = CheckRegex(regex);
  return status ? "fine" : status.error().message;
}

TEST(SchemaLimits, HoldAtTheirValueAndNotAbove) {
  EXPECT_EQ(SchemaError(R"({"type": "array", "maxItems": 10000})"), "fine");
  EXPECT_THAT(SchemaError(R"({"type": "array", "maxItems": 10001})"), HasSubstr("maxItems"));
  EXPECT_EQ(SchemaError(R"({"maxItems": 100, "items": {"maxItems": 100}})"), "fine");
  EXPECT_THAT(SchemaError(R"({"maxItems": 100, "items": {"maxItems": 101}})"),
              HasSubstr("at most 10000"));
  EXPECT_THAT(SchemaError(R"({"maxItems": 9223372036854775807})"), HasSubstr("maxItems"));
  EXPECT_THAT(SchemaError(R"({"$ref": "https://example.com/s.json"})"), HasSubstr("within"));
  EXPECT_THAT(SchemaError(R"({"pattern": "a{10001}"})"), HasSubstr("repetition"));
  std::string values = "\"\"";
  for (int i = 1; i < 5000; ++i) values += "," + std::to_string(i);
  EXPECT_EQ(SchemaError("{\"enum\": [" + values + "]}"), "fine");
  EXPECT_THAT(SchemaError("{\"enum\": [" + values + ",0]}"), HasSubstr("enum is 5001"));
  std::string deep = "{}";
  for (int i = 1; i < 32; ++i) deep = "{\"properties\": {\"a\": " + deep + "}}";
  EXPECT_EQ(SchemaError(deep), "fine");
  EXPECT_THAT(SchemaError("{\"properties\": {\"a\": " + deep + "}}"), HasSubstr("32 levels"));
  EXPECT_THAT(SchemaError("{\"description\": \"" + std::string(65536, 'x') + "\"}"),
              HasSubstr("at most 65536"));
}

TEST(SchemaLimits, RepetitionsMultiplyThroughGroups) {
  EXPECT_EQ(RegexError("a{10000}"), "fine");
  EXPECT_NE(RegexError("a{10001}"), "fine");
  EXPECT_EQ(RegexError("(a{100}b){100}"), "fine");
  EXPECT_NE(RegexError("(a{100}b){101}"), "fine");
  EXPECT_NE(RegexError("((x|a{100}){10}){11}"), "fine");
  EXPECT_NE(RegexError("a{99999999999999999999}"), "fine");
  EXPECT_NE(RegexError("(a{3,}){5000}"), "fine");
  EXPECT_EQ(RegexError("[{10001}]\\{10001}{x"), "fine");
  EXPECT_EQ(RegexError(std::string(4096, 'a')), "fine");
  EXPECT_NE(RegexError(std::string(4097, 'a')), "fine");
}

}  // namespace
}  // namespace braid
