// What stands in names, headers and entries of segments, and whose they are.
#include "tiers/segments/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tiers/part_file.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TierFingerprint, BehindAnEmptyLineItHoldsInOnePlaceOnly) {
  const TierFingerprint all("a: b\n", "c: d\n"), moved("a: b\n", "c: e\n"), common("a: b\n");
  EXPECT_EQ(all.lines, "a: b\n\nc: d\n");
  EXPECT_EQ(all.digits.size(), 32u);
  EXPECT_NE(all.digits, moved.digits);
  EXPECT_EQ(all.portable, moved.portable);
  EXPECT_EQ(all.portable, common.portable);
  EXPECT_EQ(common.lines, "a: b\n");
  EXPECT_EQ(common.digits, common.portable);
  EXPECT_NE(all.portable, TierFingerprint("a: c\n", "c: d\n").portable);
  for (const TierFingerprint& same : {all, common, all.OfRank(1, 2), common.OfRank(1, 2)}) {
    const TierFingerprint again = TierFingerprint::Of(same.lines);
    EXPECT_EQ(again.lines, same.lines);
    EXPECT_EQ(again.digits, same.digits);
    EXPECT_EQ(again.portable, same.portable);
  }
}

TEST(TierFingerprint, ARankIsPortableUnlessItIsTheOnlyOne) {
  for (const std::string& local : {std::string(), std::string("c: d\n")}) {
    const TierFingerprint one("a: b\n", local);
    const TierFingerprint first = one.OfRank(0, 2), second = one.OfRank(1, 2);
    EXPECT_EQ(RankOf(one.lines), "");
    EXPECT_EQ(RankOf(first.lines), "0 of 2");
    EXPECT_EQ(RankOf(second.lines), "1 of 2");
    EXPECT_EQ(RankOf(one.OfRank(0, 1).lines), "");
    EXPECT_EQ(PortableLines(second.lines), "a: b\n\nthe rank: 1 of 2\n");
    EXPECT_EQ(PortableLines(one.OfRank(0, 1).lines), "a: b\n");
    EXPECT_NE(first.digits, second.digits);
    EXPECT_NE(first.portable, second.portable);
    EXPECT_EQ(one.OfRank(0, 1).portable, one.portable);
  }
  for (const char* lines : {"the rank: 1 of 2\n", "a: b\nthe rank: 1 of 2\n"}) {
    EXPECT_EQ(RankOf(lines), "") << "it is not among the lines of one place";
  }
}

TEST(SegmentHeaderTest, IsReadAsItWasWrittenAndInNoOtherForm) {
  const std::string digits(32, 'd'), key(16, 'e');
  for (const SegmentIdentity& identity : {SegmentIdentity{digits, ""}, {digits, key}}) {
    const std::string header = SegmentHeader(identity);
    ASSERT_EQ(std::ssize(header), kSegmentHeaderBytes);
    EXPECT_EQ(ParseHeader(header), identity);
    EXPECT_FALSE(ParseHeader(header + '-'));
    EXPECT_FALSE(ParseHeader(header.substr(1)));
    for (size_t byte = 0; byte < header.size(); ++byte) {
      std::string other = header;
      other[byte] = static_cast<char>(other[byte] ^ 1);
      EXPECT_FALSE(ParseHeader(other)) << byte;
    }
  }
}

class SegmentTest : public ::testing::Test {
 protected:
  SegmentTest() : directory_(::testing::TempDir() + "segment" + std::to_string(::getpid())) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~SegmentTest() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, size_t bytes) const {
    std::ofstream(Path(name), std::ios::binary) << std::string(bytes, 'x');
  }
  bool Has(const std::string& name) const { return std::filesystem::exists(Path(name)); }

  const std::string directory_;
  FileLayer files_;
};

// Of 1000 bytes of pages. What comes behind a bad entry is good all the same, and what is bad at
// the end may still be written.
TEST_F(SegmentTest, EntriesThatNameNoBytesOfThePagesAreLeftOut) {
  const SegmentIdentity identity{std::string(32, 'd'), ""};
  Write("s.pages", 1000);
  const auto read = [&](std::vector<PartPlace> places, int64_t& begin) {
    const SegmentFiles made = *CreateSegment(files_, Path("i"), identity);
    std::vector<SegmentEntry> entries;
    for (const PartPlace& place : places) {
      entries.push_back({.key = {std::size(entries), 1}, .place = place});
      Seal(entries.back());
    }
    EXPECT_TRUE(WriteAll(files_, made.index, std::as_bytes(std::span(entries)), 64));
    const auto found =
        ReadEntries(files_, {.fd = made.index, .pages = Path("s.pages")}, identity, begin);
    ::close(made.pages);
    ::close(made.index);
    EXPECT_TRUE(RemoveFiles(Path("i")));
    std::vector<uint64_t> keys;
    for (const SegmentEntry& entry : *found) keys.push_back(entry.key.low);
    return keys;
  };
  const PartPlace good{.offset = 0, .bytes = 1000};
  for (const PartPlace& edge : std::vector<PartPlace>{
           {.offset = 999, .bytes = 1}, {.offset = 0, .bytes = 1}, {.bytes = 5, .kind = 1}}) {
    int64_t begin = 0;
    EXPECT_THAT(read({good, edge, good}, begin), ElementsAre(0, 1, 2));
    EXPECT_EQ(begin, 64 + 3 * 64);
  }
  for (const PartPlace& bad : std::vector<PartPlace>{{.offset = -1, .bytes = 5},
                                                     {.offset = 0, .bytes = 0},
                                                     {.offset = 0, .bytes = -1},
                                                     {.offset = 1, .bytes = 1000},
                                                     {.offset = 0, .bytes = 1001},
                                                     {.offset = INT64_MAX, .bytes = 1},
                                                     {.offset = 0, .bytes = 5, .kind = 2}}) {
    int64_t begin = 0;
    EXPECT_THAT(read({good, bad, good}, begin), ElementsAre(0, 2)) << bad.offset;
    EXPECT_EQ(begin, 64 + 3 * 64);
    begin = 0;
    EXPECT_THAT(read({good, bad, bad}, begin), ElementsAre(0));
    EXPECT_EQ(begin, 64 + 64) << "those behind are looked at again";
    begin = 64 + 64;
    EXPECT_THAT(read({good, bad, good}, begin), ElementsAre(2));
  }
}

TEST_F(SegmentTest, AnIndexOfAnotherKeySaysWhich) {
  const std::string digits(32, 'd'), one(16, '1'), other(16, '2');
  const SegmentFiles made = *CreateSegment(files_, Path("s"), {digits, one});
  const auto why = [&](const SegmentIdentity& identity) {
    int64_t begin = 0;
    const IndexFile file{.fd = made.index, .pages = Path("s.pages")};
    return ReadEntries(files_, file, identity, begin).error();
  };
  EXPECT_EQ(why({digits, other}).code, ErrorCode::kUnavailable);
  EXPECT_THAT(why({digits, other}).message,
              HasSubstr("encrypted with key " + one + ", here is key " + other));
  EXPECT_THAT(why({digits, ""}).message, HasSubstr("key " + one + ", here is no key"));
  EXPECT_EQ(why({std::string(32, 'e'), one}).code, ErrorCode::kInvalid);
  ::close(made.pages);
  ::close(made.index);
}

TEST_F(SegmentTest, SegmentsAreListedByNameWithTheirBytes) {
  const TierFingerprint fingerprint("a: b\n");
  const std::string mine = fingerprint.digits.substr(0, 16);
  Write(mine + ".2.pages", 100);
  Write(mine + ".2.index", 64);
  Write(mine + ".1.pages", 10);  // without an index
  Write(mine + "x.pages", 7);    // a longer name
  Write("another.pages", 1);
  Write(mine + ".3.index", 64);  // without pages
  std::filesystem::create_directory(Path("folder.pages"));
  const timespec times[2] = {{1000, 0}, {1234, 5'678'000}};
  ASSERT_EQ(::utimensat(AT_FDCWD, Path(mine + ".2.pages").c_str(), times, 0), 0);
  const std::vector<SegmentName> names = *ListSegments(directory_, fingerprint);
  std::vector<std::string> stems;
  for (const SegmentName& name : names) {
    stems.push_back(std::filesystem::path(name.stem).filename().string());
    EXPECT_EQ(name.same, stems.back().starts_with(mine + ".")) << name.stem;
  }
  std::vector<std::string> sorted = {mine + ".1", mine + ".2", mine + "x", "another"};
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(stems, sorted);
  for (const SegmentName& name : names) {
    if (name.stem == Path(mine + ".1")) {
      EXPECT_EQ(name.bytes, 10);
      EXPECT_EQ(name.index_bytes, 0);
    } else if (name.stem == Path(mine + ".2")) {
      EXPECT_EQ(name.bytes, 164);
      EXPECT_EQ(name.index_bytes, 64);
      EXPECT_EQ(name.changed_us, 1'234'005'678);
      EXPECT_EQ(name.name_digits(), mine);
    }
  }
  const std::vector<SegmentName> nobodys = *ListSegments(directory_, {});
  for (const SegmentName& name : nobodys) EXPECT_FALSE(name.same);
  EXPECT_FALSE(ListSegments(Path("none"), fingerprint));
}

TEST_F(SegmentTest, FilesGoUnlessSomebodyWritesToThem) {
  const SegmentFiles made = *CreateSegment(files_, Path("s"), {std::string(32, 'd'), ""});
  Write("s.index.x", 1);
  const Status written = RemoveUnlessWritten(Path("s"));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(Has("s.pages") && Has("s.index"));
  ::close(made.pages);
  ::close(made.index);
  EXPECT_TRUE(RemoveUnlessWritten(Path("s")));
  EXPECT_FALSE(Has("s.pages") || Has("s.index"));
  EXPECT_TRUE(RemoveUnlessWritten(Path("s"))) << "they are not there any more";
  EXPECT_TRUE(Has("s.index.x"));
  Write("d.pages", 1);
  std::filesystem::create_directory(Path("d.index"));
  const Status left = RemoveUnlessWritten(Path("d"));
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().code, ErrorCode::kInternal);
  EXPECT_THAT(left.error().message, HasSubstr(Path("d.index") + ": "));
  EXPECT_TRUE(Has("d.pages")) << "pages without an index are nobody's";
}

// A segment that cannot be made leaves no file, and nobody's files change.
TEST_F(SegmentTest, ASegmentIsMadeWholeOrNotAtAll) {
  struct Full final : FileLayer {
    int64_t WriteAt(int, const void*, size_t, int64_t) override { return errno = ENOSPC, -1; }
  } full;
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const int64_t before = open();
  EXPECT_FALSE(CreateSegment(full, Path("s"), {std::string(32, 'd'), ""}));
  EXPECT_FALSE(Has("s.pages") || Has("s.index"));
  EXPECT_EQ(open(), before);
  const SegmentFiles made = *CreateSegment(files_, Path("s"), {std::string(32, 'd'), ""});
  for (const int fd : {made.pages, made.index}) {
    struct stat info;
    EXPECT_EQ(::fstat(fd, &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    ::close(fd);
  }
}

TEST_F(SegmentTest, LinesAreReadByTheirOwnDigitsOnly) {
  const TierFingerprint a("a: b\n"), b("a: c\n");
  const auto name = [](const TierFingerprint& of) { return of.digits.substr(0, 16); };
  const int used = *UseLines(directory_, a);
  ::close(*UseLines(directory_, b));
  EXPECT_EQ(ReadLines(directory_, name(a)), a.lines);
  std::filesystem::copy_file(Path(name(a) + ".fingerprint"), Path(name(b) + ".fingerprint"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(ReadLines(directory_, name(b)), "") << "others' lines under its name";
  EXPECT_EQ(ReadLines(directory_, std::string(16, '0')), "");
  ::close(*UseLines(directory_, b));
  EXPECT_EQ(ReadLines(directory_, name(b)), b.lines) << "they are written again";
  struct stat info;
  ASSERT_EQ(::stat(Path(name(b) + ".fingerprint").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  RemoveUnusedLines(directory_, name(a));
  RemoveUnusedLines(directory_, name(b));
  EXPECT_TRUE(Has(name(a) + ".fingerprint")) << "a server uses them";
  EXPECT_FALSE(Has(name(b) + ".fingerprint"));
  ::close(used);
}

// Those that are used come first, whenever that was; then the last that were.
TEST_F(SegmentTest, LinesAreListedByTheirUse) {
  std::vector<std::string> names;
  int used = -1;
  for (int i = 0; i < 4; ++i) {
    const TierFingerprint of("a: " + std::to_string(i) + "\n");
    names.push_back(of.digits.substr(0, 16));
    const int fd = *UseLines(directory_, of);
    const timespec times[2] = {{1000 + i, 0}, {1000 + i, 7000}};
    ASSERT_EQ(::utimensat(AT_FDCWD, Path(names.back() + ".fingerprint").c_str(), times, 0), 0);
    if (i == 1) {
      used = fd;
    } else {
      ::close(fd);
    }
  }
  Write("other.pages", 10);
  const std::vector<LinesFile> all = *ListLines(directory_);
  std::vector<std::string> listed;
  for (const LinesFile& lines : all) {
    EXPECT_EQ(lines.used, lines.name_digits == names[1]);
    if (lines.used) {
      EXPECT_EQ(lines.changed_us, 1'001'000'007);
    }
    listed.push_back(lines.name_digits);
  }
  EXPECT_THAT(listed, ElementsAre(names[1], names[3], names[2], names[0]));
  ::close(used);
  EXPECT_FALSE(ListLines(Path("none")));
}

// Reads and writes that a signal interrupts are repeated; those that end early say why.
TEST_F(SegmentTest, AllIsReadAndWrittenOrTheReasonIsTold) {
  struct Interrupted final : FileLayer {
    bool again = false;
    int64_t ReadAt(int fd, void* data, size_t, int64_t offset) override {
      return (again = !again) ? (errno = EINTR, -1) : FileLayer::ReadAt(fd, data, 1, offset);
    }
    int64_t WriteAt(int fd, const void* data, size_t, int64_t offset) override {
      return (again = !again) ? (errno = EINTR, -1) : FileLayer::WriteAt(fd, data, 1, offset);
    }
  } interrupted;
  struct Nothing final : FileLayer {
    int64_t WriteAt(int, const void*, size_t, int64_t) override { return 0; }
  } nothing;
  Write("file", 0);
  const int fd = ::open(Path("file").c_str(), O_RDWR | O_CLOEXEC);
  const std::string text = "some bytes";
  ASSERT_TRUE(WriteAll(interrupted, fd, std::as_bytes(std::span(text)), 5));
  std::string read(text.size(), 0);
  ASSERT_TRUE(ReadAll(interrupted, fd, std::as_writable_bytes(std::span(read)), 5));
  EXPECT_EQ(read, text);
  const Status early = ReadAll(interrupted, fd, std::as_writable_bytes(std::span(read)), 6);
  ASSERT_FALSE(early);
  EXPECT_THAT(early.error().message, HasSubstr("it ends too early"));
  const Status full = WriteAll(nothing, fd, std::as_bytes(std::span(text)), 5);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("No space left"));
  ::close(fd);
  EXPECT_FALSE(WriteAll(files_, fd, std::as_bytes(std::span(text)), 5)) << "a closed file";
  EXPECT_FALSE(ReadAll(files_, fd, std::as_writable_bytes(std::span(read)), 5));
}

// Longer than what is read at once.
TEST_F(SegmentTest, AnyDamageOfALargePartIsSeen) {
  const SegmentFiles made = *CreateSegment(files_, Path("s"), {std::string(32, 'd'), ""});
  std::vector<std::byte> bytes((5 << 19) + 77, std::byte{3});
  const PartFile plain(files_, "", nullptr);
  const KnownPart part{{1, 2}, GroupKind::kState};
  PartPlace place{.offset = 4096};
  ASSERT_TRUE(plain.Write(made.pages, part, {std::span(bytes)}, place));
  EXPECT_EQ(place.bytes, std::ssize(bytes));
  const SegmentEntry entry = plain.EntryOf(part, place);
  EXPECT_EQ(plain.PartOf(entry), part);
  std::vector<std::byte> scratch;
  EXPECT_TRUE(VerifyPart(files_, made.pages, entry, scratch));
  for (const int64_t at : {int64_t{0}, int64_t{1} << 20, place.bytes - 1}) {
    const std::byte wrong{4}, right{3};
    ASSERT_TRUE(WriteAll(files_, made.pages, {&wrong, 1}, 4096 + at));
    const Status status = VerifyPart(files_, made.pages, entry, scratch);
    ASSERT_FALSE(status) << at;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
    ASSERT_TRUE(WriteAll(files_, made.pages, {&right, 1}, 4096 + at));
  }
  std::vector<std::byte> back(bytes.size() - 1);
  EXPECT_FALSE(plain.Read(made.pages, part, place, {std::span(back)})) << "of another size";
  ::close(made.pages);
  ::close(made.index);
}

}  // namespace
}  // namespace braid
