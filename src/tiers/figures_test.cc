// What a disk tier says of itself: its figures, its errors and the log.
#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tiers/host_pages.h"
#include "tiers/test_disk_tier.h"

namespace braid {
namespace {

using namespace disk_tier_test;
using ::testing::HasSubstr;

using FiguresTest = DiskTierTest;

// Of two segments, one of them another fingerprint's.
TEST_F(FiguresTest, FiguresSayWhatIsThereAndWhatWasDone) {
  Server(Options('b')).Store(0, 1);
  const auto host = *HostPages::Create(1 << 16);
  DiskTierOptions options = Options();
  options.host = host.get();
  Server server(options);
  const int64_t foreign = server.tier().stats().bytes;
  EXPECT_EQ(foreign, 4096 + 320 + 64 + 2 * 64) << "it counts for the bound";
  EXPECT_EQ(server.tier().stats().segments, 0);
  server.Store(0, 3);
  server.Store(3, 4);
  server.Restored(0, 1);
  server.Restored(90, 91);
  const DiskTierStats stats = server.tier().stats();
  EXPECT_EQ(stats.parts, 6);
  EXPECT_EQ(stats.states, 2);
  EXPECT_EQ(stats.segments, 1);
  EXPECT_EQ(stats.bytes, foreign + 6 * 4096 + 64 + 6 * 64);
  EXPECT_EQ(stats.host_parts, 6);
  EXPECT_EQ(stats.host_bytes, 4 * 256 + 2 * 320);
  EXPECT_EQ(stats.written_bytes, 4 * 256 + 2 * 320 + 6 * 64);
  EXPECT_EQ(stats.read_bytes, 0) << "it was in memory";
  EXPECT_EQ(stats.read_errors, 2 + 1) << "the state of part 0 is not there, nor is part 90";
  EXPECT_EQ(stats.write_errors, 0);
  EXPECT_EQ(stats.damaged, 0);
  EXPECT_EQ(stats.dropped, 0);
  EXPECT_GT(stats.write_us, 0);
  EXPECT_LT(stats.write_us, 600'000'000);
  files_.writes_left = 0;
  server.Store(10, 11);
  EXPECT_EQ(server.tier().stats().write_errors, 2) << "also of what is in memory";
}

// Pages of real models are whole units of the disk's.
TEST_F(FiguresTest, APartOfWholeUnitsTakesNoMoreThanItsBytes) {
  const CacheGeometry geometry = {
      .groups = {{"keys", GroupKind::kFull, 8192, 1}}, .page_bytes = 8192, .pages = 4};
  std::vector<std::byte> arena(4 * 8192);
  const auto tier = *DiskTier::Open(Options());
  tier->Attach({arena.data()}, geometry);
  Inbox inbox;
  PageMove move{.id = MoveId(0),
                .place = Place::kDisk,
                .direction = Direction::kOut,
                .slot = {},
                .request = {},
                .parts = {}};
  for (int32_t i = 0; i < 2; ++i) {
    PagePart part{.index = i, .kind = GroupKind::kFull, .blocks = {}, .key = {5, 7}};
    part.key.low += static_cast<uint64_t>(i);
    part.blocks.by_group[0] = BlockId(1 + i);
    move.parts.push_back(part);
  }
  tier->Start(move, inbox);
  tier->Drain();
  EXPECT_EQ(tier->stats().bytes, 2 * 8192 + 64 + 2 * 64);
}

// A part that the bound has no room for, and one whose segment alone would be larger.
TEST_F(FiguresTest, APartThatDoesNotFitTheBoundIsRefusedWithTheNumbers) {
  DiskTierOptions options = Options();
  const int64_t most = 4096 + 64 + 64 + std::ssize(options.fingerprint.lines);
  for (const int64_t short_of : {1, 0}) {
    std::filesystem::remove_all(directory_);
    options.bytes_max = most - short_of;
    Server server(options);
    server.Fill(Server::Part(0, GroupKind::kFull));
    const PagesMoved moved = server.Move(Direction::kOut, {Server::Part(0, GroupKind::kFull)});
    EXPECT_EQ(moved.error.empty(), short_of == 0) << moved.error;
    EXPECT_EQ(server.tier().stats().parts, 1 - short_of);
    if (short_of > 0) {
      EXPECT_THAT(moved.error, HasSubstr("do not fit the bound of " + std::to_string(most - 1)));
    }
  }
  options.bytes_max = 4096 + 64 + 63;
  Server server(options);
  EXPECT_THAT(server.Store(0, 1).error, HasSubstr("bytes does not fit the bound of 4223"));
}

// Somebody may have forgotten the key: the cache is cold then, and the log says why.
TEST_F(FiguresTest, TheLogSaysThatSegmentsNeedAnotherKey) {
  DiskTierOptions locked = Options();
  locked.cipher.emplace(std::array<std::byte, 32>{});
  {
    Server writer(locked);
    writer.Store(0, 1);
  }
  const auto said = [](const DiskTierOptions& options) {
    ::testing::internal::CaptureStdout();
    Server server(options);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(said(locked).find("computed again"), std::string::npos);
  EXPECT_THAT(said(Options()), HasSubstr("its pages are encrypted with key " + locked.cipher->id() +
                                         ", here is no key"));
}

// Whoever reads the log learns that a disk fails, and is not told for every part.
TEST_F(FiguresTest, TheLogSaysOnceThatADiskFails) {
  ::testing::internal::CaptureStdout();
  {
    Server server(Options());
    server.Store(0, 2);
    server.Restored(90, 92);  // what is not there is no failure
    files_.reads_left = 0;
    server.Restored(0, 2);
    files_.writes_left = 0;
    server.Store(5, 7);
  }
  const std::string said = ::testing::internal::GetCapturedStdout();
  const size_t at = said.find("what cannot be stored or read is computed again");
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_THAT(said, HasSubstr("cache directory " + directory_ + ": reading a segment"));
  EXPECT_EQ(said.find("what cannot be stored", at + 1), std::string::npos) << said;
}

}  // namespace
}  // namespace braid
