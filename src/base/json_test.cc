// What JSON is refused, and how values are told in messages.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/text/written_json.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text, JsonLimits limits = {}) {
  const Result<json::value> value = ParseJson(text, "it", limits);
  return value ? "" : value.error().message;
}

TEST(Json, AKeyThatStandsTwiceInOneObjectIsRefusedAndNamed) {
  for (const char* text : {R"({"a": 1, "a": 2})", R"({"b": {"a": 1, "c": [2], "a": 3}})",
                           R"([{"x": {}, "a": [{"a": 1}], "a": 2}])",
                           R"({"a": "\"", "b": [1, {}], "a": 0})", R"([[{"a": {}, "a": {}}]])"}) {
    const Result<json::value> value = ParseJson(text, "it");
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().field, "a") << text;
    EXPECT_THAT(value.error().message, HasSubstr("appears twice")) << text;
  }
}

TEST(Json, OfEqualKeysThatAModelWroteTheLastCounts) {
  EXPECT_EQ(*ParseWrittenJson(R"({"a": 1, "b": {"c": 2, "c": 3}, "a": 4})", "it"),
            json::parse(R"({"b": {"c": 3}, "a": 4})"));
  EXPECT_FALSE(ParseWrittenJson("{\"a\": 1", "it").ok());
  EXPECT_FALSE(ParseWrittenJson("[1e400]", "it").ok());
  EXPECT_FALSE(ParseWrittenJson("[[[1]]]", "it", {.depth_max = 2}).ok());
}

TEST(Json, EqualKeysOfDifferentObjectsAndEqualStringsAreNoDuplicates) {
  for (const char* text :
       {R"([{"a": 1}, {"a": 1}])", R"({"a": {"a": {"a": 1}}})", R"({"a": "a", "b": "a"})",
        R"({"a": ["b", "b", {"b": 1}], "b": 1})", R"(["a", "a", ["a"], "a"])",
        R"({"x": [["a", "a"], ["a"]], "y": "a", "a": "a"})", R"({"a\"": 1, "a": 2})", R"("a")"}) {
    EXPECT_EQ(ErrorOf(text), "") << text;
  }
}

TEST(Json, NumbersThatNoDoubleHoldsAreRefusedWhereverTheyStand) {
  for (const char* text :
       {"1e400", "-1e400", "[1, [1e400]]", R"({"a": {"b": [-1e999]}})", "0e400"}) {
    EXPECT_NE(ErrorOf(text), "") << text;
  }
  for (const char* text : {"1e308", "[-1.7e308, 0.0]", "1e-400"}) EXPECT_EQ(ErrorOf(text), "");
}

TEST(Json, ADecimalIsTheNearestDouble) {
  const auto expect = [](const std::string& text) {
    const Result<json::value> value = ParseJson("[" + text + "]", "it");
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(value->at(0).as_double(), std::strtod(text.c_str(), nullptr)) << text;
  };
  for (const char* text :
       {"94.95886283158103", "18.183216676054286", "-94.95886283158103", "0.1", "-0.0", "5e-324",
        "1.7976931348623157e308", "123456789012345678901234567890.5", "9.495886283158103E+1"}) {
    expect(text);
  }
  uint64_t digits = 1;
  for (int i = 0; i < 500; ++i) {
    digits = digits * 6364136223846793005u + 1442695040888963407u;
    const uint64_t most = 90'000'000'000'000'000;  // 17 digits with what follows
    const std::string all = std::to_string(digits % most + most / 9);
    expect(all.substr(0, 1 + i % 16) + "." + all.substr(1 + i % 16));
    expect(all + "e-" + std::to_string(i % 300));
  }
}

TEST(Json, WhatIsNoJsonOrTooMuchIsRefused) {
  for (const char* text : {"", "{", "[1,]", "{} x", "nul", "NaN", "[1e999", "\"\xff\""}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("not valid JSON near byte")) << text;
  }
  EXPECT_EQ(ErrorOf(" [1] \r\n\t"), "");
  EXPECT_EQ(ErrorOf("[[1]]", {.depth_max = 2}), "");
  EXPECT_NE(ErrorOf("[[[1]]]", {.depth_max = 2}), "");
  EXPECT_EQ(ErrorOf("[10]", {.bytes_max = 4}), "");
  EXPECT_THAT(ErrorOf("[100]", {.bytes_max = 4}), HasSubstr("5 bytes of JSON, at most 4"));
}

TEST(Json, AnExcerptEndsAtAWholeCharacter) {
  EXPECT_EQ(JsonExcerpt(json::value("abc"), 5), "\"abc\"");
  EXPECT_EQ(JsonExcerpt(json::value("abcd"), 5), "\"abcd…");
  EXPECT_EQ(JsonExcerpt(json::value("a\u00e9\u00e9"), 3), "\"a…") << "in the middle of a character";
  EXPECT_EQ(JsonExcerpt(json::value("a\u00e9\u00e9"), 4), "\"a\u00e9…");
}

TEST(Json, KindsHaveTheirNames) {
  const std::pair<const char*, const char*> kKinds[] = {
      {"null", "null"},     {"true", "a boolean"}, {"-1", "an integer"}, {"1.5", "a number"},
      {"\"\"", "a string"}, {"[]", "an array"},    {"{}", "an object"}};
  for (const auto& [text, name] : kKinds) EXPECT_EQ(JsonKindName(json::parse(text)), name);
}

}  // namespace
}  // namespace braid
