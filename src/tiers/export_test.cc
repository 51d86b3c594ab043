// Files of `braid cache export`: whom they are readable by, and for which of a directory's
// fingerprints they are imported. Those of several ranks: rank_export_test.cc.
#include "tiers/export.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/system/file.h"
#include "scheduler/inbox.h"
#include "tiers/disk_tier.h"
#include "tiers/inspect.h"

namespace braid {
namespace {

const CacheGeometry kGeometry = {
    .groups = {{"keys", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 8};
constexpr BlockId kBlock(3);

// The same model, whose files have another time.
TierFingerprint Print(const std::string& time) { return TierFingerprint("a: b\n", time + ": c\n"); }

class ExportTest : public ::testing::Test {
 protected:
  ExportTest() : root_(::testing::TempDir() + "export" + std::to_string(::getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~ExportTest() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::unique_ptr<DiskTier> Serve(const std::string& directory, const std::string& time) {
    auto tier = DiskTier::Open({.directory = Path(directory),
                                .bytes_max = 1 << 20,
                                .fingerprint = Print(time),
                                .threads = 1});
    EXPECT_TRUE(tier.ok());
    (*tier)->Attach({arena_.data()}, kGeometry);
    (*tier)->Watch(inbox_);
    return *std::move(tier);
  }
  // Writes the page of the first block of the tokens.
  void Store(DiskTier& tier) {
    BlockTokens block;
    std::copy(tokens_.begin(), tokens_.end(), block.begin());
    PagePart part{.index = 0,
                  .kind = GroupKind::kFull,
                  .blocks = {},
                  .key = ChildPageKey(RootPageKey("", ""), block)};
    part.blocks.by_group[0] = kBlock;
    tier.Start({.id = MoveId(moves_++),
                .place = Place::kDisk,
                .direction = Direction::kOut,
                .slot = {},
                .request = {},
                .parts = {part}},
               inbox_);
    while (true) {
      for (Event& event : inbox_.Take()) {
        if (const auto* moved = std::get_if<PagesMoved>(&event)) {
          EXPECT_EQ(moved->error, "");
          return;
        }
      }
      inbox_.Wait(1'000'000);
    }
  }
  Result<Exported> Export(const std::string& directory, const std::string& to) {
    return ExportPages({.directory = Path(directory),
                        .to = Path(to),
                        .fingerprint = {},
                        .tenant = {},
                        .salt = {},
                        .tokens = tokens_,
                        .progress = [](double) {}});
  }
  // The fingerprint whose servers find the pages.
  std::string ImportedFor(const std::string& directory) {
    const auto done = ImportPages(Path("file"), Path(directory), [](double) {});
    EXPECT_TRUE(done.ok());
    return done ? done->fingerprint : "";
  }
  std::string LinesOf(const std::string& directory, const std::string& time) const {
    return Path(directory) + "/" + Name(time) + ".fingerprint";
  }
  static std::string Name(const std::string& time) { return Print(time).digits.substr(0, 16); }
  void SetTime(const std::string& path, int64_t seconds) {
    const timespec times[2] = {{seconds, 0}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  bool Has(const std::string& directory, const std::string& time) const {
    return std::filesystem::exists(LinesOf(directory, time));
  }

  const std::string root_;
  const std::vector<TokenId> tokens_ = std::vector<TokenId>(kBlockTokens, TokenId(7));
  std::vector<std::byte> arena_ = std::vector<std::byte>(64 * 8);
  Inbox inbox_;
  int64_t moves_ = 0;
};

TEST_F(ExportTest, PagesGoToTheFingerprintThatServersUse) {
  Store(*Serve("from", "other"));
  ASSERT_TRUE(Export("from", "file"));
  // Each has been started once, `first` before.
  for (const auto& [first, then] : {std::pair("old", "new"), {"new", "old"}}) {
    const std::string to = std::string("to ") + first;
    Serve(to, first);
    SetTime(LinesOf(to, first), 1000);
    Serve(to, then);
    SetTime(LinesOf(to, then), 2000);
    EXPECT_EQ(ImportedFor(to), Name(then));
    Serve(to, first);  // it is touched
    EXPECT_EQ(ImportedFor(to), Name(first));
    const std::unique_ptr<DiskTier> server = Serve(to, then);
    SetTime(LinesOf(to, then), 3000);
    EXPECT_EQ(ImportedFor(to), Name(then)) << "of a server that runs";
  }
}

TEST_F(ExportTest, LinesGoWithTheLastSegmentUnlessAServerUsesThem) {
  Serve("pages", "unused");
  Store(*Serve("pages", "full"));
  std::unique_ptr<DiskTier> server = Serve("pages", "served");
  ASSERT_TRUE(RemoveLines(Path("pages"), Name("full")));
  EXPECT_TRUE(Has("pages", "unused")) << "it is not named";
  ASSERT_TRUE(RemoveLines(Path("pages"), ""));
  EXPECT_FALSE(Has("pages", "unused"));
  EXPECT_TRUE(Has("pages", "full"));
  EXPECT_TRUE(Has("pages", "served"));
  FileLayer files;
  const auto segments = InspectDirectory(files, Path("pages"));
  ASSERT_EQ(segments->size(), 1u);
  EXPECT_TRUE(RemoveSegment(segments->front()));
  server = nullptr;
  ASSERT_TRUE(RemoveLines(Path("pages"), ""));
  EXPECT_FALSE(Has("pages", "full"));
  EXPECT_FALSE(Has("pages", "served"));
}

TEST_F(ExportTest, ASegmentWhoseLinesWereRemovedHasThemAgain) {
  const std::unique_ptr<DiskTier> server = Serve("pages", "time");
  std::filesystem::remove(LinesOf("pages", "time"));
  Store(*server);
  EXPECT_TRUE(Has("pages", "time"));
  EXPECT_TRUE(Export("pages", "file"));
}

// Whoever could read a file of that name does not read the conversation.
TEST_F(ExportTest, AFileThatWasThereIsNotReadableByOthersAfterwards) {
  const auto is_private = [&] {
    struct stat info;
    return ::stat(Path("file").c_str(), &info) == 0 && (info.st_mode & 0777) == 0600;
  };
  Store(*Serve("pages", "time"));
  ASSERT_TRUE(Export("pages", "file"));
  EXPECT_TRUE(is_private());
  for (const char* name : {"file", "file.tmp"}) {
    std::ofstream(Path(name)) << "here before";
    ASSERT_EQ(::chmod(Path(name).c_str(), 0644), 0);
  }
  std::ifstream open_before(Path("file"));
  ASSERT_TRUE(Export("pages", "file"));
  EXPECT_TRUE(is_private());
  std::string text;
  EXPECT_TRUE(std::getline(open_before, text));
  EXPECT_EQ(text, "here before");
}

TEST_F(ExportTest, AnExportThatFailsLeavesTheFileAsItWas) {
  Store(*Serve("pages", "time"));
  for (const auto& at : std::filesystem::directory_iterator(Path("pages"))) {
    if (at.path().extension() == ".pages") std::fstream(at.path()) << "damage";
  }
  std::ofstream(Path("file")) << "here before";
  EXPECT_FALSE(Export("pages", "file"));
  EXPECT_EQ(*ReadFile(Path("file"), 100), "here before");
  EXPECT_FALSE(std::filesystem::exists(Path("file.tmp")));
}

}  // namespace
}  // namespace braid
