// What a converted checkpoint has beside its weights.
#include "model/writing/convert_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/system/file.h"
#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

TEST(CopyOtherFiles, TakesTokenizerAndTemplatesAndLeavesOtherFolders) {
  const TestDirectory directory;
  const std::string from = directory.path() + "/from", to = directory.path() + "/to";
  for (const char* folder : {"/additional_chat_templates", "/original"}) {
    std::filesystem::create_directories(from + folder);
  }
  std::filesystem::create_directory(to);
  for (const char* name : {"/tokenizer.json", "/additional_chat_templates/tool_use.jinja",
                           "/original/params.json", "/config.json"}) {
    ASSERT_TRUE(WriteFile(from + name, name));
  }
  const Status copied = CopyOtherFiles(from, to);
  ASSERT_TRUE(copied) << copied.error().message;
  for (const char* name : {"/tokenizer.json", "/additional_chat_templates/tool_use.jinja"}) {
    ASSERT_TRUE(FileExists(to + name)) << name;
    EXPECT_EQ(*ReadFile(to + name, 1 << 10), name);
  }
  EXPECT_FALSE(FileExists(to + "/original/params.json"));
  EXPECT_FALSE(FileExists(to + "/config.json")) << "it is written anew";
}

}  // namespace
}  // namespace braid
