// What a tier does with the files of its segments: how many it opens, whose it reads while they are
// written, which it gives up.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tiers/test_disk_tier.h"
#include "tiers/test_held_files.h"

namespace braid {
namespace {

using namespace disk_tier_test;
using ::testing::ElementsAre;

constexpr int64_t kOnePart = 4096;  // bytes of a segment that has one

class SegmentFilesTest : public DiskTierTest {
 protected:
  int OpenFiles() const {
    int count = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const std::string path = std::filesystem::read_symlink(entry.path(), none).string();
      count += path.starts_with(directory_);
    }
    return count;
  }
  DiskTierOptions Small() {
    DiskTierOptions options = Options();
    options.segment_bytes_max = kOnePart;
    return options;
  }
};

// The server's connections need descriptors too.
TEST_F(SegmentFilesTest, FewStayOpen) {
  constexpr int32_t kParts = 100;
  constexpr int kOpenMost = 40;
  {
    Server writer(Small());
    for (int32_t n = 0; n < kParts; n += 4) writer.Store(n, n + 4);
    EXPECT_LE(OpenFiles(), kOpenMost);
  }
  ASSERT_GE(FilesWith(".pages").size(), size_t{kParts});
  Server server(Small());
  EXPECT_LE(OpenFiles(), kOpenMost);
  EXPECT_EQ(server.Restored(0, kParts).size(), size_t{kParts + 1});
  EXPECT_LE(OpenFiles(), kOpenMost);
  for (int i = 0; i < kOpenMost; ++i) EXPECT_EQ(server.Restored(0, 1).size(), 1u);
  EXPECT_LE(OpenFiles(), kOpenMost);
}

TEST_F(SegmentFilesTest, WhatAnotherServerUsesStays) {
  {
    Server writer(Small());
    const auto written = std::filesystem::file_time_type::clock::now();
    for (const int32_t n : {4, 0}) {  // the last is the older
      writer.Store(n, n + 4);
      for (const std::string& path : FilesWith(".pages")) {
        if (std::filesystem::last_write_time(path) < written - std::chrono::minutes(1)) continue;
        std::filesystem::last_write_time(path, written - std::chrono::hours(n == 0 ? 2 : 1));
      }
    }
  }
  DiskTierOptions options = Small();
  // Room for nine parts that are being written, with two files each, and for six that are there.
  options.bytes_max = 9 * (kOnePart + 128) + 6 * (256 + 128) + 256;
  Server server(options);
  {
    Server other(Small());
    EXPECT_EQ(other.Restored(0, 4).size(), 5u);
  }
  server.Restored(90, 91);  // is not there, so the directory is looked through
  server.Store(10, 14);
  server.Store(14, 17);
  EXPECT_THAT(server.Restored(0, 4), ElementsAre(0, 1, 2, 3, 1003));
  EXPECT_LT(server.Restored(4, 8).size(), 3u);
}

// The parts of a segment that another server has removed are not there any more; those of the
// others, before and behind it, are.
TEST_F(SegmentFilesTest, AnyMayBeRemovedByAnotherServer) {
  {
    Server writer(Small());
    for (int32_t n = 0; n < 6; n += 2) writer.Store(n, n + 1);
  }
  const std::vector<std::string> paths = FilesWith(".pages");
  ASSERT_EQ(paths.size(), 6u);
  Server server(Small());
  EXPECT_EQ(server.known().size(), 6u);
  for (size_t i : {2, 5}) {
    std::filesystem::remove(paths[i]);
    std::filesystem::path index = paths[i];
    std::filesystem::remove(index.replace_extension(".index"));
  }
  server.Restored(90, 91);  // is not there, so the directory is looked through
  server.Take();
  EXPECT_EQ(server.known().size(), 4u);
  EXPECT_EQ(server.tier().stats().segments, 4);
  EXPECT_EQ(server.tier().stats().dropped, 2);
}

// A part is written before its entry, but whoever reads the entry may have looked at the part
// before.
TEST_F(SegmentFilesTest, AnEntryIsReadBesideAPartThatJustCame) {
  {
    Server writer(Options());
    writer.Store(0, 2);
  }
  const std::string path = FilesWith(".pages").at(0), pages = Read(path);
  Write(path, "");
  files_.before_read = [&] { Write(path, pages); };
  Server server(Options());
  EXPECT_EQ(server.known().size(), 3u);
  files_.before_read = nullptr;
}

TEST_F(SegmentFilesTest, AnEntryThatIsBeingWrittenIsReadLater) {
  {
    Server writer(Options());
    writer.Store(0, 2);
  }
  const std::string path = FilesWith(".index").at(0), index = Read(path);
  Write(path, index.substr(0, index.size() - 64) + std::string(64, 0));
  Server server(Options());
  EXPECT_EQ(server.known().size(), 2u);
  Write(path, index);
  for (int i = 0; i < 1000 && server.known().size() < 3; ++i) {
    ::usleep(10'000);
    server.Take();
  }
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

// Whoever looks for the reason why a directory is cold finds it in the log.
TEST_F(SegmentFilesTest, TheLogNamesAnIndexThatCannotBeRead) {
  {
    Server writer(Options());
    writer.Store(0, 2);
  }
  const std::string path = FilesWith(".index").at(0);
  Write(path, std::string(64 + 3 * 64, 'x'));
  ::testing::internal::CaptureStdout();
  {
    Server server(Options());
    for (int i = 0; i < 3; ++i) server.Restored(0, 1);  // what is missing is looked for
    EXPECT_THAT(server.known(), ::testing::IsEmpty());
  }
  const std::string said = ::testing::internal::GetCapturedStdout();
  const size_t at = said.find(path);
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_THAT(said, ::testing::HasSubstr("header is not of this program and fingerprint"));
  EXPECT_EQ(said.find(path, at + 1), std::string::npos) << "once";
}

TEST_F(SegmentFilesTest, IsLockedUntilTheLastWriteIntoItHasEnded) {
  HeldFiles held;
  DiskTierOptions options = Small();
  options.files = &held;
  options.threads = 8;
  Server server(options);
  held.Hold(1);  // the first segment's header is written
  std::thread store([&] { server.Store(0, 2); });
  held.AwaitHeld(2);  // a part, and the header of the segment for the next one
  const std::vector<std::string> paths = FilesWith(".pages");
  for (const std::string& path : paths) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_NE(::flock(fd, LOCK_EX | LOCK_NB), 0) << "another server may remove " << path;
    ::close(fd);
  }
  EXPECT_EQ(paths.size(), 2u);
  held.Release();
  store.join();
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

TEST_F(SegmentFilesTest, AWriteThatFailsGivesItsRoomBack) {
  DiskTierOptions options = Options();
  options.threads = 1;
  Server server(options);
  server.Store(0, 2);
  const int64_t bytes = server.tier().stats().bytes;
  files_.writes_left = 0;
  server.Store(2, 4);
  EXPECT_EQ(server.tier().stats().bytes, bytes);
  files_.writes_left = 1 << 30;
  EXPECT_TRUE(server.Store(2, 4).error.empty());
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
  EXPECT_THAT(server.Restored(2, 4), ElementsAre(2, 3, 1003));
}

// `braid cache` looks whether a server uses the lines, and removes them or does not.
TEST_F(SegmentFilesTest, AServerHasItsShareOfTheLinesAlsoWhileOthersLookAtThem) {
  const TierFingerprint fingerprint = Options().fingerprint;
  std::filesystem::create_directories(directory_);
  ::close(*UseLines(directory_, fingerprint));
  for (const bool removes : {false, true}) {
    const std::string path = FilesWith(".fingerprint").at(0);
    const int other = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::flock(other, LOCK_EX), 0);
    auto used = std::async(std::launch::async, [&] { return *UseLines(directory_, fingerprint); });
    used.wait_for(std::chrono::milliseconds(200));
    if (removes) ::unlink(path.c_str());
    ::close(other);
    const int fd = used.get();
    const std::vector<LinesFile> all = *ListLines(directory_);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].used);
    EXPECT_EQ(ReadLines(directory_, all[0].name_digits), fingerprint.lines);
    ::close(fd);
  }
}

}  // namespace
}  // namespace braid
