// Files read whole, written at once and mapped.
#include "base/system/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace braid {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  FileTest() : folder_(testing::TempDir() + "file_test_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(FileTest, WhatIsWrittenIsReadAndNothingElseIsLeft) {
  std::string content(3'000'000, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 % 251);
  ASSERT_TRUE(WriteFile(Path("a"), "before, and longer than nothing").ok());
  ASSERT_TRUE(WriteFile(Path("a"), content).ok());
  const Result<std::string> read = ReadFile(Path("a"), content.size());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, content);
  EXPECT_FALSE(FileExists(Path("a.tmp")));
  ASSERT_TRUE(WriteFile(Path("empty"), "").ok());
  EXPECT_EQ(*ReadFile(Path("empty"), 0), "");
}

TEST_F(FileTest, WhatCannotBeReadSaysWhy) {
  EXPECT_EQ(ReadFile(Path("none"), 1).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(ReadFile(folder_, 1 << 20).error().message, HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadFile(Path("pipe"), 1).error().message, HasSubstr("not a regular file"));
  ASSERT_TRUE(WriteFile(Path("five"), "12345").ok());
  EXPECT_TRUE(ReadFile(Path("five"), 5).ok());
  EXPECT_THAT(ReadFile(Path("five"), 4).error().message, HasSubstr("5 bytes, at most 4"));
  EXPECT_FALSE(WriteFile(Path("none/a"), "x").ok());
  EXPECT_FALSE(WriteFile(folder_, "x").ok());
  EXPECT_EQ(MappedFile::Open(Path("none")).error().code, ErrorCode::kNotFound);
}

TEST_F(FileTest, FoldersAndFilesAreToldApart) {
  ASSERT_TRUE(WriteFile(Path("a"), "x").ok());
  EXPECT_TRUE(FileExists(Path("a")) && FileExists(folder_));
  EXPECT_FALSE(FileExists(Path("b")));
  EXPECT_TRUE(IsDirectory(folder_));
  EXPECT_FALSE(IsDirectory(Path("a")) || IsDirectory(Path("b")));
  EXPECT_EQ(DirectoryOf(folder_), folder_);
  EXPECT_EQ(DirectoryOf(Path("a")), folder_);
}

TEST_F(FileTest, AMapHasTheFilesBytesAndMayBeMoved) {
  const std::string content(10'000, 'm');
  ASSERT_TRUE(WriteFile(Path("a"), content).ok());
  ASSERT_TRUE(WriteFile(Path("empty"), "").ok());
  Result<MappedFile> opened = MappedFile::Open(Path("a"));
  ASSERT_TRUE(opened.ok());
  MappedFile moved = *std::move(opened);
  moved.WillNeed(5000, 100);
  moved.Populate(0, 10'000);
  moved.DontNeed(4096, 4096);
  EXPECT_EQ(moved.path(), Path("a"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()),
            content);
  Result<MappedFile> empty = MappedFile::Open(Path("empty"));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->bytes().empty());
  moved = *std::move(empty);
  EXPECT_TRUE(moved.bytes().empty());
}

// A file of 2^48 bytes can be opened, and no address space has room for it.
TEST_F(FileTest, AFileThatCannotBeMappedIsNamedWithTheReason) {
  const int file = ::memfd_create("too large", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, off_t{1} << 48), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const Result<MappedFile> refused = MappedFile::Open(path);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr(path + ": cannot map: "));
  ::close(file);
}

}  // namespace
}  // namespace braid
