// Which parts a file of `braid cache export` has, and which files are imported, for directories
// whose segments the tests write themselves.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tiers/export.h"
#include "tiers/inspect.h"
#include "tiers/test_segments.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr GroupKind kKeys = GroupKind::kFull, kState = GroupKind::kState;

class ExportFileTest : public ::testing::Test {
 protected:
  ExportFileTest() : root_(::testing::TempDir() + "export_file" + std::to_string(::getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    // Of four blocks, and of a fifth that is not whole.
    for (int i = 0; i < 4 * kBlockTokens + 63; ++i) tokens_.push_back(TokenId(i % 50));
    keys_ = KeysOf("", "");
  }
  ~ExportFileTest() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::vector<PageKey> KeysOf(const std::string& tenant, const std::string& salt) const {
    std::vector<PageKey> keys;
    PageKey key = RootPageKey(tenant, salt);
    for (size_t at = 0; at + kBlockTokens <= tokens_.size(); at += kBlockTokens) {
      BlockTokens block;
      std::copy_n(tokens_.begin() + static_cast<ptrdiff_t>(at), kBlockTokens, block.begin());
      keys.push_back(key = ChildPageKey(key, block));
    }
    return keys;
  }
  // Parts of the blocks that are named.
  std::vector<KnownPart> Parts(const std::vector<size_t>& keys,
                               const std::vector<size_t>& states) const {
    std::vector<KnownPart> parts;
    for (const size_t block : states) parts.push_back({keys_[block], kState});
    for (const size_t block : keys) parts.push_back({keys_[block], kKeys});
    return parts;
  }
  Result<Exported> Export(const std::string& directory, ExportRequest more = {}) const {
    more.directory = Path(directory);
    more.to = Path("file");
    more.tokens = tokens_;
    if (!more.progress) more.progress = [](double) {};
    return ExportPages(more);
  }
  Result<Exported> Import(const std::string& directory) const {
    return ImportPages(Path("file"), Path(directory), [](double) {});
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void WriteFileOf(const std::string& bytes) const {
    std::ofstream(Path("file"), std::ios::binary) << bytes;
  }
  // Files of segments.
  int64_t Files(const std::string& directory) const {
    return std::ranges::count_if(
        std::filesystem::directory_iterator(Path(directory)),
        [](const auto& at) { return at.path().extension() != ".fingerprint"; });
  }

  const std::string root_;
  std::vector<TokenId> tokens_;
  std::vector<PageKey> keys_;
  const TierFingerprint print_{"a: b\n", "time: 1\n"};
};

// Up to the last state that all keys before it lead to; keys behind it are of no use.
TEST_F(ExportFileTest, HasThePartsOfTheLongestBeginningThatCanBeResumed) {
  struct Case {
    std::vector<size_t> keys, states;
    int64_t tokens, parts;  // of the file; 0: there is none
  };
  const std::vector<Case> cases = {
      {{0, 1, 2, 3}, {}, 256, 4}, {{0, 1, 3}, {}, 128, 2},    {{1, 2, 3}, {}, 0, 0},
      {{0, 1, 2, 3}, {1}, 128, 3}, {{0, 1, 2, 3}, {0, 2}, 192, 5}, {{0, 1, 3}, {0, 3}, 64, 2},
      {{1, 2}, {2}, 0, 0},        {{}, {0, 2}, 192, 2},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const Case& c = cases[i];
    const std::string from = "from" + std::to_string(i), to = "to" + std::to_string(i);
    WriteSegmentOf(Path(from), print_, Parts(c.keys, c.states));
    std::vector<double> progress;
    const auto exported = Export(from, {.progress = [&](double p) { progress.push_back(p); }});
    if (c.parts == 0) {
      ASSERT_FALSE(exported);
      EXPECT_EQ(exported.error().code, ErrorCode::kNotFound);
      continue;
    }
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(exported->tokens, c.tokens);
    EXPECT_EQ(exported->parts, c.parts);
    EXPECT_EQ(exported->fingerprint, print_.digits.substr(0, 16));
    EXPECT_EQ(std::ssize(progress), c.parts);
    EXPECT_EQ(progress.back(), 1.0);
    EXPECT_EQ(progress.front(), 1.0 / static_cast<double>(c.parts));
    // The same model, at another place.
    const TierFingerprint there("a: b\n", "time: 2\n");
    WriteSegmentOf(Path(to), there, {});
    const auto imported = Import(to);
    ASSERT_TRUE(imported) << imported.error().message;
    EXPECT_EQ(imported->parts, c.parts);
    EXPECT_EQ(imported->bytes, exported->bytes);
    EXPECT_EQ(imported->fingerprint, there.digits.substr(0, 16));
    if (!c.keys.empty()) {
      EXPECT_EQ(imported->tokens, c.tokens);
    }
    FileLayer files;
    std::vector<KnownPart> found;
    const std::vector<SegmentFacts> segments = *InspectDirectory(files, Path(to));
    for (const SegmentFacts& facts : segments) {
      EXPECT_EQ(*VerifySegment(files, facts, [](int64_t) {}), 0);
      for (const SegmentEntry& entry : facts.entries) {
        found.push_back({entry.key, static_cast<GroupKind>(entry.place.kind)});
        EXPECT_EQ(entry.place.bytes, found.back().kind == kState ? 70 : 100);
        EXPECT_EQ(entry.place.offset % 4096, 0);
      }
    }
    EXPECT_EQ(std::ssize(found), c.parts);
    const std::vector<KnownPart> all = Parts(c.keys, c.states);
    for (const KnownPart& part : found) EXPECT_EQ(std::ranges::count(all, part), 1);
  }
}

TEST_F(ExportFileTest, OfSeveralFingerprintsTheLongestCountsUnlessOneIsNamed) {
  const TierFingerprint longer("a: c\n");
  WriteSegmentOf(Path("from"), print_, Parts({0, 1}, {}));
  WriteSegmentOf(Path("from"), longer, Parts({0, 1}, {}));
  WriteSegmentOf(Path("from"), longer, Parts({2}, {}));
  std::ofstream(Path("from/!.pages")) << "of nobody, and the first by its name";
  EXPECT_EQ(Export("from")->fingerprint, longer.digits.substr(0, 16));
  EXPECT_EQ(Export("from")->tokens, 192);
  const auto named = Export("from", {.fingerprint = print_.digits.substr(0, 5)});
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->fingerprint, print_.digits.substr(0, 16));
  EXPECT_EQ(named->tokens, 128);
  EXPECT_FALSE(Export("from", {.fingerprint = "no digits"}));
}

TEST_F(ExportFileTest, AConversationIsItsTenants) {
  std::vector<KnownPart> parts;
  for (const PageKey& key : KeysOf("ann", "salt")) parts.push_back({key, kKeys});
  WriteSegmentOf(Path("from"), print_, parts);
  EXPECT_TRUE(Export("from", {.tenant = "ann", .salt = "salt"}));
  EXPECT_FALSE(Export("from", {.tenant = "ann"}));
  EXPECT_FALSE(Export("from", {.salt = "salt"}));
  EXPECT_FALSE(Export("from"));
}

TEST_F(ExportFileTest, EncryptedPagesNeedTheirKey) {
  std::array<std::byte, 32> one{}, other{};
  one.fill(std::byte{1});
  const PageCipher cipher(one), wrong(other);
  for (const std::vector<size_t>& blocks : std::vector<std::vector<size_t>>{{0, 1}, {2}}) {
    WriteSegmentOf(Path("from"), print_, Parts(blocks, {}), &cipher);
  }
  EXPECT_EQ(Export("from", {.cipher = &cipher})->tokens, 192);
  for (const PageCipher* none : {static_cast<const PageCipher*>(nullptr), &wrong}) {
    const auto failed = Export("from", {.cipher = none});
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().message, HasSubstr("; 2 segments need another key"));
  }
  // Beside others, which come first by their name.
  const std::string first = WriteSegmentOf(Path("mixed"), print_, Parts({0}, {}), &cipher);
  WriteSegmentOf(Path("mixed"), print_, Parts({0, 1}, {}));
  for (const char* extension : {".pages", ".index"}) {
    std::filesystem::path to = first + extension;
    to.replace_filename(print_.digits.substr(0, 16) + ".0" + extension);
    std::filesystem::rename(first + extension, to);
  }
  EXPECT_EQ(Export("mixed")->tokens, 128);
  EXPECT_EQ(Export("mixed", {.cipher = &cipher})->tokens, 64);
  WriteSegmentOf(Path("plain"), print_, Parts({1}, {}));
  std::ofstream(Path("plain/a.pages")) << "of nobody";
  const auto failed = Export("plain");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message.find("another key"), std::string::npos);
}

// What one version has exported the next can import.
TEST_F(ExportFileTest, AFileHasTheBytesOfItsFormat) {
  WriteSegmentOf(Path("from"), print_, Parts({0, 1}, {1}));
  ASSERT_TRUE(Export("from"));
  const std::string bytes = Read(Path("file"));
  PartSum sum({}, 0);
  sum.Add(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(bytes.size(), 32 + 64 + 5 + 3 * 64 + 270u);
  EXPECT_EQ(sum.End(), 16855527701473919222u);
}

TEST_F(ExportFileTest, NoFileStaysOpen) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  WriteSegmentOf(Path("from"), print_, Parts({0, 1}, {1}));
  WriteSegmentOf(Path("to"), print_, {});
  const int64_t before = open();
  ASSERT_TRUE(Export("from"));
  ASSERT_TRUE(Import("to"));
  FileLayer files;
  const std::vector<SegmentFacts> segments = *InspectDirectory(files, Path("to"));
  for (const SegmentFacts& facts : segments) {
    ASSERT_TRUE(VerifySegment(files, facts, [](int64_t) {}));
    EXPECT_TRUE(RemoveSegment(facts));
  }
  ASSERT_TRUE(RemoveLines(Path("to"), ""));
  EXPECT_EQ(open(), before);
}

// Nothing of a file that is damaged or cut anywhere comes into the directory.
TEST_F(ExportFileTest, ADamagedFileIsRefusedWhole) {
  WriteSegmentOf(Path("from"), print_, Parts({0, 1}, {1}));
  ASSERT_TRUE(Export("from"));
  WriteSegmentOf(Path("to"), print_, {});
  const int64_t before = Files("to");
  const std::string whole = Read(Path("file"));
  for (size_t byte = 0; byte < whole.size(); byte += 5) {  // some of each field
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x10);
    WriteFileOf(damaged);
    const auto imported = Import("to");
    ASSERT_FALSE(imported) << byte;
    EXPECT_THAT(imported.error().message, HasSubstr(Path("file"))) << byte;
    if (byte % 25 != 0) continue;
    WriteFileOf(whole.substr(0, byte));
    EXPECT_FALSE(Import("to")) << byte;
  }
  EXPECT_EQ(Files("to"), before);
  WriteFileOf(whole);
  EXPECT_TRUE(Import("to"));
  EXPECT_EQ(Files("to"), before + 2);
  const auto none = ImportPages(Path("none"), Path("to"), [](double) {});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("No such file"));
}

TEST_F(ExportFileTest, AnotherFingerprintIsRefusedWithWhatDiffersInTheNearest) {
  WriteSegmentOf(Path("from"), TierFingerprint("model: m\nkv: bf16\n"), Parts({0}, {}));
  ASSERT_TRUE(Export("from"));
  std::filesystem::create_directories(Path("to"));
  const auto none = Import("to");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("no server has used it yet"));
  WriteSegmentOf(Path("to"), TierFingerprint("model: m\nkv: fp32\n"), {});
  const auto near = Import("to");
  ASSERT_FALSE(near);
  EXPECT_THAT(near.error().message, HasSubstr("of another fingerprint: kv is bf16 in the file and "
                                              "fp32 in the directory"));
  for (const char* lines : {"model: n\nkv: q8\n", "model: n\nkv: q8\nmore: x\n"}) {
    WriteSegmentOf(Path("to"), TierFingerprint(lines), {});
    EXPECT_EQ(Import("to").error().message, near.error().message) << "others differ in more";
  }
  std::filesystem::remove_all(Path("to"));
  WriteSegmentOf(Path("to"), TierFingerprint("model: m\nmore: x\n"), {});
  EXPECT_THAT(Import("to").error().message,
              HasSubstr("kv is bf16 in the file and nothing in the directory; more is nothing in "
                        "the file and x in the directory"));
}

TEST_F(ExportFileTest, PagesWithoutTheirLinesAreNotExported) {
  WriteSegmentOf(Path("from"), print_, Parts({0}, {}));
  std::filesystem::remove(Path("from/" + print_.digits.substr(0, 16) + ".fingerprint"));
  const auto failed = Export("from");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("the lines of "));
  EXPECT_FALSE(std::filesystem::exists(Path("file")));
}

class InspectTest : public ExportFileTest {};

TEST_F(InspectTest, EverySegmentIsDescribedThoseOfRanksBehindTheRest) {
  WriteSegmentOf(Path("all/rank-1"), print_.OfRank(1, 2), Parts({0}, {}));
  WriteSegmentOf(Path("all/rank-0"), print_.OfRank(0, 2), Parts({0, 1}, {1}));
  WriteSegmentOf(Path("all/other"), print_, Parts({0}, {}));  // no rank's
  std::ofstream(Path("all/rank-2")) << "a file";
  FileLayer files;
  const SegmentFiles made = *CreateSegment(files, Path("all/b"), {print_.digits, ""});
  std::ofstream(Path("all/a.pages")) << "of nobody";
  const std::vector<SegmentFacts> all = *InspectDirectory(files, Path("all"));
  std::vector<std::string> stems;
  for (const SegmentFacts& facts : all) stems.push_back(facts.name.stem);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(stems[0], Path("all/a"));
  EXPECT_EQ(stems[1], Path("all/b"));
  EXPECT_TRUE(stems[2].starts_with(Path("all/rank-0/")));
  EXPECT_TRUE(stems[3].starts_with(Path("all/rank-1/")));
  EXPECT_FALSE(all[0].identity);
  EXPECT_EQ(all[1].identity->digits, print_.digits);
  for (const SegmentFacts& facts : all) EXPECT_EQ(facts.written_to, facts.name.stem == stems[1]);
  EXPECT_EQ(all[2].keys, 2);
  EXPECT_EQ(all[2].states, 1);
  EXPECT_EQ(all[3].keys, 1);
  EXPECT_EQ(all[3].states, 0);
  EXPECT_EQ(RemoveSegment(all[1]).error().code, ErrorCode::kUnavailable) << "it is written to";
  EXPECT_TRUE(RemoveSegment(all[2]));
  EXPECT_THAT(all[0].fault, HasSubstr(Path("all/a.index") + ": No such file"));
  for (size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].fault, "") << i;
  ::close(made.pages);
  ::close(made.index);
}

TEST_F(InspectTest, DamagedPartsAreCounted) {
  const std::string stem = WriteSegmentOf(Path("all"), print_, Parts({0, 1, 2}, {1}));
  FileLayer files;
  const SegmentFacts facts = InspectDirectory(files, Path("all"))->at(0);
  std::vector<int64_t> progress;
  const auto damaged = [&] {
    progress.clear();
    return *VerifySegment(files, facts, [&](int64_t bytes) { progress.push_back(bytes); });
  };
  EXPECT_EQ(damaged(), 0);
  EXPECT_THAT(progress, ElementsAre(70, 100, 100, 100));
  std::string bytes = Read(stem + ".pages");
  bytes[0] ^= 1;
  bytes.pop_back();
  std::ofstream(stem + ".pages", std::ios::binary) << bytes;
  EXPECT_EQ(damaged(), 2);
  EXPECT_EQ(progress.size(), 4u);
  std::filesystem::remove(stem + ".pages");
  EXPECT_EQ(VerifySegment(files, facts, [](int64_t) {}).error().code, ErrorCode::kNotFound);
}

TEST_F(InspectTest, AnIndexThatCannotBeReadIsNamed) {
  const std::string path = WriteSegmentOf(Path("all"), print_, Parts({0, 1, 2}, {1})) + ".index";
  FileLayer files;
  const std::string whole = Read(path);
  const auto with = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return InspectDirectory(files, Path("all"))->at(0).fault;
  };
  const auto flipped = [&](size_t at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return with(bytes);
  };
  EXPECT_EQ(with(whole), "");
  EXPECT_EQ(flipped(kSegmentHeaderBytes), path + ": 1 of 4 entries are damaged");
  EXPECT_EQ(flipped(whole.size() - 1), path + ": 1 of 4 entries are damaged");
  EXPECT_EQ(with(whole + "half an entry"), "") << "a crash may leave that";
  EXPECT_EQ(flipped(20), path + ": its header is damaged");
  EXPECT_EQ(flipped(0), path + ": its header is damaged");
  EXPECT_EQ(flipped(7), "") << "of another version";
  EXPECT_THAT(with(whole.substr(0, 30)), HasSubstr(path + ": reading a segment: it ends"));
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  const SegmentFacts facts = InspectDirectory(files, Path("all"))->at(0);
  EXPECT_THAT(facts.fault, HasSubstr(path + ": "));
  const Status removed = RemoveSegment(facts);
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kInternal);
  EXPECT_THAT(removed.error().message, HasSubstr(path + ": "));
}

TEST_F(InspectTest, LinesOfRanksGoWithTheirLastSegment) {
  const std::string kept = WriteSegmentOf(Path("all/rank-0"), print_.OfRank(0, 2), {});
  std::filesystem::remove(
      WriteSegmentOf(Path("all/rank-1"), print_.OfRank(1, 2), {}) + ".pages");
  const auto lines = [&](const std::string& directory) {
    return std::ranges::count_if(
        std::filesystem::directory_iterator(Path(directory)),
        [](const auto& at) { return at.path().extension() == ".fingerprint"; });
  };
  ASSERT_TRUE(RemoveLines(Path("all"), print_.OfRank(0, 2).digits.substr(0, 16)));
  EXPECT_EQ(lines("all/rank-1"), 1) << "it is not named";
  ASSERT_TRUE(RemoveLines(Path("all"), ""));
  EXPECT_EQ(lines("all/rank-0"), 1) << "a segment has it";
  EXPECT_EQ(lines("all/rank-1"), 0);
}

}  // namespace
}  // namespace braid
