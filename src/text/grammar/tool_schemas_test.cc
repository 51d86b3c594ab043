// Which JSON types a parameter's schema allows, and how a written value is read as one of them.
#include "text/grammar/tool_schemas.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

// The kinds that a schema gives for a parameter "x"; `definitions` stands beside its properties.
JsonKinds KindsOf(const std::string& schema, const std::string& definitions = "{}") {
  const std::string tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", )"
      R"("$defs": )" +
      definitions + R"(, "properties": {"x": )" + schema + "}}}}]";
  return ToolSchemas(json::parse(tools).as_array()).KindsOf("f", "x");
}

TEST(ToolSchemas, ATypeIsItsKind) {
  EXPECT_EQ(KindsOf(R"({"type": "string"})"), kStringKind);
  EXPECT_EQ(KindsOf(R"({"type": "integer"})"), kNumberKind);
  EXPECT_EQ(KindsOf(R"({"type": "number"})"), kNumberKind);
  EXPECT_EQ(KindsOf(R"({"type": "boolean"})"), kBoolKind);
  EXPECT_EQ(KindsOf(R"({"type": "null"})"), kNullKind);
  EXPECT_EQ(KindsOf(R"({"type": "object"})"), kObjectKind);
  EXPECT_EQ(KindsOf(R"({"type": "array"})"), kArrayKind);
}

TEST(ToolSchemas, AlternativesAddUp) {
  EXPECT_EQ(KindsOf(R"({"type": ["integer", "null"]})"), kNumberKind | kNullKind);
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    EXPECT_EQ(KindsOf("{\"" + std::string(key) + R"(": [{"type": "integer"}, {"type": "null"}]})"),
              kNumberKind | kNullKind)
        << key;
  }
  EXPECT_EQ(KindsOf(R"({"enum": ["a", 1, true]})"), kStringKind | kNumberKind | kBoolKind);
  EXPECT_EQ(KindsOf(R"({"const": [1]})"), kArrayKind);
  EXPECT_EQ(KindsOf(R"({"const": {"a": 1}})"), kObjectKind);
}

TEST(ToolSchemas, KeywordsThatImplyATypeGiveIt) {
  EXPECT_EQ(KindsOf(R"({"properties": {}})"), kObjectKind);
  EXPECT_EQ(KindsOf(R"({"items": {}})"), kArrayKind);
}

TEST(ToolSchemas, ReferencesAreFollowedInsideTheSchema) {
  EXPECT_EQ(KindsOf(R"({"$ref": "#/$defs/City"})", R"({"City": {"type": "boolean"}})"), kBoolKind);
  EXPECT_EQ(KindsOf(R"({"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]})",
                    R"({"a": {"$ref": "#/$defs/b"}, "b": {"enum": [3]}})"),
            kNumberKind | kNullKind);
  EXPECT_EQ(KindsOf(R"({"$ref": "#/$defs/none"})"), kAnyKind);
  EXPECT_EQ(KindsOf(R"({"$ref": "http://x.example/y"})"), kAnyKind);
  EXPECT_EQ(KindsOf(R"({"$ref": "#/$defs/a"})", R"({"a": {"$ref": "#/$defs/a"}})"), kAnyKind)
      << "a circle ends";
}

// The kinds of the parameter "x" of a tool with these parameters.
JsonKinds KindsInWhole(const std::string& parameters) {
  const std::string tools = R"([{"function": {"name": "f", "parameters": )" + parameters + "}}]";
  return ToolSchemas(json::parse(tools).as_array()).KindsOf("f", "x");
}

TEST(ToolSchemas, ParametersMayStandBehindAReferenceOrInACombination) {
  constexpr std::string_view kDefinition = R"({"p": {"properties": {"x": {"type": "string"}}}})";
  const auto with = [&](std::string_view rest, std::string_view place = "$defs") {
    return KindsInWhole("{" + std::string(rest) + ", \"" + std::string(place) +
                        "\": " + std::string(kDefinition) + "}");
  };
  EXPECT_EQ(with(R"("$ref": "#/$defs/p")"), kStringKind);
  EXPECT_EQ(with(R"("$ref": "#/definitions/p")", "definitions"), kStringKind);
  EXPECT_EQ(with(R"("$ref": "#/a~1b/p")", "a/b"), kStringKind);
  EXPECT_EQ(with(R"("allOf": [{"properties": {"y": {}}}, {"$ref": "#/$defs/p"}])"), kStringKind);
  EXPECT_EQ(with(R"("properties": {"x": {"type": "null"}}, "$ref": "#/$defs/p")"),
            kStringKind | kNullKind);
  EXPECT_EQ(with(R"("anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/p"}])"), kStringKind)
      << "a circle ends";
}

TEST(ToolSchemas, ReferencesThatMeetAgainAndAgainTakeNoMoreTime) {
  std::string definitions = R"("d0": {"type": "string"})";
  for (int i = 1; i < 64; ++i) {
    const std::string below = "{\"$ref\": \"#/$defs/d" + std::to_string(i - 1) + "\"}";
    definitions += ", \"d" + std::to_string(i) + "\": {\"anyOf\": [" + below + ", " + below + "]}";
  }
  EXPECT_EQ(KindsOf(R"({"$ref": "#/$defs/d63"})", "{" + definitions + "}"), kStringKind);
}

TEST(ToolSchemas, MoreAlternativesThanAreReadMayBeAnything) {
  const auto kinds = [](int alternatives) {
    std::string list = R"({"const": "a"})";
    for (int i = 1; i < alternatives; ++i) list += R"(, {"const": "a"})";
    return KindsOf("{\"anyOf\": [" + list + "]}");
  };
  EXPECT_EQ(kinds(255), kStringKind);
  EXPECT_EQ(kinds(256), kAnyKind);
}

TEST(ToolSchemas, WhatIsNotSaidMayBeAnything) {
  EXPECT_EQ(KindsOf("{}"), kAnyKind);
  EXPECT_EQ(KindsOf(R"({"type": "imaginary"})"), kAnyKind);
  const ToolSchemas none(
      json::parse(R"([{"function": {"name": "f"}}, 3, {"function": 4}])").as_array());
  EXPECT_TRUE(none.Has("f"));
  EXPECT_FALSE(none.Has("g"));
  EXPECT_EQ(none.KindsOf("f", "x"), kAnyKind);
  EXPECT_EQ(none.KindsOf("g", "x"), kAnyKind);
  EXPECT_TRUE(ToolSchemas().empty());
  EXPECT_FALSE(none.empty());
}

TEST(TypedJson, AValueIsReadAsOneOfItsKindsOrIsAString) {
  EXPECT_EQ(TypedJson("3", kNumberKind | kNullKind), "3");
  EXPECT_EQ(TypedJson(" 3\n", kNumberKind), "3");
  EXPECT_EQ(TypedJson("3", kStringKind), "\"3\"");
  EXPECT_EQ(TypedJson("3", kBoolKind), "\"3\"");
  EXPECT_EQ(TypedJson("3", kAnyKind), "3");
  EXPECT_EQ(TypedJson("\"a\"", kAnyKind), R"("\"a\"")");
  EXPECT_EQ(TypedJson("[1, 2]", kArrayKind), "[1, 2]");
  EXPECT_EQ(TypedJson("[1, 2", kArrayKind), "\"[1, 2\"");
  EXPECT_EQ(TypedJson("{}", kObjectKind), "{}");
  EXPECT_EQ(TypedJson(R"({"a": 1, "a": 2})", kObjectKind), R"({"a": 1, "a": 2})");
  EXPECT_EQ(TypedJson("  ", kNumberKind), "\"  \"");
  EXPECT_EQ(TypedJson("a \"b\"\n", kStringKind), R"("a \"b\"\n")");
}

TEST(TypedJson, PythonsWordsAreTaken) {
  EXPECT_EQ(TypedJson("True", kBoolKind), "true");
  EXPECT_EQ(TypedJson("False", kBoolKind), "false");
  EXPECT_EQ(TypedJson("None", kNullKind), "null");
  EXPECT_EQ(TypedJson("None", kStringKind), "\"None\"");
}

}  // namespace
}  // namespace braid
