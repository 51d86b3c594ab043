// Recommended sampling settings: read whole, or refused by name.
#include "text/tokens/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_model.h"

namespace braid {
namespace {

TEST(GenerationDefaultsTest, AbsentFilesAndKeysStayAbsent) {
  ModelFolder folder;
  for (std::string_view content : {"", "{}", R"({"do_sample": null, "top_k": null, "other": 1})"}) {
    if (!content.empty()) folder.Write("generation_config.json", content);
    auto defaults = ReadGenerationDefaults(folder.path());
    ASSERT_TRUE(defaults) << defaults.error().message;
    EXPECT_FALSE(defaults->do_sample || defaults->temperature || defaults->top_p ||
                 defaults->top_k || defaults->min_p || defaults->repetition_penalty);
  }
}

TEST(GenerationDefaultsTest, ReadsEveryKey) {
  ModelFolder folder;
  folder.Write("generation_config.json",
               R"({"do_sample": true, "temperature": 1, "top_p": 0.95, "top_k": 20, "min_p": 0,
                   "repetition_penalty": 1.05, "eos_token_id": [1, 2]})");
  auto defaults = ReadGenerationDefaults(folder.path());
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(defaults->do_sample, true);
  EXPECT_EQ(defaults->temperature, 1.0);
  EXPECT_EQ(defaults->top_p, 0.95);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->min_p, 0.0);
  EXPECT_EQ(defaults->repetition_penalty, 1.05);
}

TEST(GenerationDefaultsTest, WrongValuesAreNamed) {
  for (std::string_view wrong :
       {R"({"do_sample": 1})", R"({"temperature": -1})", R"({"temperature": "1"})",
        R"({"top_p": 0})", R"({"top_p": 1.01})", R"({"min_p": -0.1})",
        R"({"repetition_penalty": 0})", R"({"top_k": 1.5})", R"({"top_k": -2})",
        R"({"top_k": 1e300})", "[]"}) {
    ModelFolder folder;
    folder.Write("generation_config.json", wrong);
    auto defaults = ReadGenerationDefaults(folder.path());
    ASSERT_FALSE(defaults) << wrong;
    EXPECT_THAT(defaults.error().message, testing::HasSubstr("generation_config.json"));
    EXPECT_THAT(defaults.error().message, testing::HasSubstr("expected"));
  }
}

}  // namespace
}  // namespace braid
