// What is read ahead: all of what is named and nothing else, behind moves, and never to anybody's
// harm.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tiers/move_queue.h"
#include "tiers/rank_tiers.h"
#include "tiers/test_disk_tier.h"

namespace braid {
namespace {

using namespace disk_tier_test;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSoonUs = 20'000'000;

template <class F>
void AwaitSoon(F done) {
  for (const int64_t until = MonotonicUs() + kSoonUs; !done();) {
    ASSERT_LT(MonotonicUs(), until);
    ::usleep(1000);
  }
}

PagesAhead Ahead(int64_t request, std::vector<KnownPart> parts) {
  return {.request = RequestId(request), .dp_rank = DpRankId(0), .parts = std::move(parts)};
}
std::vector<KnownPart> Keys(uint64_t begin, uint64_t end) {
  std::vector<KnownPart> parts;
  for (uint64_t key = begin; key < end; ++key) parts.push_back({{key, 7}, GroupKind::kFull});
  return parts;
}

// Notes which bytes of files the kernel is asked for, and says when.
struct NotedFiles : FaultyFiles {
  std::mutex mutex;
  std::map<int64_t, int64_t> asked;  // ends by beginnings
  std::function<void()> before_ask;
  void WillNeed(int fd, int64_t size, int64_t offset) override {
    if (before_ask) before_ask();
    {
      std::lock_guard lock(mutex);
      asked[offset] = std::max(asked[offset], offset + size);
    }
    FileLayer::WillNeed(fd, size, offset);
  }
  // The places without gap that were asked for, and forgets them.
  std::vector<std::pair<int64_t, int64_t>> Ranges() {
    std::lock_guard lock(mutex);
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const auto& [begin, end] : std::exchange(asked, {})) {
      if (!ranges.empty() && ranges.back().second == begin) {
        ranges.back().second = end;
      } else {
        ranges.emplace_back(begin, end);
      }
    }
    return ranges;
  }
};

class ReadAheadTest : public DiskTierTest {
 protected:
  DiskTierOptions Options() {
    DiskTierOptions options = DiskTierTest::Options();
    options.files = &noted_;
    return options;
  }
  static std::vector<KnownPart> PartsOf(int32_t begin, int32_t end) {
    std::vector<KnownPart> parts;
    for (const PagePart& part : Server::Parts(begin, end)) parts.push_back({part.key, part.kind});
    return parts;
  }
  NotedFiles noted_;
};

// Parts of keys have 256 bytes, states 320; each begins at a multiple of 4096.
TEST_F(ReadAheadTest, ReadsAllBytesOfWhatIsNamed) {
  Server(Options()).Store(0, 5);
  Server server(Options());
  server.tier().ReadAhead(Ahead(1, PartsOf(1, 5)));
  AwaitSoon([&] { return server.tier().stats().ahead_bytes == 4 * 256 + 320; });
  // Threads write in any order: one of the six places is not there, that of part 0.
  const auto ranges = noted_.Ranges();
  EXPECT_EQ(ranges.size(), 5u);
  std::multiset<int64_t> sizes;
  for (const auto& [begin, end] : ranges) {
    EXPECT_EQ(begin % 4096, 0);
    sizes.insert(end - begin);
  }
  EXPECT_THAT(sizes, ElementsAre(256, 256, 256, 256, 320));
  EXPECT_EQ(server.tier().stats().read_bytes, 0);
  EXPECT_THAT(server.Restored(0, 5), ElementsAre(0, 1, 2, 3, 4, 1004));
  // Its segment goes with its files.
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    std::filesystem::remove(entry.path());
  }
  server.Restored(90, 91);  // is not there, so the directory is looked through
  EXPECT_EQ(server.tier().stats().segments, 0);
}

TEST_F(ReadAheadTest, ReadsLargePartsPieceByPiece) {
  constexpr int64_t kBytes = (5 << 19) + 300;  // two pieces and a half, and less than a window
  const CacheGeometry large = {
      .groups = {{"keys", GroupKind::kFull, kBytes, 1}}, .page_bytes = kBytes, .pages = 3};
  DiskTierOptions options = Options();
  options.bytes_max = 256 << 20;
  std::vector<std::byte> arena(static_cast<size_t>(kBytes * large.pages));
  const auto tier = *DiskTier::Open(options);
  tier->Attach({arena.data()}, large);
  Inbox inbox;
  PagePart part{.index = 0, .kind = GroupKind::kFull, .blocks = {}, .key = {5, 7}};
  part.blocks.by_group[0] = BlockId(1);
  tier->Start({.id = MoveId(0),
               .place = Place::kDisk,
               .direction = Direction::kOut,
               .slot = {},
               .request = {},
               .parts = {part}},
              inbox);
  tier->Drain();
  tier->ReadAhead(Ahead(1, Keys(5, 6)));
  AwaitSoon([&] { return tier->stats().ahead_bytes == kBytes; });
  EXPECT_THAT(noted_.Ranges(), ElementsAre(std::pair<int64_t, int64_t>(0, kBytes)));
}

TEST_F(ReadAheadTest, WhatIsNotThereOrIsInMemoryIsNotRead) {
  Server(Options()).Store(50, 51);
  const auto host = *HostPages::Create(1 << 16);
  DiskTierOptions options = Options();
  options.host = host.get();
  Server server(options);
  server.Store(0, 5);
  server.tier().ReadAhead(Ahead(1, PartsOf(0, 5)));
  server.tier().ReadAhead(Ahead(2, PartsOf(100, 105)));
  server.tier().ReadAhead(Ahead(3, PartsOf(50, 51)));  // after the others
  AwaitSoon([&] { return server.tier().stats().ahead_bytes >= 256 + 320; });
  EXPECT_EQ(noted_.Ranges().size(), 2u);
  EXPECT_EQ(server.tier().stats().read_errors, 0);
  // Without a directory there is nothing to read ahead.
  Server alone({.directory = {}, .host = host.get(), .threads = 1});
  alone.tier().ReadAhead(Ahead(1, PartsOf(0, 5)));
  alone.Store(0, 5);
  EXPECT_THAT(noted_.Ranges(), IsEmpty());
}

TEST_F(ReadAheadTest, AClearedTierReadsNothingAhead) {
  Server server(Options());
  server.Store(0, 5);
  server.tier().BeginClear();
  server.tier().ReadAhead(Ahead(1, PartsOf(0, 5)));
  server.Store(5, 6);
  server.tier().ReadAhead(Ahead(1, PartsOf(5, 6)));
  AwaitSoon([&] { return server.tier().stats().ahead_bytes == 256 + 320; });
  EXPECT_EQ(noted_.Ranges().size(), 2u);
}

// The disk fails, a file is gone, bytes are torn off: nobody hears of it, and what can be read then
// comes.
TEST_F(ReadAheadTest, FaultsHarmNobody) {
  Server(Options()).Store(0, 5);
  {
    Server server(Options());
    noted_.reads_left = 0;
    server.tier().ReadAhead(Ahead(1, PartsOf(0, 5)));
    AwaitSoon([&] { return noted_.reads_left <= -6; });
    noted_.reads_left = 1 << 30;
    EXPECT_THAT(server.Restored(0, 5), ElementsAre(0, 1, 2, 3, 4, 1004));
    const DiskTierStats stats = server.tier().stats();
    EXPECT_EQ(stats.ahead_bytes, 0);
    EXPECT_EQ(stats.read_errors, 0);
    EXPECT_EQ(stats.damaged, 0);
  }
  for (const bool gone : {false, true}) {
    Server server(Options());
    for (const std::string& path : FilesWith(".pages")) {
      gone ? void(std::filesystem::remove(path)) : std::filesystem::resize_file(path, 4096);
    }
    server.tier().ReadAhead(Ahead(1, PartsOf(0, 5)));
    AwaitSoon([&] { return gone || server.tier().stats().ahead_bytes > 0; });
    EXPECT_EQ(server.Restored(0, 5).size(), gone ? 0u : 1u);
    EXPECT_EQ(server.tier().stats().parts, gone ? 0 : 1) << "moves have found the others lost";
  }
}

// A disk that hangs while it reads ahead.
TEST_F(ReadAheadTest, AMoveDoesNotWaitForIt) {
  Server server(Options());
  server.Store(0, 3);
  std::mutex gate;
  std::atomic<int> waiting = 0;
  noted_.before_ask = [&] {
    ++waiting;
    std::lock_guard wait(gate);
  };
  {
    std::lock_guard closed(gate);
    server.tier().ReadAhead(Ahead(1, PartsOf(0, 3)));
    AwaitSoon([&] { return waiting > 0; });
    EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
    server.tier().Drain();
    EXPECT_EQ(waiting, 1) << "one thread reads ahead";
  }
  AwaitSoon([&] { return server.tier().stats().ahead_bytes == 3 * 256 + 320; });
}

// A queue whose threads wait for each part, or piece, until they are told.
class Gated {
 public:
  explicit Gated(int threads) { queue.Begin(threads); }
  ~Gated() { Open(100); }
  void Open(int count) {
    std::lock_guard lock(mutex_);
    open_ += count;
    wake_.notify_all();
  }
  // What was begun so far, when it is so much.
  std::vector<std::string> Begun(size_t count) {
    std::unique_lock lock(mutex_);
    const std::chrono::microseconds soon(kSoonUs);
    wake_.wait_for(lock, soon, [&] { return begun_.size() >= count; });
    return begun_;
  }
  void Start(Direction direction, int64_t id, int32_t parts) {
    PageMove move{.id = MoveId(id),
                  .place = Place::kDisk,
                  .direction = direction,
                  .slot = {},
                  .request = {},
                  .parts = std::vector<PagePart>(static_cast<size_t>(parts))};
    queue.Start(move, inbox_);
  }

 private:
  void Enter(std::string what) {
    std::unique_lock lock(mutex_);
    begun_.push_back(std::move(what));
    wake_.notify_all();
    wake_.wait(lock, [&] { return open_ > 0; });
    --open_;
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  int open_ = 0;
  std::vector<std::string> begun_;
  Inbox inbox_;

 public:
  MoveQueue queue{[this](const PageMove& move, const PagePart&, int64_t) {
                    Enter((move.in() ? "in " : "out ") + std::to_string(move.id.value));
                    return MoveQueue::Carried();
                  },
                  [this](const KnownPart& part, int64_t offset) {
                    Enter(std::to_string(part.key.low) + "+" + std::to_string(offset));
                    return offset < 2 ? offset + 1 : -1;
                  }};
};

TEST(ReadAheadQueueTest, PiecesComeBehindWhatComesInAndBeforeWhatLeaves) {
  Gated gated(1);
  gated.Start(Direction::kOut, 0, 1);
  EXPECT_THAT(gated.Begun(1), ElementsAre("out 0"));
  gated.Start(Direction::kOut, 1, 1);
  gated.queue.ReadAhead(Ahead(1, Keys(5, 7)));
  gated.Start(Direction::kIn, 2, 1);
  gated.Open(2);
  EXPECT_THAT(gated.Begun(3), ElementsAre("out 0", "in 2", "5+0"));
  gated.Start(Direction::kIn, 3, 1);  // before the next piece
  gated.Open(100);
  EXPECT_THAT(gated.Begun(10), ElementsAre("out 0", "in 2", "5+0", "in 3", "5+1", "5+2", "6+0",
                                           "6+1", "6+2", "out 1"));
}

TEST(ReadAheadQueueTest, NothingIsReadAheadBesideWhatComesIn) {
  Gated gated(3);
  gated.Start(Direction::kIn, 0, 2);
  EXPECT_THAT(gated.Begun(2), ElementsAre("in 0", "in 0"));
  gated.queue.ReadAhead(Ahead(1, Keys(5, 7)));
  gated.Start(Direction::kOut, 1, 1);  // the third thread would rather read ahead
  EXPECT_THAT(gated.Begun(3), ElementsAre("in 0", "in 0", "out 1"));
  gated.Open(100);
  EXPECT_EQ(gated.Begun(9).size(), 9u);
}

TEST(ReadAheadQueueTest, OneThreadReadsAheadAndTheOthersWrite) {
  Gated gated(4);
  gated.queue.ReadAhead(Ahead(1, Keys(5, 9)));
  EXPECT_THAT(gated.Begun(1), ElementsAre("5+0"));
  gated.Start(Direction::kOut, 0, 4);  // by two of three: one thread in four only reads
  EXPECT_EQ(gated.Begun(3).size(), 3u);
  gated.Start(Direction::kIn, 1, 1);
  EXPECT_EQ(gated.Begun(4).back(), "in 1");
  EXPECT_EQ(gated.Begun(4).size(), 4u);
}

TEST(ReadAheadQueueTest, WhatIsVoidIsNotReadAheadAnyMore) {
  Gated gated(1);
  gated.queue.ReadAhead(Ahead(1, Keys(5, 7)));
  EXPECT_THAT(gated.Begun(1), ElementsAre("5+0"));
  gated.queue.ReadAhead(Ahead(2, Keys(8, 9)));
  gated.queue.ReadAhead(Ahead(1, {}));
  gated.Open(100);
  EXPECT_THAT(gated.Begun(4), ElementsAre("5+0", "8+0", "8+1", "8+2"));
  gated.Start(Direction::kOut, 0, 1);
  EXPECT_THAT(gated.Begun(5).back(), "out 0");
}

TEST(ReadAheadQueueTest, AStopWritesWhatLeavesAndReadsNothingAhead) {
  constexpr size_t kParts = 100'000;
  Gated gated(1);
  gated.queue.ReadAhead(Ahead(1, Keys(5, 5 + kParts)));
  EXPECT_THAT(gated.Begun(1), ElementsAre("5+0"));
  gated.Start(Direction::kOut, 0, 2);
  std::atomic<bool> stopped = false;
  std::thread stop([&] {
    gated.queue.Stop();
    stopped = true;
  });
  for (; !stopped; ::usleep(1000)) gated.Open(1);
  stop.join();
  const std::vector<std::string> begun = gated.Begun(3);
  EXPECT_LT(begun.size(), kParts);
  EXPECT_THAT(std::vector(begun.end() - 2, begun.end()), ElementsAre("out 0", "out 0"));
}

// Each rank has its own part of a page in its own folder; another group's ranks do nothing.
TEST_F(ReadAheadTest, EachRankOfTheGroupReadsItsPartAhead) {
  const CacheGeometry geometry = {
      .groups = {{"keys", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 8};
  std::vector<std::byte> arena(64 * 8);
  const auto tiers = *RankTiers::Open(Options(), {4, 2});
  Inbox inbox;
  tiers->Watch(inbox);
  PagePart part{.index = 0, .kind = GroupKind::kFull, .blocks = {}, .key = {5, 7}};
  part.blocks.by_group[0] = BlockId(3);
  for (int32_t rank = 0; rank < 4; ++rank) {
    tiers->MoverOf(rank).Attach({arena.data()}, geometry);
    tiers->MoverOf(rank).Start({.id = MoveId(0),
                                .place = Place::kDisk,
                                .direction = Direction::kOut,
                                .dp_rank = DpRankId(0),
                                .slot = {},
                                .request = {},
                                .parts = {part}},
                               inbox);
  }
  for (int32_t rank = 0; rank < 4; ++rank) tiers->MoverOf(rank).Drain();
  AwaitSoon([&] { return tiers->stats().parts == 1; });  // all know it
  for (int32_t rank = 0; rank < 4; ++rank) tiers->MoverOf(rank).ReadAhead(Ahead(1, Keys(5, 6)));
  AwaitSoon([&] { return tiers->stats().ahead_bytes >= 2 * 64; });
  ::usleep(50'000);
  EXPECT_EQ(tiers->stats().ahead_bytes, 2 * 64);
}

}  // namespace
}  // namespace braid
