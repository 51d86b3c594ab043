// The bytes that gateways read, against bytes written down by hand from MessagePack's
// specification. tests/cli/kv_events_test.py reads the same with other people's libraries.
#include "kv/batch.h"

#include <gtest/gtest.h>

#include "kv/msgpack.h"

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
  out.Text(std::string(256, 'a'));
  EXPECT_EQ(out.Take(), Bytes({0x9f, 0xdc, 0, 16, 0xdd, 0, 1, 0, 0, 0xbf}) + std::string(31, 'a') +
                            Bytes({0xd9, 32}) + std::string(32, 'a') + Bytes({0xda, 1, 0}) +
                            std::string(256, 'a'));
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

}  // namespace
}  // namespace braid::kv
