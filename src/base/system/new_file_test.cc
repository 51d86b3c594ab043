// A file is there when it is complete, and not before.
#include "base/system/new_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "base/check.h"
#include "base/system/file.h"

namespace braid {
namespace {

std::string MakeDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "braid_new_file_XXXXXX").string();
  CHECK(::mkdtemp(name.data()) != nullptr);
  return name;
}

Status Write(const NewFile& file, int64_t offset, std::string_view text) {
  return file.Write(offset, std::as_bytes(std::span(text)));
}

TEST(NewFile, AppearsWhenItIsFinishedWithWhatWasWrittenAnywhere) {
  const std::string directory = MakeDirectory(), path = directory + "/a";
  Result<NewFile> file = NewFile::Create(path);
  ASSERT_TRUE(file);
  ASSERT_TRUE(Write(*file, 3, "later"));
  ASSERT_TRUE(Write(*file, 0, "abc"));
  EXPECT_FALSE(FileExists(path));
  NewFile moved = std::move(*file);
  ASSERT_TRUE(moved.Finish());
  const Result<std::string> content = ReadFile(path, 100);
  ASSERT_TRUE(content);
  EXPECT_EQ(*content, "abclater");
  std::filesystem::remove_all(directory);
}

TEST(NewFile, HasItsModeWhateverWasThere) {
  const std::string directory = MakeDirectory(), path = directory + "/a";
  for (const std::string& name : {path, path + ".tmp"}) {
    ASSERT_TRUE(WriteFile(name, "abc"));
    ASSERT_EQ(::chmod(name.c_str(), 0644), 0);
  }
  Result<NewFile> file = NewFile::Create(path, 0600);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->Finish());
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_size, 0);
  std::filesystem::remove_all(directory);
}

TEST(NewFile, DoesNotGiveItsNameToWhatAnotherWriterHasNotFinished) {
  const std::string directory = MakeDirectory(), path = directory + "/a";
  {
    Result<NewFile> first = NewFile::Create(path), second = NewFile::Create(path);
    ASSERT_TRUE(first && second);
    ASSERT_TRUE(Write(*second, 0, "half"));
    const Status finished = first->Finish();
    ASSERT_FALSE(finished);
    EXPECT_NE(finished.error().message.find("another process"), std::string::npos);
    EXPECT_FALSE(FileExists(path));
    *first = std::move(*NewFile::Create(directory + "/b"));  // the first one is given up
    ASSERT_TRUE(second->Finish());
  }
  EXPECT_EQ(*ReadFile(path, 100), "half");
  std::filesystem::remove_all(directory);
}

TEST(NewFile, LeavesNothingWhenItIsNotFinished) {
  const std::string directory = MakeDirectory();
  {
    Result<NewFile> file = NewFile::Create(directory + "/a");
    ASSERT_TRUE(file);
    ASSERT_TRUE(Write(*file, 0, "abc"));
    EXPECT_FALSE(std::filesystem::is_empty(directory));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove_all(directory);
}

TEST(NewFile, SaysWhereItCannotBeMade) {
  const Result<NewFile> file = NewFile::Create("/nowhere/at/all");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("/nowhere/at/all"), std::string::npos);
}

}  // namespace
}  // namespace braid
