// Sums beside a checkpoint's files: right ones, wrong ones, missing files, both places.
#include "model/checkpoint/checksums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/checkpoint/test_directory.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Of "abc", and of nothing (FIPS 180-2).
constexpr std::string_view kAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr std::string_view kNothing =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string Line(std::string_view sum, std::string_view name) {
  return std::string(sum) + "  " + std::string(name) + "\n";
}

TEST(Checksums, ALinkWithoutAFileIsNoError) {
  const TestDirectory dir;
  dir.Write("a.safetensors", "abc");
  std::filesystem::create_symlink("nothing", std::filesystem::path(dir.path()) / "zz");
  EXPECT_TRUE(VerifyChecksums(dir.path(), {}));
}

TEST(Checksums, AreComparedWithAListBesideTheFiles) {
  const TestDirectory dir;
  dir.Write("a.safetensors", "abc");
  dir.Write("b.safetensors", "x");
  dir.Write("SHA256SUMS", Line(kAbc, "a.safetensors"));
  auto report = VerifyChecksums(dir.path(), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->checked, ElementsAre("a.safetensors"));
  EXPECT_THAT(report->unknown, ElementsAre("b.safetensors"));

  dir.Write("a.gguf", "x");
  report = VerifyChecksums(dir.path(), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->unknown, ElementsAre("a.gguf", "b.safetensors"));

  dir.Write("SHA256SUMS", Line(kAbc, "a.safetensors") + Line(kAbc, "b.safetensors") +
                              Line(kNothing, "c.safetensors"));
  report = VerifyChecksums(dir.path(), {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("b.safetensors has 2d711642b726b044"));
  EXPECT_THAT(report.error().message, HasSubstr("c.safetensors is not there"));
}

TEST(Checksums, AreComparedWithTheRecordsOfADownload) {
  const TestDirectory dir;
  const std::string records = "/.cache/huggingface/download/";
  std::filesystem::create_directories(dir.path() + records);
  dir.Write("a.safetensors", "abc");
  dir.Write("config.json", "{}");
  dir.Write(records + "a.safetensors.metadata", "commit\n" + std::string(kAbc) + "\n1.5\n");
  dir.Write(records + "config.json.metadata", "commit\n9e26dfeeb6e641a33dae4961196235bdb965b21b\n");
  auto report = VerifyChecksums(dir.path(), {});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->checked, ElementsAre("a.safetensors"));
  dir.Write("a.safetensors", "abd");
  report = VerifyChecksums(dir.path(), {});
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("a.safetensors has a52d159f262b2c6d"));
}

TEST(Checksums, AListThatIsNoneIsRefused) {
  const TestDirectory dir;
  for (const std::string& line :
       {std::string("hello"), Line(kAbc, "../a"), Line(kAbc, ""), Line("zz", "a")}) {
    dir.Write("SHA256SUMS", line);
    const auto report = VerifyChecksums(dir.path(), {});
    ASSERT_FALSE(report) << line;
    EXPECT_THAT(report.error().message, HasSubstr("SHA256SUMS: line 1 is not a sum"));
  }
}

}  // namespace
}  // namespace braid
