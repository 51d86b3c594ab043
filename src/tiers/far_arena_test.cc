// A tier whose arena the host cannot address, as that of a device: all bytes go through Fetch and
// Store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <latch>
#include <set>

#include "scheduler/inbox.h"
#include "tiers/disk_tier.h"
#include "tiers/host_pages.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const CacheGeometry kGeometry = {.groups = {{"keys", GroupKind::kFull, 192, 2},
                                            {"draft", GroupKind::kFull, 64, 2},
                                            {"state", GroupKind::kState, 320, 1}},
                                 .page_bytes = 384,
                                 .pages = 64};
constexpr size_t kBytes = 384 * 64;

// Whoever follows one of its addresses crashes.
class FarArena final : public ArenaAccess {
 public:
  FarArena() : bytes_(kBytes) {
    void* nowhere = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(nowhere, MAP_FAILED);
    base_ = static_cast<std::byte*>(nowhere);
  }
  ~FarArena() override { ::munmap(base_, kBytes); }
  Status Fetch(std::span<const Piece> pieces) override {
    if (lost) return Error{ErrorCode::kUnavailable, "the device is lost"};
    for (const Piece& piece : pieces) std::memcpy(piece.here.data(), At(piece), piece.here.size());
    return {};
  }
  Status Store(std::span<const Piece> pieces) override {
    if (lost) return Error{ErrorCode::kUnavailable, "the device is lost"};
    for (const Piece& piece : pieces) std::memcpy(At(piece), piece.here.data(), piece.here.size());
    return {};
  }
  Arena arena() { return {base_, this}; }
  std::vector<std::byte>& bytes() { return bytes_; }
  std::atomic<bool> lost = false;

 private:
  std::byte* At(const Piece& piece) { return bytes_.data() + (piece.there - base_); }
  std::byte* base_ = nullptr;
  std::vector<std::byte> bytes_;
};

class FarArenaTest : public ::testing::Test {
 protected:
  FarArenaTest() : directory_(::testing::TempDir() + "far_arena" + std::to_string(::getpid())) {
    std::filesystem::remove_all(directory_);
  }
  ~FarArenaTest() override {
    tier_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Open(const std::string& directory, HostPages* host) {
    tier_.reset();
    auto tier = DiskTier::Open({.directory = directory,
                                .host = host,
                                .bytes_max = 1 << 24,
                                .fingerprint = TierFingerprint("a: b\n")});
    ASSERT_TRUE(tier.ok()) << tier.error().message;
    tier_ = *std::move(tier);
    tier_->Attach(far_.arena(), kGeometry);
    tier_->Watch(inbox_);
    inbox_.Take();
  }
  static std::vector<PagePart> Parts() {
    PagePart keys{.index = 0, .kind = GroupKind::kFull, .blocks = {}, .key = {1, 7}};
    keys.blocks.by_group[0] = BlockId(3);
    keys.blocks.by_group[1] = BlockId(24);
    PagePart state{.index = 0, .kind = GroupKind::kState, .blocks = {}, .key = {1, 7}};
    state.blocks.by_group[2] = BlockId(31);
    return {keys, state};
  }
  // Every byte of the parts' blocks another one.
  void Fill() {
    uint64_t n = 0;
    for (std::byte& byte : far_.bytes())
      byte = static_cast<std::byte>(++n * 0x9e3779b97f4a7c15 >> 56);
  }
  PageMove MoveOf(Direction direction) {
    return {.id = MoveId(moves_++),
            .place = Place::kDisk,
            .direction = direction,
            .slot = {},
            .request = {},
            .parts = Parts()};
  }
  PagesMoved Move(Direction direction) {
    tier_->Start(MoveOf(direction), inbox_);
    tier_->Drain();
    std::vector<PagesMoved> ends;
    for (Event& event : inbox_.Take()) {
      if (auto* moved = std::get_if<PagesMoved>(&event)) ends.push_back(std::move(*moved));
    }
    EXPECT_EQ(ends.size(), 1u) << "posted before Drain returned";
    return ends.empty() ? PagesMoved() : std::move(ends.front());
  }
  // Whether a move in brings what a move out has taken, and nothing else changes.
  void ExpectRestored() {
    const std::vector<std::byte> want = far_.bytes();
    for (const PagePart& part : Parts()) {
      for (size_t g = 0; g < kGeometry.groups.size(); ++g) {
        if (kGeometry.groups[g].kind != part.kind) continue;
        const int64_t at =
            BlockBytesOffset(kGeometry, GroupId(static_cast<int32_t>(g)), part.blocks.by_group[g]);
        std::fill_n(far_.bytes().begin() + at, kGeometry.groups[g].block_bytes, std::byte{0xee});
      }
    }
    ASSERT_NE(far_.bytes(), want);
    const PagesMoved moved = Move(Direction::kIn);
    EXPECT_EQ(moved.error, "");
    EXPECT_EQ(far_.bytes(), want);
  }

  std::string directory_;
  FarArena far_;
  Inbox inbox_;
  std::unique_ptr<DiskTier> tier_;
  int64_t moves_ = 0;
};

TEST_F(FarArenaTest, PagesGoToTheDiskAndComeBack) {
  Open(directory_, nullptr);
  Fill();
  EXPECT_EQ(Move(Direction::kOut).error, "");
  ExpectRestored();
  Open(directory_, nullptr);
  ExpectRestored();
}

TEST_F(FarArenaTest, PagesGoToMemoryAndComeBack) {
  const auto host = HostPages::Create(1 << 20);
  ASSERT_TRUE(host.ok());
  Open("", host->get());
  Fill();
  EXPECT_EQ(Move(Direction::kOut).error, "");
  ExpectRestored();
}

TEST_F(FarArenaTest, WhatCannotBeFetchedIsNotStored) {
  Open(directory_, nullptr);
  Fill();
  far_.lost = true;
  const PagesMoved out = Move(Direction::kOut);
  EXPECT_THAT(out.error, HasSubstr("the device is lost"));
  EXPECT_THAT(out.lost, ElementsAre(0, 1));
  far_.lost = false;
  EXPECT_THAT(Move(Direction::kIn).lost, ElementsAre(0, 1));
  EXPECT_EQ(tier_->stats().parts, 0);
}

TEST_F(FarArenaTest, WhatDoesNotArriveIsLost) {
  Open(directory_, nullptr);
  Fill();
  EXPECT_THAT(Move(Direction::kOut).lost, IsEmpty());
  far_.lost = true;
  const PagesMoved in = Move(Direction::kIn);
  EXPECT_THAT(in.lost, ElementsAre(0, 1));
  EXPECT_THAT(in.error, HasSubstr("the device is lost"));
  far_.lost = false;
  ExpectRestored();
}

// The scheduler forgets what a failed move was to bring, whatever the reason.
TEST_F(FarArenaTest, WhatItHoldsIsToldAgainWithAnotherArena) {
  const auto host = HostPages::Create(1 << 20);
  ASSERT_TRUE(host.ok());
  const auto told = [&] {
    tier_->Attach(far_.arena(), kGeometry);
    std::set<KnownPart> known;
    for (const Event& event : inbox_.Take()) {
      const auto* news = std::get_if<PagesKnown>(&event);
      if (news != nullptr) known.insert(news->added.begin(), news->added.end());
    }
    return known;
  };
  std::set<KnownPart> all;
  for (const PagePart& part : Parts()) all.insert({part.key, part.kind});
  for (const bool on_disk : {true, false}) {
    SCOPED_TRACE(on_disk);
    Open(on_disk ? directory_ : "", on_disk ? nullptr : host->get());
    EXPECT_THAT(told(), IsEmpty());
    Fill();
    EXPECT_EQ(Move(Direction::kOut).error, "");
    far_.lost = true;
    EXPECT_THAT(Move(Direction::kIn).lost, ElementsAre(0, 1));
    far_.lost = false;
    EXPECT_EQ(told(), all);
    tier_->BeginClear();
    EXPECT_THAT(told(), IsEmpty()) << "it is cleared";
  }
}

// Attached again, as after a lost device.
TEST_F(FarArenaTest, AnotherArenaGetsWhatTheFirstHad) {
  Open(directory_, nullptr);
  Fill();
  EXPECT_EQ(Move(Direction::kOut).error, "");
  FarArena other;
  other.bytes() = far_.bytes();
  tier_->Attach(other.arena(), kGeometry);
  std::swap(other.bytes(), far_.bytes());
  std::fill(other.bytes().begin(), other.bytes().end(), std::byte{0});
  far_.lost = true;
  EXPECT_EQ(Move(Direction::kIn).error, "");
  EXPECT_NE(other.bytes(), std::vector<std::byte>(kBytes)) << "it is written";
}

// An end that is being posted counts: who drains has what all moves did.
TEST_F(FarArenaTest, DrainWaitsForTheEndOfEveryMove) {
  struct SlowSink final : EventSink {
    void Post(Event) override {
      reached.count_down();
      go_on.wait();
      posted = true;
    }
    std::latch reached{1}, go_on{1};
    std::atomic<bool> posted = false;
  } slow;
  Open(directory_, nullptr);
  Fill();
  tier_->Drain();  // nothing is under way
  tier_->Start(MoveOf(Direction::kOut), slow);
  slow.reached.wait();
  auto drained = std::async(std::launch::async, [&] {
    tier_->Drain();
    return slow.posted.load();
  });
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  slow.go_on.count_down();
  EXPECT_TRUE(drained.get());
}

}  // namespace
}  // namespace braid
