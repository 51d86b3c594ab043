// The three classes of keys, ranges at their edges, and what a refusal says.
#include "model/checkpoint/hf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A config with `members` beside the architecture.
HfConfig ConfigOf(const std::string& members) {
  Result<HfConfig> config = HfConfig::Parse(
      R"({"architectures": ["A"])" + (members.empty() ? "" : ", " + members) + "}", "it");
  CHECK(config, "{}", config.error().message);
  return *std::move(config);
}

std::string ProblemOf(const HfConfig& config) {
  const Status status = config.Finish();
  return status ? "" : status.error().message;
}

TEST(HfConfig, IntegersHaveInclusiveRanges) {
  HfConfig config = ConfigOf(R"("low": 2, "high": 9, "less": 1, "more": 10, "real": 2.5)");
  EXPECT_EQ(config.Int("low", {2, 9}), 2);
  EXPECT_EQ(config.IntOr("high", {2, 9}, 5), 9);
  EXPECT_EQ(config.IntOr("absent", {2, 9}, 5), 5);
  EXPECT_EQ(ProblemOf(config).find("\"low\""), std::string::npos);
  EXPECT_EQ(config.Int("less", {2, 9}), 2);
  EXPECT_EQ(config.Int("more", {2, 9}), 2);
  EXPECT_EQ(config.Int("real", {2, 9}), 2);
  EXPECT_EQ(config.Int("missing", {2, 9}), 2);
  EXPECT_THAT(ProblemOf(config),
              AllOf(HasSubstr("\"less\" is 1; it must be an integer from 2 to 9"),
                    HasSubstr("\"more\" is 10"), HasSubstr("\"real\" is 2.5"),
                    HasSubstr("\"missing\" is missing; it must be an integer from 2 to 9")));
}

TEST(HfConfig, NumbersAreIntegersOrFractionsInARange) {
  HfConfig config = ConfigOf(R"("a": 1, "b": 0.5, "c": 1.5, "d": "1")");
  EXPECT_EQ(config.Number("a", {0, 1}), 1);
  EXPECT_EQ(config.NumberOr("b", {0.5, 1}, 0.7), 0.5);
  EXPECT_EQ(config.NumberOr("absent", {0, 1}, 0.7), 0.7);
  EXPECT_EQ(ProblemOf(config).find("\"a\""), std::string::npos);
  EXPECT_EQ(config.Number("c", {0.25, 1}), 0.25);
  EXPECT_EQ(config.NumberOr("d", {0.25, 1}, 0.7), 0.25);
  EXPECT_EQ(config.Number("missing", {0.25, 1}), 0.25);
  EXPECT_THAT(ProblemOf(config), AllOf(HasSubstr("\"c\" is 1.5; it must be a number from 0.25"),
                                       HasSubstr("\"d\" is \"1\""), HasSubstr("\"missing\"")));
}

TEST(HfConfig, WordsAndBooleansAreNothingElse) {
  HfConfig config = ConfigOf(R"("yes": true, "one": 1, "kind": "b", "other": "z")");
  EXPECT_TRUE(config.BoolOr("yes", false));
  EXPECT_TRUE(config.BoolOr("absent", true));
  EXPECT_EQ(config.Word("kind", {"a", "b"}), "b");
  EXPECT_EQ(config.Word("absent", {"a", "b"}), "a");
  EXPECT_TRUE(config.BoolOr("one", true));
  EXPECT_EQ(config.Word("other", {"a", "b"}), "a");
  EXPECT_THAT(ProblemOf(config),
              AllOf(HasSubstr("\"one\" is 1; it must be true or false"),
                    HasSubstr("\"other\" is \"z\"; it must be one of \"a\", \"b\""),
                    Not(HasSubstr("\"yes\"")), Not(HasSubstr("\"kind\""))));
}

TEST(HfConfig, ListsHaveTheirLengthAndEachItemItsRange) {
  HfConfig config = ConfigOf(
      R"("w": ["x", "y"], "few": ["x"], "odd": ["x", "q"], "i": [3, 99], "n": [1, null, 2.5])");
  EXPECT_EQ(config.Words("w", 2, {"x", "y"}), (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(config.Words("absent", 2, {"x"}).empty());
  EXPECT_EQ(config.Numbers("n", 3, {0, 9}), (std::vector<double>{1, 0, 2.5}));
  EXPECT_TRUE(config.Numbers("absent", 3, {0, 9}).empty());
  EXPECT_TRUE(config.Ints("absent", {0, 9}).empty());
  EXPECT_TRUE(config.Words("few", 2, {"x"}).empty());
  EXPECT_TRUE(config.Words("odd", 2, {"x", "y"}).empty());
  EXPECT_EQ(config.Ints("i", {1, 9}), (std::vector<int32_t>{3, 1}));
  EXPECT_TRUE(config.Numbers("n", 4, {0, 9}).empty());
  EXPECT_THAT(ProblemOf(config),
              AllOf(HasSubstr("\"few\" is [\"x\"]; it must be a list of 2 words, and has 1"),
                    HasSubstr("\"odd[1]\" is \"q\""), HasSubstr("\"i[1]\" is 99"),
                    HasSubstr("a list of 4 numbers or more"), Not(HasSubstr("\"w\""))));
}

TEST(HfConfig, AnUnknownKeyIsRefusedUnlessItIsNeutralOrHarmless) {
  for (const char* neutral : {"null", "false", "0", "0.0", "\"\"", "[]", "{}"}) {
    EXPECT_EQ(ProblemOf(ConfigOf("\"strange\": " + std::string(neutral))), "") << neutral;
  }
  for (const char* other : {"true", "1", "-0.5", "\"x\"", "[0]", "{\"a\": 0}"}) {
    EXPECT_THAT(ProblemOf(ConfigOf("\"strange\": " + std::string(other))),
                HasSubstr("\"strange\" is"))
        << other;
  }
  EXPECT_EQ(ProblemOf(ConfigOf(R"("torch_dtype": "bfloat16", "use_cache": true)")), "");
  HfConfig ignoring = ConfigOf(R"("strange": 1)");
  ignoring.Ignore({"strange"});
  EXPECT_EQ(ProblemOf(ignoring), "");
}

TEST(HfConfig, AKeyThatMustBeNeutralSaysWhatItWouldAskFor) {
  HfConfig config = ConfigOf(R"("off": false, "on": 2)");
  config.MustBeNeutral("off", "nothing");
  config.MustBeNeutral("absent", "nothing");
  config.MustBeNeutral("on", "a sliding window");
  const Status status = config.Finish();
  ASSERT_FALSE(status);
  EXPECT_THAT(
      status.error().message,
      AllOf(HasSubstr("\"on\" is 2, which asks for a sliding window"), Not(HasSubstr("nothing"))));
  EXPECT_EQ(status.error().field, "on");
}

TEST(HfConfig, MembersOfAnObjectAreJudgedOneByOne) {
  HfConfig config = ConfigOf(R"("rope": {"theta": 5, "odd": 1}, "ropes": {"theta": 1})");
  EXPECT_EQ(config.Number("rope.theta", {0, 9}), 5);
  EXPECT_TRUE(config.Has("rope.odd"));
  EXPECT_FALSE(config.Has("rope.theta.deeper"));
  EXPECT_THAT(ProblemOf(config), AllOf(HasSubstr("\"rope.odd\""), HasSubstr("\"ropes\""),
                                       Not(HasSubstr("\"rope.theta\""))));
  EXPECT_NE(config.Object("rope"), nullptr);
  EXPECT_EQ(config.Object("absent"), nullptr);
  EXPECT_THAT(ProblemOf(config), Not(HasSubstr("\"rope.odd\""))) << "the caller judges it";
}

TEST(HfConfig, TheTextConfigComesBeforeTheRoot) {
  HfConfig config =
      ConfigOf(R"("a": 1, "b": 2, "c": 3, "text_config": {"a": 7, "c": null, "u": 1})");
  EXPECT_EQ(config.Int("a", {0, 9}), 7);
  EXPECT_EQ(config.Int("b", {0, 9}), 2);
  EXPECT_EQ(config.Int("c", {0, 9}), 3) << "null counts as absent";
  EXPECT_THAT(ProblemOf(config), AllOf(HasSubstr("\"u\" is 1"), Not(HasSubstr("\"a\""))));
}

TEST(HfConfig, AllProblemsAreListedUpToABound) {
  std::string members = R"("first": 1)";
  for (int i = 1; i < 32; ++i) members += fmt::format(", \"k{}\": 1", i);
  EXPECT_THAT(ProblemOf(ConfigOf(members)), Not(HasSubstr("more")));
  members += R"(, "l": 1, "m": 1)";
  const Status status = ConfigOf(members).Finish();
  EXPECT_THAT(status.error().message, HasSubstr("and 2 more"));
  EXPECT_EQ(status.error().field, "first");
}

TEST(HfConfig, ATextThatIsNoConfigIsRefused) {
  const auto error = [](const std::string& text) {
    const Result<HfConfig> config = HfConfig::Parse(text, "it");
    return config ? "" : config.error().message;
  };
  EXPECT_THAT(error("[]"), HasSubstr("an array; it must be an object"));
  EXPECT_THAT(error("{}"), HasSubstr("\"architectures\" is absent"));
  EXPECT_THAT(error(R"({"architectures": []})"), HasSubstr("a list of one name"));
  EXPECT_THAT(error(R"({"architectures": ["A", "B"]})"), HasSubstr("a list of one name"));
  EXPECT_THAT(error(R"({"architectures": [1]})"), HasSubstr("a list of one name"));
  EXPECT_THAT(error(R"({"architectures": ["A"], "text_config": 3})"), HasSubstr("text_config"));
  EXPECT_EQ(error(R"({"architectures": ["A"], "text_config": null})"), "");
  EXPECT_THAT(HfConfig::Read("/nowhere").error().message, HasSubstr("is not a directory"));
}

}  // namespace
}  // namespace braid
