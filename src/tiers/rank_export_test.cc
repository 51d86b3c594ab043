// Files of conversations whose pages several ranks have: whose heads they are is not forgotten.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/inbox.h"
#include "tiers/export.h"
#include "tiers/rank_tiers.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

const CacheGeometry kGeometry = {
    .groups = {{"keys", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 8};
constexpr BlockId kBlock(3);

class RankExportTest : public ::testing::Test {
 protected:
  RankExportTest() : root_(::testing::TempDir() + "rank_export" + std::to_string(::getpid())) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    tokens_.fill(TokenId(7));
  }
  ~RankExportTest() override { std::filesystem::remove_all(root_); }

  // Ranks whose page of the first block of the tokens has the number of the rank in every byte.
  struct Server {
    Server(const std::string& directory, int32_t ranks, const std::optional<PageCipher>& cipher)
        : arenas(static_cast<size_t>(ranks), std::vector<std::byte>(64 * 8)) {
      tiers = *RankTiers::Open({.directory = directory,
                                .bytes_max = 1 << 20,
                                .fingerprint = TierFingerprint("a: b\n", "c: d\n"),
                                .cipher = cipher,
                                .threads = 1},
                               {ranks, ranks});
      for (int32_t rank = 0; rank < ranks; ++rank) {
        tiers->MoverOf(rank).Attach({arenas[static_cast<size_t>(rank)].data()}, kGeometry);
      }
      tiers->Watch(inbox);
    }
    std::byte& ByteOf(size_t rank) {
      return arenas[rank][static_cast<size_t>(BlockBytesOffset(kGeometry, GroupId(0), kBlock))];
    }
    bool Move(Direction direction, const PageKey& key) {
      PagePart part{.index = 0, .kind = GroupKind::kFull, .blocks = {}, .key = key};
      part.blocks.by_group[0] = kBlock;
      for (size_t rank = 0; rank < arenas.size(); ++rank) {
        tiers->MoverOf(static_cast<int32_t>(rank))
            .Start({.id = MoveId(moves),
                    .place = Place::kDisk,
                    .direction = direction,
                    .dp_rank = DpRankId(0),
                    .slot = {},
                    .request = {},
                    .parts = {part}},
                   inbox);
      }
      ++moves;
      while (true) {
        for (Event& event : inbox.Take()) {
          if (auto* moved = std::get_if<PagesMoved>(&event)) return moved->error.empty();
        }
        inbox.Wait(1'000'000);
      }
    }

    std::vector<std::vector<std::byte>> arenas;
    Inbox inbox;
    int64_t moves = 0;
    std::unique_ptr<RankTiers> tiers;
  };

  PageKey Key() const {
    BlockTokens block;
    std::copy(tokens_.begin(), tokens_.end(), block.begin());
    return ChildPageKey(RootPageKey("", ""), block);
  }
  Result<Exported> Export(const std::string& directory, const std::string& to) {
    return ExportPages({.directory = directory,
                        .to = to,
                        .fingerprint = {},
                        .tenant = {},
                        .salt = {},
                        .tokens = tokens_,
                        .cipher = cipher_ ? &*cipher_ : nullptr,
                        .progress = [](double) {}});
  }
  static Result<Exported> Import(const std::string& from, const std::string& directory) {
    return ImportPages(from, directory, [](double) {});
  }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  // Each rank's page, as it would leave.
  void Store(const std::string& directory, int32_t ranks) {
    Server server(directory, ranks, cipher_);
    for (size_t rank = 0; rank < server.arenas.size(); ++rank) {
      server.ByteOf(rank) = static_cast<std::byte>(10 + rank);
    }
    EXPECT_TRUE(server.Move(Direction::kOut, Key()));
  }

  const std::string root_;
  std::array<TokenId, kBlockTokens> tokens_;
  std::optional<PageCipher> cipher_;
};

TEST_F(RankExportTest, AFileIsOfOneRankAndGoesToThatRankOnly) {
  Store(Path("here"), 2);
  {
    Server there(Path("there"), 2, cipher_);
  }
  {
    Server alone(Path("alone"), 1, cipher_);
  }
  const auto both = Export(Path("here"), Path("both"));
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message, HasSubstr("several ranks"));
  EXPECT_FALSE(std::filesystem::exists(Path("both")));
  for (const char* rank : {"0", "1"}) {
    const auto exported = Export(Path("here/rank-") + rank, Path(rank));
    ASSERT_TRUE(exported) << exported.error().message;
    const std::string other = *rank == '0' ? "1" : "0";
    const auto wrong = Import(Path(rank), Path("there/rank-" + other));
    ASSERT_FALSE(wrong);
    EXPECT_THAT(wrong.error().message, HasSubstr("the rank is " + std::string(rank) +
                                                 " of 2 in the file and " + other + " of 2"));
    const auto one = Import(Path(rank), Path("alone"));
    ASSERT_FALSE(one);
    EXPECT_THAT(one.error().message, HasSubstr("of 2 in the file and nothing in the directory"));
    const auto imported = Import(Path(rank), Path("there/rank-") + rank);
    ASSERT_TRUE(imported) << imported.error().message;
  }
  Server server(Path("there"), 2, cipher_);
  ASSERT_TRUE(server.Move(Direction::kIn, Key()));
  EXPECT_EQ(server.ByteOf(0), std::byte{10});
  EXPECT_EQ(server.ByteOf(1), std::byte{11});
}

TEST_F(RankExportTest, AFileOfOneRankIsNotForSeveral) {
  Store(Path("here"), 1);
  {
    Server there(Path("there"), 2, cipher_);
  }
  ASSERT_TRUE(Export(Path("here"), Path("file")));
  const auto wrong = Import(Path("file"), Path("there/rank-1"));
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("the rank is nothing in the file and 1 of 2"));
  {
    Server there(Path("another"), 1, cipher_);
  }
  EXPECT_TRUE(Import(Path("file"), Path("another")));
}

// Whoever may write to the directories, but has no key, does not make a rank take another's heads.
TEST_F(RankExportTest, AnEncryptedPartOfAnotherRankIsNotGenuine) {
  std::array<std::byte, 32> key;
  key.fill(std::byte{5});
  cipher_.emplace(key);
  Store(Path("here"), 2);
  // The parts of rank 0 under the name and the header of rank 1.
  const auto file_of = [&](const std::string& rank, const std::string& extension) {
    for (const auto& entry : std::filesystem::directory_iterator(Path("here/rank-" + rank))) {
      if (entry.path().extension() == extension) return entry.path();
    }
    return std::filesystem::path();
  };
  const auto overwrite = std::filesystem::copy_options::overwrite_existing;
  std::filesystem::copy_file(file_of("0", ".pages"), file_of("1", ".pages"), overwrite);
  FileLayer files;
  std::vector<SegmentEntry> entry(1);
  const int from = ::open(file_of("0", ".index").c_str(), O_RDONLY);
  const int to = ::open(file_of("1", ".index").c_str(), O_RDWR);
  const auto bytes = std::as_writable_bytes(std::span(entry));
  ASSERT_TRUE(ReadAll(files, from, bytes, kSegmentHeaderBytes));
  ASSERT_TRUE(WriteAll(files, to, bytes, kSegmentHeaderBytes));
  ::close(from);
  ::close(to);
  Server server(Path("here"), 2, cipher_);
  EXPECT_FALSE(server.Move(Direction::kIn, Key()));
  EXPECT_EQ(server.tiers->stats().damaged, 1);
}

}  // namespace
}  // namespace braid
