// Moves of several ranks: when they are over, and what they have lost.
#include "tiers/rank_tiers.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "scheduler/inbox.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const CacheGeometry kGeometry = {
    .groups = {{"keys", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 8};

class RankTiersTest : public ::testing::Test {
 protected:
  RankTiersTest()
      : directory_(::testing::TempDir() + "rank_tiers" + std::to_string(::getpid())),
        arenas_(4, std::vector<std::byte>(64 * 8)) {
    std::filesystem::remove_all(directory_);
  }
  ~RankTiersTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<RankTiers> Open(int32_t count, int32_t group) {
    auto tiers = RankTiers::Open({.directory = directory_,
                                  .bytes_max = 1 << 20,
                                  .fingerprint = TierFingerprint("a: b\n", "c: d\n"),
                                  .threads = 1},
                                 {count, group});
    EXPECT_TRUE(tiers.ok());
    for (int32_t rank = 0; rank < count; ++rank) {
      (*tiers)->MoverOf(rank).Attach({arenas_[static_cast<size_t>(rank)].data()}, kGeometry);
    }
    (*tiers)->Watch(inbox_);
    return *std::move(tiers);
  }
  PageMove Move(Direction direction, int32_t group, int64_t id) {
    PagePart part{.index = 0, .kind = GroupKind::kFull, .blocks = {}, .key = {5, 6}};
    part.blocks.by_group[0] = BlockId(3);
    return {.id = MoveId(id),
            .place = Place::kDisk,
            .direction = direction,
            .dp_rank = DpRankId(group),
            .slot = {},
            .request = {},
            .parts = {part}};
  }
  std::byte& ByteOf(size_t rank) {
    return arenas_[rank][static_cast<size_t>(BlockBytesOffset(kGeometry, GroupId(0), BlockId(3)))];
  }
  std::vector<PagesMoved> Ended() {
    std::vector<PagesMoved> moved;
    for (Event& event : inbox_.Take()) {
      if (auto* m = std::get_if<PagesMoved>(&event)) moved.push_back(std::move(*m));
    }
    return moved;
  }
  PagesMoved Await() {
    while (true) {
      std::vector<PagesMoved> moved = Ended();
      EXPECT_LE(moved.size(), 1u);
      if (!moved.empty()) return moved[0];
      inbox_.Wait(1'000'000);
    }
  }

  const std::string directory_;
  std::vector<std::vector<std::byte>> arenas_;
  Inbox inbox_;
};

TEST_F(RankTiersTest, AMoveIsOverWhenItIsOnAllRanks) {
  const auto tiers = Open(2, 2);
  ByteOf(0) = std::byte{1};
  ByteOf(1) = std::byte{2};
  const PageMove out = Move(Direction::kOut, 0, 0);
  tiers->MoverOf(1).Start(out, inbox_);
  ::usleep(20'000);
  EXPECT_THAT(Ended(), IsEmpty());
  tiers->MoverOf(0).Start(out, inbox_);
  const PagesMoved written = Await();
  EXPECT_EQ(written.move, out.id);
  EXPECT_EQ(written.error, "");
  EXPECT_GE(written.disk_bytes, 2 * kGeometry.groups[0].block_bytes) << "of both";
  EXPECT_EQ(written.disk_bytes, tiers->stats().written_bytes);
  ByteOf(0) = ByteOf(1) = std::byte{9};
  const PageMove in = Move(Direction::kIn, 0, 1);
  for (int32_t rank : {0, 1}) tiers->MoverOf(rank).Start(in, inbox_);
  const PagesMoved read = Await();
  EXPECT_EQ(read.move, in.id);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.disk_bytes, 2 * kGeometry.groups[0].block_bytes);
  EXPECT_EQ(read.memory_bytes, 0);
  EXPECT_EQ(ByteOf(0), std::byte{1});
  EXPECT_EQ(ByteOf(1), std::byte{2});
}

TEST_F(RankTiersTest, WhatOneRankHasLostIsLost) {
  {
    const auto tiers = Open(2, 2);
    for (int32_t rank : {0, 1}) {
      tiers->MoverOf(rank).Start(Move(Direction::kOut, 0, 0), inbox_);
    }
    EXPECT_EQ(Await().error, "");
  }
  for (const int32_t lost : {1, 0}) {
    std::filesystem::remove_all(directory_ + "/rank-" + std::to_string(lost));
    const auto tiers = Open(2, 2);
    const PageMove in = Move(Direction::kIn, 0, 1);
    tiers->MoverOf(lost).Start(in, inbox_);
    ::usleep(100'000);  // it ends first: what it says must be kept until the other has ended
    tiers->MoverOf(1 - lost).Start(in, inbox_);
    EXPECT_THAT(Await().lost, ElementsAre(0)) << lost;
  }
}

// The second group reads what the first one has written, at once.
TEST_F(RankTiersTest, GroupsShareFoldersAndCarryOutTheirOwnMoves) {
  auto tiers = Open(4, 2);
  ByteOf(0) = std::byte{1};
  ByteOf(1) = std::byte{2};
  for (int32_t rank = 0; rank < 4; ++rank) {
    tiers->MoverOf(rank).Start(Move(Direction::kOut, 0, 0), inbox_);
  }
  EXPECT_EQ(Await().error, "");
  for (int32_t rank = 0; rank < 4; ++rank) {
    tiers->MoverOf(rank).Start(Move(Direction::kIn, 1, 1), inbox_);
  }
  EXPECT_EQ(Await().error, "");
  EXPECT_EQ(ByteOf(2), std::byte{1});
  EXPECT_EQ(ByteOf(3), std::byte{2});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 2);
  tiers.reset();  // all that was begun has ended: each move once
  EXPECT_THAT(Ended(), IsEmpty());
}

// Each rank has a process: what those beside the first say reaches it by others' hands.
TEST_F(RankTiersTest, ProcessesReportToTheFirstOne) {
  const DiskTierOptions options{.directory = directory_,
                                .bytes_max = 1 << 20,
                                .fingerprint = TierFingerprint("a: b\n", "c: d\n"),
                                .threads = 1};
  Inbox reports;
  const auto first = *RankTiers::Open(options, {2, 2, {0}});
  const auto second = *RankTiers::Open(options, {2, 2, {1}});
  first->MoverOf(0).Attach({arenas_[0].data()}, kGeometry);
  second->MoverOf(1).Attach({arenas_[1].data()}, kGeometry);
  first->Watch(inbox_);
  second->Watch(reports);
  const auto carry_out = [&](const PageMove& move) {
    second->MoverOf(1).Start(move, reports);
    std::vector<Event> said;
    while (said.empty() || !std::holds_alternative<PagesMoved>(said.back())) {
      reports.Wait(1'000'000);
      for (Event& event : reports.Take()) said.push_back(std::move(event));
    }
    first->MoverOf(0).Start(move, inbox_);
    ::usleep(20'000);
    EXPECT_THAT(Ended(), IsEmpty());
    for (Event& event : said) first->Post(std::move(event));
    return Await();
  };
  EXPECT_EQ(carry_out(Move(Direction::kOut, 0, 0)).error, "");
  EXPECT_EQ(carry_out(Move(Direction::kIn, 0, 1)).error, "");
  second->Clear(true);
  EXPECT_THAT(carry_out(Move(Direction::kIn, 0, 2)).lost, ElementsAre(0));
}

// Memory for two parts, which groups that are threads share: the scheduler hears of what makes way
// whoever writes, and of what is there from the ends of moves alone.
TEST_F(RankTiersTest, WhatMakesWayForAnyGroupIsTold) {
  const auto tiers = *RankTiers::Open({.threads = 1}, {2, 1}, 128);
  for (int32_t rank : {0, 1}) {
    tiers->MoverOf(rank).Attach({arenas_[static_cast<size_t>(rank)].data()}, kGeometry);
  }
  tiers->Watch(inbox_);
  for (int64_t i = 0; i < 4; ++i) {
    PageMove out = Move(Direction::kOut, 1, i);
    out.parts[0].key.low = static_cast<uint64_t>(i);
    tiers->MoverOf(1).Start(out, inbox_);
    std::vector<uint64_t> dropped;
    for (bool over = false; !over;) {
      inbox_.Wait(1'000'000);
      for (const Event& event : inbox_.Take()) {
        over |= std::holds_alternative<PagesMoved>(event);
        const auto* known = std::get_if<PagesKnown>(&event);
        if (known == nullptr) continue;
        EXPECT_THAT(known->added, IsEmpty());
        for (const KnownPart& part : known->dropped) dropped.push_back(part.key.low);
      }
    }
    if (i < 2) {
      EXPECT_THAT(dropped, IsEmpty());
    } else {
      EXPECT_THAT(dropped, ElementsAre(static_cast<uint64_t>(i - 2)));
    }
  }
}

// Groups share folders, so their bytes count once; what ranks have done adds up, and what is there
// is what the rank with the fewest has.
TEST_F(RankTiersTest, FiguresAreOfAllRanks) {
  const auto tiers = Open(4, 2);
  const auto carry_out = [&](Direction direction, int32_t group, uint64_t key, int64_t id) {
    PageMove move = Move(direction, group, id);
    move.parts[0].key.low = key;
    move.parts.push_back(move.parts[0]);
    move.parts[1].index = 1;
    move.parts[1].key.low = key + 100;
    move.parts[1].blocks.by_group[0] = BlockId(4);
    for (int32_t rank = 0; rank < 4; ++rank) tiers->MoverOf(rank).Start(move, inbox_);
    return Await();
  };
  EXPECT_EQ(carry_out(Direction::kOut, 0, 1, 0).error, "");
  EXPECT_EQ(carry_out(Direction::kIn, 0, 1, 1).error, "");
  EXPECT_EQ(tiers->stats().parts, 0) << "the second group has not looked";
  const PagesMoved lost = carry_out(Direction::kIn, 1, 2, 2);
  EXPECT_NE(lost.error, "");
  EXPECT_THAT(lost.lost, ElementsAre(0, 1));
  const DiskTierStats stats = tiers->stats();
  const int64_t part = kGeometry.groups[0].block_bytes;
  EXPECT_EQ(stats.parts, 2);
  EXPECT_EQ(stats.states, 0);
  EXPECT_EQ(stats.segments, 2);
  EXPECT_EQ(stats.written_bytes, 2 * 2 * (part + 64));
  EXPECT_EQ(stats.read_bytes, 2 * 2 * part);
  EXPECT_EQ(stats.read_errors, 2 * 2);
  EXPECT_EQ(stats.write_errors, 0);
  EXPECT_EQ(stats.bytes, 2 * (2 * 4096 + 64 + 2 * 64));
  EXPECT_GT(stats.read_us, 0);
  EXPECT_GT(stats.write_us, 0);
}

// What one rank has in memory and the other on disk only, as one that was cleared half.
TEST_F(RankTiersTest, TheFewestPartsAreThere) {
  auto tiers = Open(2, 2);
  for (int32_t rank : {0, 1}) tiers->MoverOf(rank).Start(Move(Direction::kOut, 0, 0), inbox_);
  EXPECT_EQ(Await().error, "");
  EXPECT_EQ(tiers->stats().parts, 1);
  for (const int32_t lost : {1, 0}) {
    tiers.reset();
    std::filesystem::remove_all(directory_ + "/rank-" + std::to_string(lost));
    tiers = Open(2, 2);
    EXPECT_EQ(tiers->stats().parts, 0) << lost;
  }
}

TEST_F(RankTiersTest, ARankHasItsShareOfTheBound) {
  std::unique_ptr<RankTiers> tiers;
  const auto open = [&](int64_t bytes_max) {
    tiers = *RankTiers::Open({.directory = directory_,
                              .bytes_max = bytes_max,
                              .fingerprint = TierFingerprint("a: b\n"),
                              .threads = 1},
                             {2, 2});
    for (int32_t rank : {0, 1}) {
      tiers->MoverOf(rank).Attach({arenas_[static_cast<size_t>(rank)].data()}, kGeometry);
    }
    tiers->Watch(inbox_);
  };
  open(2 * 10'000);
  for (int64_t i = 0; i < 10; ++i) {
    PageMove out = Move(Direction::kOut, 0, i);
    out.parts[0].key.low = static_cast<uint64_t>(i);
    for (int32_t rank : {0, 1}) tiers->MoverOf(rank).Start(out, inbox_);
    EXPECT_EQ(Await().error, "");
    EXPECT_LE(tiers->stats().bytes, 2 * 10'000);
  }
  EXPECT_GT(tiers->stats().dropped, 0);
  EXPECT_GT(tiers->stats().bytes, 10'000);
  EXPECT_EQ(tiers->stats().write_errors, 0);
  open(5000);  // half of it holds no part
  for (int32_t rank : {0, 1}) tiers->MoverOf(rank).Start(Move(Direction::kOut, 0, 20), inbox_);
  EXPECT_NE(Await().error, "");
  EXPECT_EQ(tiers->stats().write_errors, 2);
}

// What one rank has alone is of no use.
TEST_F(RankTiersTest, APartIsInMemoryWhenAllRanksHaveIt) {
  const auto tiers = *RankTiers::Open({.threads = 1}, {2, 2}, 1024);
  for (int32_t rank : {0, 1}) {
    tiers->MoverOf(rank).Attach({arenas_[static_cast<size_t>(rank)].data()}, kGeometry);
  }
  tiers->Watch(inbox_);
  for (int64_t id = 0; id < 2; ++id) {
    PageMove out = Move(Direction::kOut, 0, id);
    out.parts[0].key.low = static_cast<uint64_t>(id);
    const auto first = static_cast<int32_t>(id);
    tiers->MoverOf(first).Start(out, inbox_);
    tiers->MoverOf(first).Drain();
    EXPECT_EQ(tiers->stats().host_parts, id);
    tiers->MoverOf(1 - first).Start(out, inbox_);
    EXPECT_EQ(Await().error, "");
    EXPECT_EQ(tiers->stats().host_parts, id + 1);
  }
}

// Who waits for a clear finds no pages in any rank's folder.
TEST_F(RankTiersTest, AClearRemovesTheFilesOfAllRanks) {
  const auto tiers = Open(2, 2);
  for (int32_t rank : {0, 1}) tiers->MoverOf(rank).Start(Move(Direction::kOut, 0, 0), inbox_);
  EXPECT_EQ(Await().error, "");
  const auto files = [&] {
    return std::ranges::count_if(
        std::filesystem::recursive_directory_iterator(directory_),
        [](const auto& at) { return at.path().extension() == ".pages"; });
  };
  EXPECT_EQ(files(), 2);
  tiers->Clear(true);
  EXPECT_EQ(files(), 0);
}

// Two groups as processes have half of the memory each; as threads they share all of it.
TEST_F(RankTiersTest, AllMemoryTogetherIsTheBound) {
  const auto kept = [&](const TierRanks& ranks) {
    const auto tiers = *RankTiers::Open({.threads = 1}, ranks, 1024);
    tiers->MoverOf(0).Attach({arenas_[0].data()}, kGeometry);
    tiers->Watch(inbox_);
    for (int64_t i = 0; i < 20; ++i) {
      PageMove out = Move(Direction::kOut, 0, i);
      out.parts[0].key.low = static_cast<uint64_t>(i);
      tiers->MoverOf(0).Start(out, inbox_);
      EXPECT_EQ(Await().error, "");
    }
    PageMove in = Move(Direction::kIn, 0, 20);
    in.parts[0].key.low = 19;
    tiers->MoverOf(0).Start(in, inbox_);
    const PagesMoved moved = Await();
    EXPECT_THAT(moved.in_memory, ElementsAre(0));
    EXPECT_EQ(moved.memory_bytes, 64);
    return tiers->stats().host_bytes;
  };
  EXPECT_EQ(kept({2, 1, {0}}), 512);
  EXPECT_EQ(kept({2, 1}), 1024);
}

// A folder of two ranks is not one of four, nor of one.
TEST_F(RankTiersTest, OtherMeshesHaveOtherFingerprints) {
  Open(2, 2);
  Open(4, 4);
  Open(1, 1);
  std::set<std::string> names;
  for (const auto& at : std::filesystem::recursive_directory_iterator(directory_)) {
    if (at.path().extension() == ".fingerprint") names.insert(at.path().filename().string());
  }
  EXPECT_EQ(names.size(), 7u);
}

}  // namespace
}  // namespace braid
