// A clear while pages move: whatever was under way, nothing of it is there afterwards, nor at a
// later start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "scheduler/inbox.h"
#include "tiers/disk_tier.h"
#include "tiers/test_held_files.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const CacheGeometry kGeometry = {
    .groups = {{"keys", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 8};

class ClearTest : public ::testing::Test {
 protected:
  ClearTest() : directory_(::testing::TempDir() + "clear" + std::to_string(::getpid())) {
    std::filesystem::remove_all(directory_);
  }
  ~ClearTest() override { std::filesystem::remove_all(directory_); }

  DiskTierOptions Options() {
    return {.directory = directory_,
            .host = host_.get(),
            .bytes_max = 1 << 20,
            .fingerprint = TierFingerprint("a: b\n", "c: d\n"),
            .threads = 1,
            .files = &files_,
            .watch_us = 1000};
  }
  std::unique_ptr<DiskTier> Open() { return Open(Options()); }
  std::unique_ptr<DiskTier> Open(const DiskTierOptions& options) {
    auto tier = DiskTier::Open(options);
    EXPECT_TRUE(tier.ok());
    (*tier)->Attach({arena_.data()}, kGeometry);
    (*tier)->Watch(inbox_);
    return *std::move(tier);
  }
  void Start(DiskTier& tier, Direction direction, uint64_t key) {
    PagePart part{.index = 0, .kind = GroupKind::kFull, .blocks = {}, .key = {key, 1}};
    part.blocks.by_group[0] = BlockId(3);
    tier.Start({.id = MoveId(moves_++),
                .place = Place::kDisk,
                .direction = direction,
                .slot = {},
                .request = {},
                .parts = {part}},
               inbox_);
  }
  // The next move that ends; moves end in their order, for there is one thread.
  PagesMoved Ended() {
    while (ended_.empty()) {
      inbox_.Wait(1'000'000);
      for (Event& event : inbox_.Take()) {
        if (auto* moved = std::get_if<PagesMoved>(&event)) ended_.push_back(std::move(*moved));
        const auto* known = std::get_if<PagesKnown>(&event);
        if (known == nullptr) continue;
        for (const KnownPart& part : known->dropped) known_.erase(part);  // as the scheduler does
        for (const KnownPart& part : known->added) known_.insert(part);
      }
    }
    PagesMoved moved = std::move(ended_.front());
    ended_.erase(ended_.begin());
    return moved;
  }
  // Files of segments.
  int64_t files() const {
    return std::ranges::count_if(
        std::filesystem::directory_iterator(directory_),
        [](const auto& at) { return at.path().extension() != ".fingerprint"; });
  }
  std::byte* block() { return arena_.data() + BlockBytesOffset(kGeometry, GroupId(0), BlockId(3)); }

  const std::string directory_;
  HeldFiles files_;
  std::vector<std::byte> arena_ = std::vector<std::byte>(64 * 8);
  std::unique_ptr<HostPages> host_;
  Inbox inbox_;
  std::vector<PagesMoved> ended_;
  std::set<KnownPart> known_;  // by what the tiers have told
  int64_t moves_ = 0;
};

// In the middle of the pages (after the index's header), and of the entry.
TEST_F(ClearTest, WhatIsBeingWrittenOrWaitsIsGone) {
  for (const int64_t writes : {1, 2}) {
    std::filesystem::remove_all(directory_);
    host_ = *HostPages::Create(1 << 20);
    std::unique_ptr<DiskTier> tier = Open();
    files_.Hold(writes);
    Start(*tier, Direction::kOut, 7);
    Start(*tier, Direction::kOut, 8);
    files_.AwaitHeld();
    tier->BeginClear();
    tier->AwaitCleared();
    EXPECT_EQ(files(), 0) << "also of one who is killed now";
    files_.Release();
    for (int move = 0; move < 2; ++move) {
      const PagesMoved moved = Ended();
      EXPECT_THAT(moved.error, HasSubstr("the cache was cleared"));
      EXPECT_EQ(moved.lost.size(), 1u);
    }
    EXPECT_EQ(tier->stats().parts, 0);
    EXPECT_EQ(tier->stats().host_parts, 0);
    EXPECT_EQ(tier->stats().segments, 0);
    EXPECT_EQ(files(), 0);
    Start(*tier, Direction::kOut, 9);  // of later
    EXPECT_EQ(Ended().error, "");
    EXPECT_EQ(tier->stats().host_parts, 1);
    tier = nullptr;
    tier = Open();
    EXPECT_EQ(tier->stats().parts, 1);
    for (const uint64_t key : {7, 8, 9}) {
      host_->Clear(0);
      Start(*tier, Direction::kIn, key);
      EXPECT_EQ(Ended().error.empty(), key == 9) << key;
    }
  }
}

TEST_F(ClearTest, WhatIsBeingReadComesAndIsGone) {
  std::unique_ptr<DiskTier> tier = Open();
  *block() = std::byte{5};
  Start(*tier, Direction::kOut, 7);
  EXPECT_EQ(Ended().error, "");
  host_ = *HostPages::Create(1 << 20);
  tier = nullptr;
  tier = Open();
  *block() = std::byte{0};
  files_.HoldReads();
  Start(*tier, Direction::kIn, 7);
  files_.AwaitHeld();
  tier->BeginClear();
  tier->AwaitCleared();
  EXPECT_EQ(files(), 0);
  files_.Release();
  EXPECT_EQ(Ended().error, "");
  EXPECT_EQ(*block(), std::byte{5});
  EXPECT_EQ(tier->stats().host_parts, 0);
  EXPECT_EQ(tier->stats().segments, 0);
  Start(*tier, Direction::kIn, 7);
  EXPECT_NE(Ended().error, "");
}

// The engine thread clears while the disk hangs, wherever it does: in a look at what another server
// has written, or where a segment is made. What is in memory comes meanwhile, and the network
// thread gets its figure.
TEST_F(ClearTest, BeginsWithoutWaitingForADisk) {
  using std::chrono::seconds;
  host_ = *HostPages::Create(1 << 20);
  std::unique_ptr<DiskTier> tier = Open();
  Start(*tier, Direction::kOut, 7);
  EXPECT_EQ(Ended().error, "");
  {
    DiskTierOptions plain = Options();
    plain.files = nullptr;
    plain.host = nullptr;
    std::unique_ptr<DiskTier> other = Open(plain);
    files_.HoldReads();
    Start(*other, Direction::kOut, 8);
    EXPECT_EQ(Ended().error, "");
    files_.AwaitHeld();
  }
  auto reads = std::async(std::launch::async, [&] {
    Start(*tier, Direction::kIn, 7);
    EXPECT_EQ(Ended().error, "");
  });
  EXPECT_EQ(reads.wait_for(seconds(20)), std::future_status::ready) << "it is in memory";
  auto clears = std::async(std::launch::async, [&] { tier->BeginClear(); });
  EXPECT_EQ(clears.wait_for(seconds(20)), std::future_status::ready);
  files_.Release();
  clears.wait();
  tier->AwaitCleared();
  EXPECT_EQ(files(), 0);

  files_.Hold();
  Start(*tier, Direction::kOut, 9);
  files_.AwaitHeld();
  auto ahead = std::async(std::launch::async, [&] { return tier->ahead_bytes(); });
  EXPECT_EQ(ahead.wait_for(seconds(20)), std::future_status::ready);
  clears = std::async(std::launch::async, [&] { tier->BeginClear(); });
  EXPECT_EQ(clears.wait_for(seconds(20)), std::future_status::ready);
  files_.Release();
  EXPECT_THAT(Ended().error, HasSubstr("the cache was cleared"));
  tier->AwaitCleared();
  EXPECT_EQ(files(), 0);
}

// Also where no thread has removed anything yet.
TEST_F(ClearTest, WhatIsWrittenAfterwardsIsThere) {
  std::unique_ptr<DiskTier> tier = Open();
  for (int i = 0; i < 50; ++i) {
    Start(*tier, Direction::kOut, 7);
    EXPECT_EQ(Ended().error, "");
    tier->BeginClear();
  }
  Start(*tier, Direction::kOut, 7);
  EXPECT_EQ(Ended().error, "");
  tier = nullptr;
  tier = Open();
  EXPECT_EQ(tier->stats().parts, 1);
  EXPECT_EQ(files(), 2);
}

// Also while its files are still there: the thread that removes them waits for a disk.
TEST_F(ClearTest, WhatWasClearedTakesNoRoomFromLaterWrites) {
  const auto write = [&](const DiskTierOptions& options, uint64_t key) {
    Start(*Open(options), Direction::kOut, key);
    EXPECT_EQ(Ended().error, "");
  };
  DiskTierOptions plain = Options(), foreign = Options();
  plain.files = foreign.files = nullptr;
  foreign.fingerprint = TierFingerprint("another: one\n");
  write(foreign, 1);
  DiskTierOptions options = Options();
  options.bytes_max = 9000;  // two segments of 4 KiB, and what others have written
  std::unique_ptr<DiskTier> tier = Open(options);
  for (const uint64_t key : {2, 3}) {
    Start(*tier, Direction::kOut, key);
    EXPECT_EQ(Ended().error, "");
  }
  EXPECT_EQ(tier->stats().segments, 2);
  files_.HoldReads();
  write(plain, 4);
  files_.AwaitHeld();  // in a look at it
  tier->BeginClear();
  for (const uint64_t key : {5, 6}) {
    Start(*tier, Direction::kOut, key);
    EXPECT_EQ(Ended().error, "") << key;
  }
  files_.Release();
  tier->AwaitCleared();
  EXPECT_EQ(files(), 2 * 3) << "the foreign segment, and two of later";
  for (const uint64_t key : {2, 3, 4, 5, 6}) {
    Start(*tier, Direction::kIn, key);
    EXPECT_EQ(Ended().error.empty(), key >= 5) << key;
  }
}

// Another tier, of a process that was cleared or of another one, has not removed its files yet:
// what it wrote before is not there, whether this one had read the entries or not.
TEST_F(ClearTest, OfWhatAnotherTierWritesOnlyLaterPartsAreLearned) {
  DiskTierOptions rare = Options();
  rare.watch_us = 60'000'000;
  std::unique_ptr<DiskTier> writer = Open(rare), reader = Open(rare);
  const auto there = [&](uint64_t key) {  // a read that fails has looked into the directory
    Start(*reader, Direction::kIn, key);
    return Ended().error.empty();
  };
  Start(*writer, Direction::kOut, 1);
  EXPECT_EQ(Ended().error, "");
  EXPECT_TRUE(there(1));
  Start(*writer, Direction::kOut, 2);
  EXPECT_EQ(Ended().error, "");
  reader->BeginClear();
  reader->AwaitCleared();
  EXPECT_EQ(files(), 2) << "they are written to";
  EXPECT_FALSE(there(1));
  EXPECT_FALSE(there(2));
  EXPECT_EQ(reader->stats().parts, 0);
  Start(*writer, Direction::kOut, 3);
  EXPECT_EQ(Ended().error, "");
  EXPECT_TRUE(there(3));
  EXPECT_EQ(reader->stats().parts, 1);
  writer->BeginClear();
  writer->AwaitCleared();
  EXPECT_EQ(files(), 0);
  EXPECT_FALSE(there(1));  // looks
  EXPECT_EQ(reader->stats().segments, 0);
}

// The same where no look has found the files of the other tier, which has ended or writes on.
TEST_F(ClearTest, WhatWasWrittenSinceTheLastLookIsGone) {
  DiskTierOptions rare = Options();
  rare.watch_us = 60'000'000;
  for (const bool writes_on : {false, true}) {
    SCOPED_TRACE(writes_on);
    std::unique_ptr<DiskTier> writer = Open(rare), reader = Open(rare);
    const auto there = [&](uint64_t key) {
      Start(*reader, Direction::kIn, key);
      return Ended().error.empty();
    };
    Start(*writer, Direction::kOut, 1);
    EXPECT_EQ(Ended().error, "");
    if (!writes_on) writer = nullptr;
    reader->BeginClear();
    reader->AwaitCleared();
    EXPECT_EQ(files(), writes_on ? 2 : 0);
    EXPECT_FALSE(there(1));  // looks
    EXPECT_EQ(reader->stats().parts, 0);
    EXPECT_EQ(reader->stats().segments, writes_on ? 1 : 0);
    if (!writes_on) continue;
    Start(*writer, Direction::kOut, 2);
    EXPECT_EQ(Ended().error, "");
    EXPECT_TRUE(there(2));
    EXPECT_EQ(reader->stats().parts, 1);
  }
}

// The header is read again: what is behind the cleared entries is encrypted all the same.
TEST_F(ClearTest, OfAnotherKeyNothingIsLearnedAfterwardsEither) {
  DiskTierOptions rare = Options();
  rare.watch_us = 60'000'000;
  DiskTierOptions encrypted = rare;
  encrypted.cipher.emplace(std::array<std::byte, 32>{});
  std::unique_ptr<DiskTier> writer = Open(encrypted), reader = Open(rare);
  for (const uint64_t key : {1, 2}) {
    Start(*writer, Direction::kOut, key);
    EXPECT_EQ(Ended().error, "");
    Start(*reader, Direction::kIn, key);  // looks
    EXPECT_NE(Ended().error, "");
    EXPECT_EQ(reader->stats().parts, 0);
    reader->BeginClear();
    reader->AwaitCleared();
  }
}

// A look finds two segments: the clear comes when it has read one and waits for the other.
TEST_F(ClearTest, WhatIsFoundAndClearedBeforeAnybodyHearsOfItIsNotKnown) {
  DiskTierOptions plain = Options(), rare = Options();
  plain.files = nullptr;
  rare.watch_us = 60'000'000;
  std::unique_ptr<DiskTier> tier = Open(rare);
  for (const uint64_t key : {1, 2}) {
    Start(*Open(plain), Direction::kOut, key);
    EXPECT_EQ(Ended().error, "");
  }
  known_.clear();
  files_.HoldReads(2);  // a header and its entries
  Start(*tier, Direction::kIn, 3);
  files_.AwaitHeld();
  EXPECT_EQ(tier->stats().parts, 1);
  tier->BeginClear();
  EXPECT_EQ(tier->stats().parts, 0);
  files_.Release();
  EXPECT_NE(Ended().error, "");
  tier->AwaitCleared();
  Start(*tier, Direction::kIn, 3);
  EXPECT_NE(Ended().error, "") << "and all is told";
  EXPECT_EQ(known_.size(), 0u);
}

}  // namespace
}  // namespace braid
