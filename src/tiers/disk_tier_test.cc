// What a directory of pages survives: restarts, another server, damage at any byte, disks that
// fail.
#include "tiers/disk_tier.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/rng.h"
#include "base/system/test_root.h"
#include "tiers/test_disk_tier.h"

namespace braid {
namespace {

using namespace disk_tier_test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(DiskTierTest, ComesBackBitForBitAlsoAfterARestart) {
  {
    Server server(Options());
    EXPECT_TRUE(server.Store(0, 5).error.empty());
    EXPECT_THAT(server.Restored(0, 5), ElementsAre(0, 1, 2, 3, 4, 1004));
  }
  Server server(Options());
  EXPECT_EQ(server.known().size(), 6u);
  EXPECT_THAT(server.Restored(0, 5), ElementsAre(0, 1, 2, 3, 4, 1004));
  struct stat directory;
  ASSERT_EQ(::stat(directory_.c_str(), &directory), 0);
  EXPECT_EQ(directory.st_mode & 0777, 0700u);
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    struct stat info;
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
  }
}

TEST_F(DiskTierTest, MemoryComesFirstAndKeepsWhatCameFromDisk) {
  DiskTierOptions options = Options();
  for (const bool stored : {false, true}) {
    const auto host = *HostPages::Create(1 << 16);
    options.host = host.get();
    Server server(options);
    stored ? void(server.Restored(0, 3)) : void(server.Store(0, 3));
    files_.reads_left = 0;
    EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
    files_.reads_left = 1 << 30;
  }
  const auto host = *HostPages::Create(4 * 256);  // parts of keys have 256 bytes, states 320
  Server alone({.directory = {}, .host = host.get(), .threads = 1});
  alone.Store(0, 5);
  EXPECT_THAT(alone.Restored(2, 5), ElementsAre(3, 4, 1004));  // which came last
}

TEST_F(DiskTierTest, WritesNothingTwice) {
  Server server(Options());
  server.Store(0, 5);
  const int64_t written = server.tier().stats().written_bytes;
  EXPECT_GT(written, 5 * 256 + 320);
  const PagesMoved again = server.Store(0, 5);
  EXPECT_TRUE(again.error.empty());
  EXPECT_EQ(again.disk_bytes, 0);
  EXPECT_EQ(server.tier().stats().written_bytes, written);
}

// Only of what the disk has written and read.
TEST_F(DiskTierTest, MovesTellTheirBytes) {
  const auto host = *HostPages::Create(1 << 16);
  DiskTierOptions options = Options();
  options.host = host.get();
  constexpr int64_t kBytes = 3 * 256 + 320;
  {
    Server server(options);
    files_.writes_left = 0;
    const PagesMoved kept = server.Store(0, 3);
    EXPECT_EQ(kept.error, "") << "it is in memory";
    EXPECT_EQ(kept.disk_bytes, 0);
    files_.writes_left = 1 << 30;
    EXPECT_EQ(server.Store(0, 3).disk_bytes, kBytes + 4 * 64);
    const PagesMoved read = server.Move(Direction::kIn, Server::Parts(0, 3));
    EXPECT_EQ(read.disk_bytes, 0);
    EXPECT_EQ(read.memory_bytes, kBytes);
    EXPECT_THAT(read.in_memory, ElementsAre(0, 1, 2, 3));
  }
  const PagesMoved read = Server(Options()).Move(Direction::kIn, Server::Parts(0, 3));
  EXPECT_EQ(read.disk_bytes, kBytes);
  EXPECT_EQ(read.memory_bytes, 0);
  EXPECT_THAT(read.in_memory, IsEmpty());
}

// As where many connections are open.
TEST_F(DiskTierTest, WithoutDescriptorsPagesAreReadLater) {
  { Server(Options()).Store(0, 3); }
  DiskTierOptions options = Options();
  options.watch_us = 3'600'000'000;  // nothing else is opened and closed
  Server server(options);
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int lowest_free = ::dup(STDERR_FILENO);
  ASSERT_GE(lowest_free, 0);
  ::close(lowest_free);
  const rlimit none{static_cast<rlim_t>(lowest_free), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::vector<int32_t> came = server.Restored(0, 3);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(came, IsEmpty());
  EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
}

TEST_F(DiskTierTest, PagesOfAnotherFingerprintAreNotThere) {
  {
    Server server(Options('a'));
    server.Store(0, 3);
  }
  Server server(Options('b'));
  EXPECT_THAT(server.known(), IsEmpty());
  EXPECT_THAT(server.Restored(0, 3), IsEmpty());
}

// Its name is what a file is chosen by; its header decides.
TEST_F(DiskTierTest, AFileThatOnlyHasTheNameIsNotRead) {
  {
    Server server(Options('b'));
    server.Store(0, 3);
  }
  for (const char* extension : {".pages", ".index"}) {
    const std::string path = FilesWith(extension).at(0);
    std::string name = std::filesystem::path(path).filename().string();
    name.replace(0, 16, Options('a').fingerprint.digits.substr(0, 16));
    std::filesystem::rename(path, directory_ + "/" + name);
  }
  Server server(Options('a'));
  EXPECT_THAT(server.known(), IsEmpty());
  EXPECT_THAT(server.Restored(0, 3), IsEmpty());
}

TEST_F(DiskTierTest, TwoServersReadWhatEachOtherWrites) {
  Server one(Options()), two(Options());
  one.Store(0, 3);
  two.Store(3, 6);
  for (int i = 0; i < 1000 && (one.known().size() < 4 || two.known().size() < 4); ++i) {
    ::usleep(10'000);
    one.Take();
    two.Take();
  }
  EXPECT_THAT(one.Restored(3, 6), ElementsAre(3, 4, 5, 1005));
  EXPECT_THAT(two.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
  EXPECT_EQ(FilesWith(".pages").size(), 2u);
}

class TwoPlacesTest : public DiskTierTest {
 protected:
  // Two segments with the same parts, as two servers leave them which answer the same prompt at the
  // same time.
  void StoreTwice() {
    const std::string aside = directory_ + "_aside";
    std::filesystem::remove_all(aside);
    {
      Server server(Options());
      server.Store(0, 3);
    }
    std::filesystem::rename(directory_, aside);
    {
      Server server(Options());
      server.Store(0, 3);
    }
    for (const std::string& path : FilesWith(".pages")) {
      const std::string stem = std::filesystem::path(path).stem().string();
      for (const char* extension : {".pages", ".index"}) {
        std::filesystem::copy(directory_ + "/" + stem + extension, aside + "/" + stem + extension);
      }
    }
    std::filesystem::remove_all(directory_);
    std::filesystem::rename(aside, directory_);
    ASSERT_EQ(FilesWith(".pages").size(), 2u);
  }
};

TEST_F(TwoPlacesTest, WhatTwoSegmentsHaveOutlivesEither) {
  StoreTwice();
  const auto first = [&] { return std::filesystem::path(FilesWith(".pages").at(0)).stem(); };
  Server server(Options());
  for (int left = 2; left > 0; --left) {
    EXPECT_EQ(server.known().size(), 4u);
    EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
    const std::string stem = directory_ + "/" + first().string();
    for (const char* extension : {".index", ".pages"}) std::filesystem::remove(stem + extension);
    server.Restored(90, 91);  // is not there, so the directory is looked through
    server.Take();
  }
  EXPECT_THAT(server.known(), IsEmpty());
  EXPECT_THAT(server.Restored(0, 3), IsEmpty());
}

TEST_F(TwoPlacesTest, APartIsReadWhereItIsGood) {
  for (const bool damaged : {true, false}) {
    for (const size_t bad : {0, 1}) {
      std::filesystem::remove_all(directory_);
      StoreTwice();
      DiskTierOptions options = Options();
      options.watch_us = 60'000'000;
      Server server(options);
      const std::string path = FilesWith(".pages").at(bad);
      damaged ? Write(path, std::string(Read(path).size(), 'x'))
              : void(std::filesystem::remove(path));
      EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
      EXPECT_EQ(server.tier().stats().read_errors, 0);
    }
  }
}

// One segment has the part twice, the first time damaged. Two threads fail there at the same time:
// the second of them does not drop the place that the first one goes on to.
TEST_F(TwoPlacesTest, ReadersThatFailTogetherFindTheSecondPlace) {
  {
    Server server(Options());
    server.Store(0, 1);
  }
  const std::string pages = FilesWith(".pages").at(0), index = FilesWith(".index").at(0);
  std::string bytes = Read(pages), entries = Read(index);
  SegmentEntry entry;
  std::memcpy(&entry, entries.data() + kSegmentHeaderBytes, sizeof(entry));
  ASSERT_EQ(entry.place.kind, 0u);
  const auto begin = static_cast<size_t>(entry.place.offset);
  const auto size = static_cast<size_t>(entry.place.bytes);
  entry.place.offset = static_cast<int64_t>(bytes.size());
  Seal(entry);
  bytes += bytes.substr(begin, size);
  bytes[begin] ^= 1;
  entries.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  Write(pages, bytes);
  Write(index, entries);
  DiskTierOptions options = Options();
  options.watch_us = 60'000'000;
  std::atomic<int> arrived = 0;
  Server server(options);
  files_.before_read = [&] {
    for (++arrived; arrived < 2;) ::usleep(1000);
  };
  std::vector<PagePart> both(2, Server::Part(0, GroupKind::kFull));
  both[1].blocks = Server::Part(1, GroupKind::kFull).blocks;
  EXPECT_EQ(server.Move(Direction::kIn, both).error, "");
  for (const PagePart& part : both) EXPECT_TRUE(server.Holds(part));
}

TEST_F(DiskTierTest, KeepsWithinItsBoundAndDropsWhatWasUsedLongestAgo) {
  DiskTierOptions options = Options();
  options.bytes_max = 256 << 10;
  Server server(options);
  for (int32_t n = 0; n < 120; n += 4) {
    EXPECT_TRUE(server.Store(n, n + 4).error.empty());
    if (n == 20) server.Restored(900, 901);  // is not there, so the times of files are looked at
    EXPECT_LE(server.tier().stats().bytes, options.bytes_max);
  }
  server.Take();
  EXPECT_GT(server.tier().stats().dropped, 50);
  EXPECT_THAT(server.Restored(116, 120), ElementsAre(116, 117, 118, 119, 1119));
  EXPECT_THAT(server.Restored(0, 4), IsEmpty());
  EXPECT_THAT(server.known(),
              ::testing::Not(::testing::Contains(KnownPart{{0, 7}, GroupKind::kFull})));
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    bytes += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_LE(bytes, options.bytes_max);
}

TEST_F(DiskTierTest, ASegmentThatSomebodyWritesToIsNotDropped) {
  Server other(Options());
  other.Store(0, 3);
  const std::string path = FilesWith(".pages").at(0);
  // Used longest ago, so that it would be the first to go.
  std::filesystem::last_write_time(path,
                                   std::filesystem::last_write_time(path) - std::chrono::hours(1));
  DiskTierOptions options = Options();
  options.bytes_max = 128 << 10;
  Server server(options);
  for (int32_t n = 10; n < 60; n += 4) server.Store(n, n + 4);
  EXPECT_THAT(other.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
  EXPECT_TRUE(std::filesystem::exists(path));
}

// A crash can cut either file anywhere: what is said to have come is right, and the start succeeds.
TEST_F(DiskTierTest, ATornWriteAtAnyByteCostsMissesOnly) {
  {
    Server server(Options());
    server.Store(0, 2);
  }
  const std::string pages = FilesWith(".pages").at(0), index = FilesWith(".index").at(0);
  const std::string all_pages = Read(pages), all_index = Read(index);
  ASSERT_EQ(all_index.size(), 64u + 3 * 64);
  for (size_t cut = 0; cut <= all_index.size(); ++cut) {
    Write(index, all_index.substr(0, cut));
    Server server(Options());
    EXPECT_EQ(server.known().size(), cut < 128 ? 0 : (cut - 64) / 64) << cut;
    if (cut % 16 == 0) server.Restored(0, 2);
  }
  Write(index, all_index);
  for (size_t cut = 0; cut < all_pages.size(); cut += 61) {
    Write(pages, all_pages.substr(0, cut));
    Server server(Options());
    server.Restored(0, 2);
  }
  Write(pages, all_pages);
  Server server(Options());
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

// Also where a block of zeros is what the disk has of the last writes.
TEST_F(DiskTierTest, AFlippedBitCostsThatPartOnly) {
  {
    Server server(Options());
    server.Store(0, 2);
  }
  const std::string pages = FilesWith(".pages").at(0), index = FilesWith(".index").at(0);
  const std::string all_pages = Read(pages), all_index = Read(index);
  for (size_t bit = 0; bit < all_index.size() * 8; bit += 3) {
    std::string bytes = all_index;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    Write(index, bytes);
    Server server(Options());
    EXPECT_EQ(server.known().size(), bit < 512 ? 0u : 2u) << bit;
  }
  Write(index, all_index);
  int damaged = 0;
  for (size_t bit = 0; bit < all_pages.size() * 8; bit += 131) {
    std::string bytes = all_pages;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    Write(pages, bytes);
    Server server(Options());
    damaged += server.Restored(0, 2).size() < 3;
    if (bit % 1024 != 0) continue;
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(bit / 8), bytes.end(), 0);
    Write(pages, bytes);
    Server zeros(Options());
    zeros.Restored(0, 2);
  }
  EXPECT_GT(damaged, 20);
  Write(pages, std::string(all_pages.size(), 'x'));
  Server server(Options());
  EXPECT_THAT(server.Restored(0, 2), IsEmpty());
  server.Store(0, 2);  // what was damaged is written again
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

TEST_F(DiskTierTest, AFullDiskCostsWhatDoesNotFit) {
  Server server(Options());
  server.Store(0, 2);
  files_.writes_left = 0;
  const PagesMoved moved = server.Store(2, 4);
  EXPECT_THAT(moved.lost, ElementsAre(0, 1, 2));
  EXPECT_THAT(moved.error, HasSubstr("No space left"));
  EXPECT_THAT(server.Restored(2, 4), IsEmpty());
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
  files_.writes_left = 1 << 30;
  EXPECT_TRUE(server.Store(2, 4).error.empty());
  EXPECT_THAT(server.Restored(2, 4), ElementsAre(2, 3, 1003));
}

// Whatever write of a series fails, what is left is right.
TEST_F(DiskTierTest, AnyWriteMayFail) {
  for (int64_t good = 0; good < 14; ++good) {
    std::filesystem::remove_all(directory_);
    files_.writes_left = good;
    {
      Server server(Options());
      server.Store(0, 3);
      server.Restored(0, 3);
    }
    files_.writes_left = 1 << 30;
    Server server(Options());
    server.Restored(0, 3);
    EXPECT_TRUE(server.Store(0, 3).error.empty()) << good;
    EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002)) << good;
  }
}

TEST_F(DiskTierTest, AReadErrorCostsTheParts) {
  Server server(Options());
  server.Store(0, 2);
  files_.reads_left = 0;
  EXPECT_THAT(server.Restored(0, 2), IsEmpty());
  EXPECT_EQ(server.tier().stats().read_errors, 3);
  files_.reads_left = 1 << 30;
  EXPECT_TRUE(server.Store(0, 2).error.empty());  // what could not be read may be written again
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

TEST_F(DiskTierTest, ShortReadsAndWritesGoOn) {
  files_.bytes_at_once = 7;
  Server server(Options());
  EXPECT_TRUE(server.Store(0, 2).error.empty());
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

TEST_F(DiskTierTest, ClearRemovesAllAndGoesOn) {
  Server server(Options());
  server.Store(0, 2);
  server.tier().BeginClear();
  server.tier().AwaitCleared();
  EXPECT_THAT(FilesWith(".pages"), IsEmpty());
  EXPECT_THAT(FilesWith(".index"), IsEmpty());
  EXPECT_THAT(server.Restored(0, 2), IsEmpty());
  EXPECT_TRUE(server.Store(0, 2).error.empty());
  EXPECT_THAT(server.Restored(0, 2), ElementsAre(0, 1, 1001));
}

PageCipher KeyOf(char c) {
  std::array<std::byte, 32> key;
  key.fill(static_cast<std::byte>(c));
  return PageCipher(key);
}

TEST_F(DiskTierTest, EncryptedPagesComeBackWithTheirKeyOnly) {
  DiskTierOptions with = Options(), other = Options();
  with.cipher = KeyOf('k');
  other.cipher = KeyOf('o');
  std::string block(192, 0);  // of part 1, as Fill writes it
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(RandomBits(1, i));
  const PageKey key = Server::Part(1, GroupKind::kFull).key;
  const std::string_view name(reinterpret_cast<const char*>(&key), sizeof(key));
  const auto told = [&] {
    std::string all;
    for (const char* extension : {".pages", ".index"}) {
      for (const std::string& path : FilesWith(extension)) all += Read(path);
    }
    return std::pair(all.find(block) != std::string::npos, all.find(name) != std::string::npos);
  };
  {
    Server server(with);
    EXPECT_TRUE(server.Store(0, 3).error.empty());
    EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
  }
  EXPECT_EQ(told(), std::pair(false, false));
  const std::string index = Read(FilesWith(".index").at(0));
  std::set<uint64_t> nonces;
  for (int i = 0; i < 4; ++i) {
    SegmentEntry entry;
    std::memcpy(&entry, index.data() + kSegmentHeaderBytes + i * 64, sizeof(entry));
    nonces.insert(entry.place.nonce_high);
  }
  EXPECT_EQ(nonces.size(), 4u);
  for (const DiskTierOptions& wrong : {other, Options()}) {
    Server server(wrong);
    EXPECT_THAT(server.known(), IsEmpty());
    EXPECT_THAT(server.Restored(0, 3), IsEmpty());
    EXPECT_TRUE(server.Store(0, 3).error.empty());
    EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
  }
  EXPECT_EQ(told(), std::pair(true, true));  // by the last one, which has no key
  Server server(with);
  EXPECT_EQ(server.known().size(), 4u);
  EXPECT_THAT(server.Restored(0, 3), ElementsAre(0, 1, 2, 1002));
}

// Exchanges where two parts of one kind lie.
void Exchange(SegmentEntry* begin, SegmentEntry* end) {
  const auto full = [](const SegmentEntry& e) { return e.place.kind == 0; };
  SegmentEntry* a = std::find_if(begin, end, full);
  SegmentEntry* b = std::find_if(a + 1, end, full);
  ASSERT_NE(b, end);
  std::swap(a->place, b->place);
  Seal(*a);
  Seal(*b);
}

// Neither a mistake nor, where pages are encrypted, a forger makes one page pass for another.
TEST_F(DiskTierTest, APartInThePlaceOfAnotherIsAMiss) {
  for (const bool encrypted : {false, true}) {
    std::filesystem::remove_all(directory_);
    DiskTierOptions options = Options();
    if (encrypted) options.cipher = KeyOf('k');
    {
      Server server(options);
      server.Store(0, 2);
    }
    const std::string pages = FilesWith(".pages").at(0), index = FilesWith(".index").at(0);
    const std::string all_pages = Read(pages), all_index = Read(index);
    std::vector<SegmentEntry> entries(3);
    const auto change = [&](auto f) {
      std::memcpy(entries.data(), all_index.data() + kSegmentHeaderBytes, 3 * 64);
      f();
      Write(index, all_index.substr(0, kSegmentHeaderBytes) +
                       std::string(reinterpret_cast<const char*>(entries.data()), 3 * 64));
    };
    change([&] { Exchange(entries.data(), entries.data() + 3); });
    {
      Server server(options);
      EXPECT_EQ(server.known().size(), 3u);
      EXPECT_THAT(server.Restored(0, 2), ElementsAre(1001));
      EXPECT_EQ(server.tier().stats().damaged, 2);
    }
    if (!encrypted) continue;
    change([&] {
      entries[0].place.nonce_low ^= 1;
      Seal(entries[0]);
    });
    EXPECT_EQ(Server(options).Restored(0, 2).size(), 2u);
    Write(index, all_index);
    for (size_t bit = 0; bit < all_pages.size() * 8; bit += 1777) {
      std::string bytes = all_pages;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      Write(pages, bytes);
      Server(options).Restored(0, 2);  // what is said to have come is right
    }
  }
}

TEST_F(DiskTierTest, AFileThatIsNoKeyIsRefused) {
  std::filesystem::create_directory(directory_);
  const std::string path = directory_ + "/key";
  for (const std::string& text :
       {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(63, 'a') + 'g'}) {
    Write(path, text);
    const auto cipher = PageCipher::Load(path);
    ASSERT_FALSE(cipher.ok()) << text;
    EXPECT_THAT(cipher.error().message, HasSubstr("openssl rand -hex 32"));
    EXPECT_TRUE(text.empty() || cipher.error().message.find(text) == std::string::npos);
  }
  Write(path, std::string(64, 'a') + "\n");
  const auto cipher = PageCipher::Load(path);
  ASSERT_TRUE(cipher.ok());
  EXPECT_EQ(cipher->id().size(), 16u);
  const PageKey key{1, 2};
  EXPECT_EQ(cipher->Show(cipher->Hide(key)), key);
  EXPECT_NE(cipher->Hide(key), key);
}

TEST(PartSumTest, DoesNotDependOnHowBytesAreCut) {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(RandomBits(1, i));
  const auto sum = [&](size_t step, uint32_t kind = 0) {
    PartSum sum({1, 2}, kind);
    for (size_t at = 0; at < bytes.size(); at += step) {
      sum.Add(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
    }
    return sum.End();
  };
  const uint64_t whole = sum(1000);
  for (const size_t step : {1, 7, 63, 64, 65, 128, 999}) EXPECT_EQ(sum(step), whole) << step;
  EXPECT_NE(sum(1000, 1), whole);
  EXPECT_EQ(whole, 12737719281255019580u) << "other versions' directories are read";
  bytes.push_back(std::byte{0});
  EXPECT_NE(sum(1001), whole);
}

TEST_F(DiskTierTest, ADirectoryThatCannotBeUsedIsRefusedByName) {
  Write(directory_, "a file");
  const auto tier = DiskTier::Open(Options());
  ASSERT_FALSE(tier.ok());
  EXPECT_THAT(tier.error().message, HasSubstr(directory_));
  std::filesystem::remove_all(directory_);
}

}  // namespace
}  // namespace braid
