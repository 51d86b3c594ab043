// The bytes that gateways read, against bytes written down by hand from MessagePack's
// specification. tests/cli/kv_events_test.py reads the same with other people's libraries.
#include "kv_events/batch.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "kv_events/msgpack.h"

namespace braid::kv {
namespace {

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

TEST(Msgpack, WritesEachNumberInItsShortestForm) {
  MsgpackWriter out;
  for (const uint64_t value : {uint64_t{127}, uint64_t{128}, uint64_t{255}, uint64_t{256},
                               uint64_t{65536}, uint64_t{1} << 32}) {
    out.Unsigned(value);
  }
  EXPECT_EQ(out.Take(), Bytes({127, 0xcc, 128,  0xcc, 255, 0xcd, 1, 0, 0xce, 0, 1,
                               0,   0,    0xcf, 0,    0,   0,    1, 0, 0,    0, 0}));
}

TEST(Msgpack, WritesLengthsInTheirShortestForm) {
  MsgpackWriter out;
  out.Array(15);
  out.Array(16);
  out.Array(65536);
  out.Text(std::string(31, 'a'));
  out.Text(std::string(32, 'a'));
  out.Text(std::string(255, 'a'));
  out.Text(std::string(256, 'a'));
  EXPECT_EQ(out.Take(), Bytes({0x9f, 0xdc, 0, 16, 0xdd, 0, 1, 0, 0, 0xbf}) + std::string(31, 'a') +
                            Bytes({0xd9, 32}) + std::string(32, 'a') + Bytes({0xd9, 255}) +
                            std::string(255, 'a') + Bytes({0xda, 1, 0}) + std::string(256, 'a'));
}

TEST(Batch, HasOneEventForBlocksThatFollowEachOther) {
  PrefixChanges changes{.cleared = true, .removed = {5, 6}, .stored = {}};
  changes.stored.push_back({.hash = 1, .parent = {}, .tokens = {}});
  changes.stored.push_back({.hash = 2, .parent = 1, .tokens = {}});
  changes.stored.push_back({.hash = 3, .parent = 1, .tokens = {}});
  const std::string zeros(64, '\0');
  const std::string gpu = Bytes({0xa3}) + "GPU";
  const std::string stored = Bytes({0x98, 0xab}) + "BlockStored";
  const std::string tail = Bytes({64, 0xc0}) + gpu + Bytes({0xc0});
  EXPECT_EQ(EncodeBatch(changes, 1.0, 3),
            Bytes({0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x94, 0x91, 0xb0}) +
                "AllBlocksCleared" + Bytes({0x93, 0xac}) + "BlockRemoved" + Bytes({0x92, 5, 6}) +
                gpu + stored + Bytes({0x92, 1, 2, 0xc0, 0xdc, 0, 128}) + zeros + zeros + tail +
                stored + Bytes({0x91, 3, 1, 0xdc, 0, 64}) + zeros + tail + Bytes({3}));
}

TEST(Batch, MarksBlocksThatTokensAloneDoNotName) {
  PrefixChanges changes;
  changes.stored.push_back({.hash = 1, .parent = {}, .shared = false, .tokens = {}});
  const std::string batch = EncodeBatch(changes, 0, 0);
  EXPECT_TRUE(batch.ends_with(Bytes({0xc0, 0x91, 0x91, 0xa7}) + "private" + Bytes({0}))) << batch;
}

TEST(Batch, IsReadAsItWasWritten) {
  PrefixChanges changes{.cleared = true, .removed = {5, ~uint64_t{0}}, .stored = {}};
  changes.stored.push_back({.hash = 1, .parent = {}, .tokens = {}});
  changes.stored.push_back({.hash = 2, .parent = 1, .tokens = {}});
  changes.stored.push_back({.hash = 3, .parent = 1, .shared = false, .tokens = {}});
  changes.stored[0].tokens[63] = 70000;
  const Result<EventBatch> batch = DecodeBatch(EncodeBatch(changes, 1.5, 3));
  ASSERT_TRUE(batch) << batch.error().message;
  std::vector<TokenId> two(128);
  two[63] = 70000;
  const EventBatch expected{.dp_rank = 3,
                            .events = {BlocksCleared{}, BlocksRemoved{{5, ~uint64_t{0}}},
                                       BlocksStored{{1, 2}, {}, two, 64, true},
                                       BlocksStored{{3}, 1, std::vector<TokenId>(64), 64, false}}};
  EXPECT_EQ(*batch, expected);
}

// As other engines write it: events as maps, hashes as bytes or negative numbers, blocks of any
// size, no rank, fields that are not known here.
TEST(Batch, ReadsOtherForms) {
  const std::string map = Bytes({0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x92, 0x85, 0xa4}) + "type" +
                          Bytes({0xab}) + "BlockStored" + Bytes({0xac}) + "block_hashes" +
                          Bytes({0x91, 0xc4, 2, 7, 8, 0xa9}) + "token_ids" +
                          Bytes({0x92, 1, 2, 0xaa}) + "block_size" + Bytes({2, 0xa5}) + "other" +
                          Bytes({0x81, 0xa1}) + "x" + Bytes({0x91, 0xc3}) + Bytes({0x92, 0xac}) +
                          "BlockRemoved" + Bytes({0x91, 0xff});
  const Result<EventBatch> batch = DecodeBatch(map);
  ASSERT_TRUE(batch) << batch.error().message;
  ASSERT_EQ(batch->events.size(), 2u);
  const auto& stored = std::get<BlocksStored>(batch->events[0]);
  EXPECT_EQ(stored.tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(stored.hashes.size(), 1u);
  EXPECT_TRUE(stored.shared && !stored.parent);
  EXPECT_EQ(std::get<BlocksRemoved>(batch->events[1]).hashes,
            (std::vector<uint64_t>{~uint64_t{0}}));
}

TEST(Batch, BytesThatAreNoneAreRefusedWhereverTheyEnd) {
  PrefixChanges changes{.cleared = true, .removed = {5}, .stored = {}};
  changes.stored.push_back({.hash = 1, .parent = {}, .shared = false, .tokens = {}});
  const std::string whole = EncodeBatch(changes, 1.5, 3);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(DecodeBatch(std::string_view(whole).substr(0, size))) << size;
  }
  EXPECT_FALSE(DecodeBatch(Bytes({0x92, 0, 0xdd, 0xff, 0xff, 0xff, 0xff}))) << "ends too early";
  EXPECT_FALSE(DecodeBatch(Bytes({0x92, 0, 0x91, 0x94, 0xab}) + "BlockStored" +
                           Bytes({0x91, 1, 0xc0, 0x91, 1})))
      << "no block size";
}

// A rank of -1 is the reader's own word for all ranks.
TEST(Batch, ARankIsANumberFrom0) {
  EXPECT_EQ(DecodeBatch(Bytes({0x93, 0, 0x90, 0xce, 0x7f, 0xff, 0xff, 0xff}))->dp_rank, INT32_MAX);
  EXPECT_FALSE(DecodeBatch(Bytes({0x93, 0, 0x90, 0xce, 0x80, 0, 0, 0})));
  EXPECT_FALSE(DecodeBatch(Bytes({0x93, 0, 0x90, 0xff})));
}

}  // namespace
}  // namespace braid::kv
