// Which lines are read, and which file and line an error names.
#include "cli/terminal/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace braid {
namespace {

using ::testing::HasSubstr;

class JsonLines : public ::testing::Test {
 protected:
  ~JsonLines() override { std::filesystem::remove(path_); }
  Result<std::vector<JsonLine>> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadJsonLines(path_);
  }
  std::string path_ = testing::TempDir() + "json_lines" + std::to_string(::getpid());
};

TEST_F(JsonLines, BlankLinesCountAndAreSkipped) {
  const auto lines = Read("{\"a\": 1}\n\n \t\r\n{\"a\": 2}");
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].number, 1);
  EXPECT_EQ((*lines)[0].object.at("a"), 1);
  EXPECT_EQ((*lines)[1].number, 4);
  EXPECT_EQ((*lines)[1].object.at("a"), 2);
}

TEST_F(JsonLines, AnErrorNamesFileAndLine) {
  EXPECT_THAT(Read("{}\n{\n").error().message, HasSubstr(path_ + ":2: not valid JSON"));
  EXPECT_THAT(Read("{}\n\n[1]\n").error().message,
              HasSubstr(path_ + ":3: an array where an object is needed"));
  EXPECT_THAT(Read("\n \n").error().message, HasSubstr("has no line"));
  EXPECT_THAT(ReadJsonLines(path_ + ".none").error().message, HasSubstr("cannot be opened"));
  EXPECT_THAT(ReadJsonLines(testing::TempDir()).error().message, HasSubstr("is a directory"));
  // Nothing lies at its first byte.
  EXPECT_THAT(ReadJsonLines("/proc/self/mem").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace braid
