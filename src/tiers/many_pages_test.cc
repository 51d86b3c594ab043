// A start beside a million pages: it reads their index and nothing else.
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tiers/disk_tier.h"
#include "tiers/segments/segment.h"

namespace braid {
namespace {

TEST(ManyPages, AStartReadsTheIndexOfAMillion) {
  constexpr int64_t kParts = 1'000'000, kBytes = 4096;
  const std::string directory = ::testing::TempDir() + "many_pages" + std::to_string(::getpid());
  std::filesystem::create_directories(directory);
  const TierFingerprint fingerprint("a: b\n");
  const std::string stem = NewSegmentStem(directory, fingerprint);
  FileLayer files;
  const int index = ::open((stem + ".index").c_str(), O_RDWR | O_CREAT, 0600);
  const int pages = ::open((stem + ".pages").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::ftruncate(pages, kParts * kBytes), 0);  // takes no room
  std::vector<SegmentEntry> entries(kParts);
  for (int64_t i = 0; i < kParts; ++i) {
    SegmentEntry& entry = entries[static_cast<size_t>(i)];
    entry.key = {static_cast<uint64_t>(i), 1};
    entry.place = {.offset = i * kBytes, .bytes = kBytes};
    Seal(entry);
  }
  const std::string header = SegmentHeader({.digits = fingerprint.digits, .key_id = ""});
  ASSERT_TRUE(WriteAll(files, index, std::as_bytes(std::span(header)), 0).ok());
  ASSERT_TRUE(WriteAll(files, index, std::as_bytes(std::span(entries)), kSegmentHeaderBytes).ok());
  ::close(index);
  ::close(pages);
  const int64_t began = MonotonicUs();
  {
    const auto tier = DiskTier::Open({.directory = directory,
                                      .bytes_max = int64_t{1} << 40,
                                      .fingerprint = fingerprint,
                                      .watch_us = 60'000'000});
    const int64_t took = MonotonicUs() - began;
    ASSERT_TRUE(tier.ok());
    fmt::print("a million parts are known after {:.2f} s\n", static_cast<double>(took) * 1e-6);
    EXPECT_EQ((*tier)->stats().parts, kParts);
    EXPECT_LT(took, 20'000'000);  // not that of reading the pages; a second on a quiet machine
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace braid
