// For tests: disk tiers whose arenas hold what their parts' keys say, in a directory of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "scheduler/inbox.h"
#include "tiers/disk_tier.h"

namespace braid::disk_tier_test {

inline const CacheGeometry kGeometry = {.groups = {{"keys", GroupKind::kFull, 192, 2},
                                                   {"draft", GroupKind::kFull, 64, 2},
                                                   {"state", GroupKind::kState, 320, 1}},
                                        .page_bytes = 384,
                                        .pages = 64};

// Fails, shortens or delays what it is told to.
struct FaultyFiles : FileLayer {
  std::atomic<int64_t> writes_left{1 << 30}, reads_left{1 << 30};
  std::atomic<int64_t> bytes_at_once{1 << 30};
  std::function<void()> before_read;
  int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) override {
    if (before_read) before_read();
    if (--reads_left < 0) return errno = EIO, -1;
    return FileLayer::ReadAt(fd, data, std::min<size_t>(size, static_cast<size_t>(bytes_at_once)),
                             offset);
  }
  int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) override {
    if (--writes_left < 0) return errno = ENOSPC, -1;
    return FileLayer::WriteAt(fd, data, std::min<size_t>(size, static_cast<size_t>(bytes_at_once)),
                              offset);
  }
};

// A tier with an arena whose blocks hold what their key says.
class Server {
 public:
  explicit Server(const DiskTierOptions& options) : arena_(static_cast<size_t>(384 * 64)) {
    auto tier = DiskTier::Open(options);
    EXPECT_TRUE(tier.ok()) << tier.error().message;
    tier_ = *std::move(tier);
    tier_->Attach({arena_.data()}, kGeometry);
    tier_->Watch(inbox_);
    Take();
  }
  ~Server() { tier_.reset(); }

  static PagePart Part(int32_t n, GroupKind kind) {
    PagePart part{.index = n, .kind = kind, .blocks = {}, .key = {static_cast<uint64_t>(n), 7}};
    if (kind == GroupKind::kFull) {
      part.blocks.by_group[0] = BlockId(2 + n % 8);
      part.blocks.by_group[1] = BlockId(22 + n % 8);
    } else {
      part.blocks.by_group[2] = BlockId(30 + n % 8);
    }
    return part;
  }
  static std::vector<PagePart> Parts(int32_t begin, int32_t end) {
    std::vector<PagePart> parts;
    for (int32_t n = begin; n < end; ++n) parts.push_back(Part(n, GroupKind::kFull));
    parts.push_back(Part(end - 1, GroupKind::kState));
    return parts;
  }
  void Fill(const PagePart& part) {
    ForBytes(part, [](std::byte& byte, uint64_t bits) { byte = static_cast<std::byte>(bits); });
  }
  bool Holds(const PagePart& part) {
    bool same = true;
    ForBytes(part,
             [&](std::byte& byte, uint64_t bits) { same &= byte == static_cast<std::byte>(bits); });
    return same;
  }
  PagesMoved Move(Direction direction, std::vector<PagePart> parts) {
    const MoveId id(moves_++);
    tier_->Start({.id = id,
                  .place = Place::kDisk,
                  .direction = direction,
                  .slot = {},
                  .request = {},
                  .parts = std::move(parts)},
                 inbox_);
    while (true) {
      Take();
      if (!moved_.empty()) break;
      inbox_.Wait(1'000'000);
    }
    PagesMoved moved = std::move(moved_.front());
    moved_.erase(moved_.begin());
    EXPECT_EQ(moved.move, id);
    return moved;
  }
  PagesMoved Store(int32_t begin, int32_t end) {
    for (const PagePart& part : Parts(begin, end)) Fill(part);
    return Move(Direction::kOut, Parts(begin, end));
  }
  // Which of the parts came, bit for bit. What is said to have come must be right.
  std::vector<int32_t> Restored(int32_t begin, int32_t end) {
    std::vector<int32_t> came;
    for (int32_t n = begin; n < end; ++n) {
      for (const GroupKind kind : {GroupKind::kFull, GroupKind::kState}) {
        if (kind == GroupKind::kState && n != end - 1) continue;
        const PagePart part = Part(n, kind);
        ForBytes(part, [](std::byte& byte, uint64_t) { byte = std::byte{0xee}; });
        const PagesMoved moved = Move(Direction::kIn, {part});
        EXPECT_EQ(moved.error.empty(), moved.lost.empty());
        if (!moved.error.empty()) continue;
        EXPECT_TRUE(Holds(part)) << "part " << n << " came and is not what was stored";
        came.push_back(kind == GroupKind::kFull ? n : 1000 + n);
      }
    }
    return came;
  }
  void Take() {
    for (Event& event : inbox_.Take()) {
      if (auto* moved = std::get_if<PagesMoved>(&event)) moved_.push_back(std::move(*moved));
      if (auto* known = std::get_if<PagesKnown>(&event)) {
        for (const KnownPart& part : known->dropped) known_.erase(part);
        for (const KnownPart& part : known->added) known_.insert(part);
      }
    }
  }
  std::set<KnownPart>& known() { return known_; }
  DiskTier& tier() { return *tier_; }

 private:
  template <class F>
  void ForBytes(const PagePart& part, F f) {
    for (size_t g = 0; g < kGeometry.groups.size(); ++g) {
      if (kGeometry.groups[g].kind != part.kind) continue;
      const int64_t offset =
          BlockBytesOffset(kGeometry, GroupId(static_cast<int32_t>(g)), part.blocks.by_group[g]);
      for (int64_t i = 0; i < kGeometry.groups[g].block_bytes; ++i) {
        f(arena_[static_cast<size_t>(offset + i)],
          RandomBits(part.key.low + 100 * g, static_cast<uint64_t>(i)));
      }
    }
  }

  std::vector<std::byte> arena_;
  Inbox inbox_;
  std::vector<PagesMoved> moved_;
  std::set<KnownPart> known_;
  int64_t moves_ = 0;
  std::unique_ptr<DiskTier> tier_;
};

class DiskTierTest : public ::testing::Test {
 protected:
  DiskTierTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = ::testing::TempDir() + "tier_" + test->name() + std::to_string(::getpid());
    std::filesystem::remove_all(directory_);
  }
  ~DiskTierTest() override { std::filesystem::remove_all(directory_); }
  DiskTierOptions Options(char print = 'a') {
    return {.directory = directory_,
            .bytes_max = 1 << 20,
            .fingerprint = TierFingerprint(std::string(64, print)),
            .threads = 2,
            .files = &files_,
            .watch_us = 20'000};
  }
  std::vector<std::string> FilesWith(const std::string& extension) {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().extension() == extension) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  FaultyFiles files_;
  std::string directory_;
};

}  // namespace braid::disk_tier_test
