// The order in which parts are moved, and what a disk that hardly writes delays.
#include "tiers/move_queue.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "scheduler/inbox.h"
#include "tiers/disk_tier.h"
#include "tiers/test_held_files.h"

namespace braid {
namespace {

using ::testing::ElementsAre;

const CacheGeometry kGeometry = {
    .groups = {{"keys", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 64};

// `count` parts from a number on, which lie in blocks from `block` on.
PageMove Move(Direction direction, int64_t id, uint64_t first, int32_t count, int32_t block = 1) {
  PageMove move{.id = MoveId(id),
                .place = Place::kDisk,
                .direction = direction,
                .slot = {},
                .request = {},
                .parts = {}};
  for (int32_t i = 0; i < count; ++i) {
    PagePart part{.index = i, .kind = GroupKind::kFull, .blocks = {}, .key = {first, 1}};
    part.key.low += static_cast<uint64_t>(i);
    part.blocks.by_group[0] = BlockId(block + i);
    move.parts.push_back(part);
  }
  return move;
}

TEST(MoveQueueTest, WhatComesGoesFirstAndInOrder) {
  std::mutex gate;
  std::vector<int64_t> order;  // by the one thread, one after the other
  MoveQueue queue([&](const PageMove& move, const PagePart&, int64_t) {
    std::lock_guard wait(gate);
    order.push_back(move.id.value);
    return MoveQueue::Carried();
  });
  Inbox inbox;
  {
    std::lock_guard closed(gate);
    queue.Begin(1);
    queue.Start(Move(Direction::kOut, 0, 0, 1), inbox);
    queue.Start(Move(Direction::kOut, 1, 0, 2), inbox);
    queue.Start(Move(Direction::kIn, 2, 0, 2), inbox);
    queue.Start(Move(Direction::kIn, 3, 0, 1), inbox);
  }
  queue.Stop();
  // The thread may have begun with the first before the others were there.
  if (order.front() == 2) std::rotate(order.begin(), order.begin() + 3, order.begin() + 4);
  EXPECT_THAT(order, ElementsAre(0, 2, 2, 3, 1, 1));
}

class MovedPartsTest : public ::testing::TestWithParam<bool> {};

// Four threads do the parts, the first or the last one first.
TEST_P(MovedPartsTest, TheEndTellsOfAll) {
  constexpr int32_t kParts = 4;
  const bool backwards = GetParam();
  std::mutex mutex;
  std::condition_variable changed;
  int32_t done = 0;  // parts
  std::atomic<int64_t> began_us = 0;
  MoveQueue queue([&](const PageMove&, const PagePart& part, int64_t began) {
    began_us = began;
    std::unique_lock lock(mutex);
    const int32_t turn = backwards ? kParts - 1 - part.index : part.index;
    changed.wait(lock, [&] { return done == turn; });
    ++done;
    changed.notify_all();
    MoveQueue::Carried carried{.disk_bytes = 10 + part.index, .memory_bytes = 100 + part.index};
    if (part.index % 2 == 0) {
      carried.status = Error{ErrorCode::kInternal, "lost " + std::to_string(part.index)};
    } else {
      carried.in_memory = true;
    }
    return carried;
  });
  queue.Begin(kParts);
  Inbox inbox;
  const int64_t before_us = MonotonicUs();
  queue.Start(Move(Direction::kIn, 7, 0, kParts), inbox);
  queue.Drain();
  const std::vector<Event> events = inbox.Take();
  ASSERT_EQ(events.size(), 1u);
  const PagesMoved& moved = std::get<PagesMoved>(events[0]);
  EXPECT_EQ(moved.move, MoveId(7));
  EXPECT_EQ(moved.error, "lost 0");
  EXPECT_THAT(moved.lost, ElementsAre(0, 2));
  EXPECT_THAT(moved.in_memory, ElementsAre(1, 3));
  EXPECT_EQ(moved.disk_bytes, 10 + 11 + 12 + 13);
  EXPECT_EQ(moved.memory_bytes, 100 + 101 + 102 + 103);
  EXPECT_GE(began_us, before_us);
  EXPECT_LE(began_us, MonotonicUs());
  EXPECT_LE(moved.duration_us, MonotonicUs() - before_us);
}
INSTANTIATE_TEST_SUITE_P(EitherOrder, MovedPartsTest, ::testing::Bool());

class SlowWritesTest : public ::testing::TestWithParam<int> {
 protected:
  SlowWritesTest() : arena_(64 * 64) {
    directory_ = ::testing::TempDir() + "slow_writes" + std::to_string(::getpid());
    std::filesystem::remove_all(directory_);
    auto tier = DiskTier::Open({.directory = directory_,
                                .bytes_max = 1 << 24,
                                .fingerprint = TierFingerprint("a: b\n"),
                                .threads = GetParam(),
                                .files = &files_});
    EXPECT_TRUE(tier.ok());
    tier_ = *std::move(tier);
    tier_->Attach({arena_.data()}, kGeometry);
  }
  ~SlowWritesTest() override {
    files_.Release();
    tier_.reset();
    std::filesystem::remove_all(directory_);
  }

  // The next move that ends; none when every thread waits for the disk.
  std::optional<MoveId> Await() {
    while (files_.held() < GetParam()) {
      for (const Event& event : inbox_.Take()) {
        if (const auto* moved = std::get_if<PagesMoved>(&event)) return moved->move;
      }
      inbox_.Wait(10'000);
    }
    return {};
  }

  std::string directory_;
  std::vector<std::byte> arena_;
  HeldFiles files_;
  Inbox inbox_;
  std::unique_ptr<DiskTier> tier_;
};

// In which a thread that has nothing to do would take a part, on a busy machine too.
constexpr std::chrono::milliseconds kWhile{200};

// Whether the bytes of a part wait for the disk or, after them, its entry: what somebody waits for
// comes all the same, and then the writes go on.
TEST_P(SlowWritesTest, DelayNoReading) {
  std::fill_n(arena_.begin(), 5 * 64, std::byte{5});
  tier_->Start(Move(Direction::kOut, 0, 0, 4), inbox_);
  ASSERT_EQ(Await(), MoveId(0));
  const int threads = GetParam(), writers = threads - std::max(threads / 4, 1);
  int64_t id = 0;
  for (const bool entries : {false, true}) {
    files_.Hold(entries ? writers : 0);
    const auto first = static_cast<uint64_t>(1000 * ++id);
    const PageMove out = Move(Direction::kOut, id, first, 3 * threads, 30);
    tier_->Start(out, inbox_);
    files_.AwaitHeld(entries ? 1 : writers);
    EXPECT_FALSE(files_.HeldWithin(threads, kWhile)) << "no thread is left for what comes";
    std::fill_n(arena_.begin(), 5 * 64, std::byte{9});
    tier_->Start(Move(Direction::kIn, ++id, 0, 4), inbox_);
    ASSERT_EQ(Await(), MoveId(id));
    for (int32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(
          arena_[static_cast<size_t>(BlockBytesOffset(kGeometry, GroupId(0), BlockId(1 + i)))],
          std::byte{5});
    }
    files_.Release();
    ASSERT_EQ(Await(), out.id);
  }
  EXPECT_EQ(tier_->stats().write_errors, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, SlowWritesTest, ::testing::Values(2, 8));

}  // namespace
}  // namespace braid
