// Each keyword is kept, written as another, ignored, or dropped with its pointer.
#include "text/grammar/schema_rules.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json::value Parsed(std::string_view text) { return *ParseJson(text, "schema"); }

std::vector<std::string> Dropped(std::string_view schema) {
  std::vector<std::string> pointers;
  const EnforceableSchema part = *EnforceablePart(Parsed(schema));
  for (const UnenforceableKeyword& keyword : part.dropped) {
    EXPECT_FALSE(keyword.reason.empty());
    pointers.push_back(keyword.pointer);
  }
  return pointers;
}

json::value Left(std::string_view schema) { return EnforceablePart(Parsed(schema))->schema; }

TEST(SchemaRules, KeepsWhatGrammarsEnforce) {
  for (std::string_view schema :
       {R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}},
            "required": ["a"], "additionalProperties": false})",
        R"({"anyOf": [{"type": "string", "pattern": "^[a-c]+$", "format": "date"}, true]})",
        R"({"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}}}}})",
        R"({"enum": [{"not": 1, "uniqueItems": true}]})", "true", "false", "{}"}) {
    EXPECT_THAT(Dropped(schema), IsEmpty()) << schema;
    EXPECT_EQ(Left(schema), Parsed(schema));
  }
}

TEST(SchemaRules, NamesEachKeywordThatCannotBeEnforced) {
  EXPECT_THAT(Dropped(R"({"properties": {"tags": {"type": "array", "uniqueItems": true}}})"),
              ElementsAre("/properties/tags/uniqueItems"));
  EXPECT_THAT(Dropped(R"({"items": {"not": {}}, "prefixItems": [{"contains": {}}]})"),
              ElementsAre("/prefixItems/0/contains", "/items/not"));
  EXPECT_THAT(Dropped(R"({"if": {}, "then": {}, "else": {}})"), ElementsAre("/if"));
  EXPECT_THAT(Dropped(R"({"dependentRequired": {}, "dependentSchemas": {}})"),
              ElementsAre("/dependentRequired", "/dependentSchemas"));
  EXPECT_THAT(Dropped(R"({"$defs": {"a/b~": {"pattern": "(?=a)b"}}})"),
              ElementsAre("/$defs/a~1b~0/pattern"));
  EXPECT_THAT(Dropped(R"({"patternProperties": {"(?!x)y": {}, "y": {"pattern": "\\bz"}}})"),
              ElementsAre("/patternProperties/(?!x)y", "/patternProperties/y/pattern"));
  EXPECT_THAT(Dropped(R"({"allOf": [{}], "unevaluatedProperties": false})"),
              ElementsAre("/unevaluatedProperties"));
  EXPECT_THAT(Dropped(R"({"properties": {"a": {}, "b": {}}, "minProperties": 1})"),
              ElementsAre("/minProperties"));
}

TEST(SchemaRules, WhatIsDroppedLeavesTheRest) {
  EXPECT_EQ(Left(R"({"type": "array", "uniqueItems": true, "maxItems": 3})"),
            Parsed(R"({"type": "array", "maxItems": 3})"));
  EXPECT_EQ(Left(R"({"type": "object", "patternProperties": {"^(?!_).": {"type": "string"}},
                     "additionalProperties": false})"),
            Parsed(R"({"type": "object", "patternProperties": {}})"));
  EXPECT_EQ(Left(R"({"patternProperties": {"^(?!_).": {}, "^b": {"type": "null"}},
                     "additionalProperties": {"type": "string"}})"),
            Parsed(R"({"patternProperties": {"^b": {"type": "null"}}})"));
  EXPECT_EQ(Left(R"({"propertyNames": {"pattern": "^(?!_)."},
                     "additionalProperties": {"type": "string"}})"),
            Parsed(R"({"additionalProperties": {"type": "string"}})"));
}

TEST(SchemaRules, ExactlyOneIsKeptForWhoAsksForTheWhole) {
  EXPECT_EQ(Left(R"({"oneOf": [{}]})"), Parsed(R"({"anyOf": [{}]})"));
  EXPECT_EQ(*EnforceableWhole(Parsed(R"({"oneOf": [{}]})")), Parsed(R"({"oneOf": [{}]})"));
}

TEST(SchemaRules, UnknownFormatsAreAnnotations) {
  for (std::string_view format : {"password", "byte", "binary", "path", "regex", "uri-reference"}) {
    const std::string schema = fmt::format(R"({{"type": "string", "format": "{}"}})", format);
    EXPECT_THAT(Dropped(schema), IsEmpty());
    EXPECT_EQ(Left(schema), Parsed(R"({"type": "string"})"));
  }
}

TEST(SchemaRules, SaysTheSameWithOtherKeywords) {
  const auto same = [](std::string_view from, std::string_view to) {
    EXPECT_THAT(Dropped(from), IsEmpty()) << from;
    EXPECT_EQ(Left(from), Parsed(to)) << from;
  };
  same(R"({"uniqueItems": false})", "{}");
  same(R"({"uniqueItems": true, "maxItems": 1})", R"({"maxItems": 1})");
  same(R"({"then": {}, "minContains": 1})", "{}");
  same(R"({"if": {"not": {}}})", "{}");
  same(R"({"properties": {}, "unevaluatedProperties": false})",
       R"({"properties": {}, "additionalProperties": false})");
  same(R"({"propertyNames": {"type": "string"}})", "{}");
  same(R"({"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "null"}})",
       R"({"additionalProperties": false,
           "properties": {"a": {"type": "null"}, "b": {"type": "null"}}})");
  same(R"({"propertyNames": {"pattern": "^a"}})",
       R"({"patternProperties": {"^a": true}, "additionalProperties": false})");
}

TEST(SchemaRules, AReferenceThatLeadsToItselfIsAnError) {
  for (std::string_view schema :
       {R"({"$ref": "#"})", R"({"properties": {"a": {"$ref": "#/properties/a"}}})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                                           "b": {"$ref": "#/$defs/a"}}})"}) {
    const auto part = EnforceablePart(Parsed(schema));
    ASSERT_FALSE(part) << schema;
    EXPECT_THAT(part.error().message, HasSubstr("leads back to itself"));
    EXPECT_THAT(part.error().message, HasSubstr("/$ref"));
  }
}

TEST(SchemaRules, TheWholeIsRefusedByPointerKeywordAndReason) {
  const auto whole = EnforceableWhole(Parsed(R"({"properties": {"a": {"not": {}}}})"));
  ASSERT_FALSE(whole);
  EXPECT_THAT(whole.error().message, HasSubstr("/properties/a/not: not cannot be enforced"));
  EXPECT_EQ(*EnforceableWhole(Parsed(R"({"format": "path"})")), Parsed("{}"));
}

}  // namespace
}  // namespace braid
