// The bytes that gateways read, against bytes written down by hand from MessagePack's
// specification. tests/cli/kv_events_test.py reads the same with other people's libraries.
#include "kv_events/batch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kv_events/frames.h"
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
                               uint64_t{65535}, uint64_t{65536}, uint64_t{0xffffffff},
                               uint64_t{1} << 32}) {
    out.Unsigned(value);
  }
  EXPECT_EQ(out.Take(),
            Bytes({127, 0xcc, 128, 0xcc, 255, 0xcd, 1, 0, 0xcd, 255, 255, 0xce, 0, 1, 0, 0,
                   0xce, 255, 255, 255, 255, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0}));
}

TEST(Msgpack, WritesLengthsInTheirShortestForm) {
  MsgpackWriter out;
  out.Array(15);
  out.Array(16);
  out.Array(65535);
  out.Array(65536);
  out.Text(std::string(31, 'a'));
  out.Text(std::string(32, 'a'));
  out.Text(std::string(255, 'a'));
  out.Text(std::string(256, 'a'));
  out.Text(std::string(65535, 'a'));
  out.Text(std::string(65536, 'a'));
  const std::string arrays = Bytes({0x9f, 0xdc, 0, 16, 0xdc, 255, 255, 0xdd, 0, 1, 0, 0});
  EXPECT_EQ(out.Take(), arrays + Bytes({0xbf}) + std::string(31, 'a') + Bytes({0xd9, 32}) +
                            std::string(32, 'a') + Bytes({0xd9, 255}) + std::string(255, 'a') +
                            Bytes({0xda, 1, 0}) + std::string(256, 'a') + Bytes({0xda, 255, 255}) +
                            std::string(65535, 'a') + Bytes({0xdb, 0, 1, 0, 0}) +
                            std::string(65536, 'a'));
}

// A value of each form, what is read of it, and how many values it holds.
TEST(Msgpack, ReadsEachForm) {
  using Kind = MsgpackReader::Kind;
  const auto negative = [](int64_t value) { return static_cast<uint64_t>(value); };
  struct Form {
    std::string bytes;
    Kind kind;
    uint64_t number = 0;
    std::string text = {};
    double real = 0;
  };
  const std::string bodies = Bytes({1, 2, 3, 4, 5, 6});
  const std::vector<Form> forms = {
      {Bytes({0x7f}), Kind::kInteger, 127},
      {Bytes({0xe0}), Kind::kInteger, negative(-32)},
      {Bytes({0xcc, 0x80}), Kind::kInteger, 0x80},
      {Bytes({0xcd, 0x81, 2}), Kind::kInteger, 0x8102},
      {Bytes({0xce, 0x81, 2, 3, 4}), Kind::kInteger, 0x81020304},
      {Bytes({0xcf, 0x81, 2, 3, 4, 5, 6, 7, 8}), Kind::kInteger, 0x8102030405060708},
      {Bytes({0xd0, 0x80}), Kind::kInteger, negative(-128)},
      {Bytes({0xd1, 0xff, 0xfe}), Kind::kInteger, negative(-2)},
      {Bytes({0xd2, 0x80, 0, 0, 0}), Kind::kInteger, negative(INT32_MIN)},
      {Bytes({0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd}), Kind::kInteger, negative(-3)},
      {Bytes({0xd1, 1, 2}), Kind::kInteger, 258},
      {Bytes({0xc0}), Kind::kNil},
      {Bytes({0xc2}), Kind::kBool, 0},
      {Bytes({0xc3}), Kind::kBool, 1},
      {Bytes({0xca, 0x3f, 0x80, 0, 0}), Kind::kDouble, 0, {}, 1.0},
      {Bytes({0xcb, 0xc0, 0, 0, 0, 0, 0, 0, 0}), Kind::kDouble, 0, {}, -2.0},
      {Bytes({0xa0}), Kind::kText},
      {Bytes({0xa2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0xbf}) + std::string(31, 'a'), Kind::kText, 0, std::string(31, 'a')},
      {Bytes({0xc4, 2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0xc5, 0, 2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0xc6, 0, 0, 0, 2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0xd9, 2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0xda, 0, 2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0xdb, 0, 0, 0, 2}) + "ab", Kind::kText, 0, "ab"},
      {Bytes({0x80}), Kind::kMap},
      {Bytes({0x90}), Kind::kArray},
      {Bytes({0x93, 1, 2, 3}), Kind::kArray, 3},
      {Bytes({0xdc, 0, 6}) + bodies, Kind::kArray, 6},
      {Bytes({0xdd, 0, 0, 0, 6}) + bodies, Kind::kArray, 6},
      {Bytes({0x83}) + bodies, Kind::kMap, 3},
      {Bytes({0xde, 0, 3}) + bodies, Kind::kMap, 3},
      {Bytes({0xdf, 0, 0, 0, 3}) + bodies, Kind::kMap, 3},
      {Bytes({0x92, 0x92, 1, 2, 0x81, 1, 0x91, 2}), Kind::kArray, 2},
  };
  for (const Form& form : forms) {
    SCOPED_TRACE(static_cast<int>(static_cast<uint8_t>(form.bytes[0])));
    const auto value = MsgpackReader(form.bytes).Next();
    ASSERT_TRUE(value);
    EXPECT_EQ(value->kind, form.kind);
    EXPECT_EQ(value->number, form.number);
    EXPECT_EQ(value->text, form.text);
    EXPECT_EQ(value->real, form.real);
    const std::string followed = form.bytes + Bytes({9});
    MsgpackReader reader(followed);
    EXPECT_TRUE(reader.Skip());
    EXPECT_EQ(reader.Next()->number, 9u) << "all of the value is skipped, and no more";
    for (size_t size = 0; size < form.bytes.size(); ++size) {
      EXPECT_FALSE(MsgpackReader(std::string_view(form.bytes).substr(0, size)).Skip()) << size;
    }
  }
  for (const int none : {0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd8}) {
    EXPECT_FALSE(MsgpackReader(Bytes({none}) + std::string(64, 0)).Next()) << none;
  }
}

TEST(Frames, ANumberHasItsMostSignificantByteFirst) {
  const NumberFrame frame = EncodeNumber(0xf102030405060708);
  const std::string_view bytes(frame.data(), frame.size());
  EXPECT_EQ(bytes, Bytes({0xf1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(DecodeNumber(bytes), 0xf102030405060708);
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

// A batch of one event, that `write` writes.
std::string BatchOf(const std::function<void(MsgpackWriter&)>& write) {
  MsgpackWriter out;
  out.Array(2);
  out.Double(1);
  out.Array(1);
  write(out);
  return out.Take();
}

// The fields of one stored block of two tokens; each may be something else.
struct StoredFields {
  using Field = std::function<void(MsgpackWriter&)>;
  Field hashes = [](MsgpackWriter& out) { out.Array(1), out.Text("ab"); };
  Field parent = &MsgpackWriter::Nil;
  Field tokens = [](MsgpackWriter& out) { out.Array(2), out.Unsigned(8), out.Unsigned(9); };
  Field block_tokens = [](MsgpackWriter& out) { out.Unsigned(2); };
  Field lora_id = &MsgpackWriter::Nil, medium = &MsgpackWriter::Nil;
  Field lora_name = &MsgpackWriter::Nil, extra_keys = &MsgpackWriter::Nil;

  Result<EventBatch> Read() const {
    return DecodeBatch(BatchOf([&](MsgpackWriter& out) {
      out.Array(10);
      out.Text("BlockStored");
      for (const Field* field : {&hashes, &parent, &tokens, &block_tokens, &lora_id, &medium,
                                 &lora_name, &extra_keys}) {
        (*field)(out);
      }
      out.Array(2);  // a field that is not known here
      out.Text("x");
      out.Nil();
    }));
  }
  // Of the one event.
  BlocksStored Block() const {
    const Result<EventBatch> batch = Read();
    return batch && batch->events.size() == 1 ? std::get<BlocksStored>(batch->events[0])
                                              : BlocksStored();
  }
};

TEST(Batch, ReadsEveryFieldOfAStoredBlock) {
  const auto text = [](const char* value) {
    return [value](MsgpackWriter& out) { out.Text(value); };
  };
  const StoredFields plain;
  const BlocksStored block = plain.Block();
  EXPECT_EQ(block.tokens, (std::vector<TokenId>{8, 9}));
  EXPECT_EQ(block.block_tokens, 2);
  EXPECT_TRUE(block.shared && !block.parent);
  StoredFields child;
  child.parent = text("ab");
  EXPECT_EQ(child.Block().parent, block.hashes.at(0)) << "a hash is the same wherever it stands";
  for (const char* other : {"ac", "ba", "a", "abb"}) {
    child.parent = text(other);
    EXPECT_NE(child.Block().parent, block.hashes.at(0)) << other;
  }
  // Whether something besides the tokens names a block; empty keys name nothing.
  for (const auto& [keys, shared] :
       {std::pair(Bytes({0x90}), true), {Bytes({0x92, 0xc0, 0x90}), true},
        {Bytes({0x91, 0x91, 0xa1}) + "x", false},
        {Bytes({0x92, 0xa1}) + "x" + Bytes({0xc0}), false}, {Bytes({0x91, 0x81, 1, 2}), false}}) {
    const std::string raw = BatchOf([](MsgpackWriter& out) {
      out.Array(9);
      out.Text("BlockStored");
      StoredFields fields;
      for (const auto& field : {fields.hashes, fields.parent, fields.tokens, fields.block_tokens,
                                fields.lora_id, fields.medium, fields.lora_name}) {
        field(out);
      }
    });
    const Result<EventBatch> batch = DecodeBatch(raw + keys);
    ASSERT_TRUE(batch) << keys;
    EXPECT_EQ(std::get<BlocksStored>(batch->events.at(0)).shared, shared) << keys;
  }
}

// Prompts that start here can use none of these.
TEST(Batch, BlocksOfAdaptersAndOfOtherMemoryAreLeftOut) {
  const auto count = [](const StoredFields& fields) {
    const Result<EventBatch> batch = fields.Read();
    return batch ? std::ssize(batch->events) : -1;
  };
  StoredFields here, cpu, id, name;
  here.medium = [](MsgpackWriter& out) { out.Text("GPU"); };
  cpu.medium = [](MsgpackWriter& out) { out.Text("CPU"); };
  id.lora_id = [](MsgpackWriter& out) { out.Unsigned(0); };
  name.lora_name = [](MsgpackWriter& out) { out.Text("mine"); };
  EXPECT_EQ(count(here), 1);
  EXPECT_EQ(count(cpu), 0);
  EXPECT_EQ(count(id), 0);
  EXPECT_EQ(count(name), 0);
  for (const bool elsewhere : {false, true}) {
    const Result<EventBatch> batch = DecodeBatch(BatchOf([&](MsgpackWriter& out) {
      out.Array(4);
      out.Text("BlockRemoved");
      out.Array(1), out.Unsigned(7);
      out.Text(elsewhere ? "CPU" : "GPU");
      out.Array(1), out.Text("a field that is not known here");
    }));
    ASSERT_TRUE(batch) << batch.error().message;
    EXPECT_EQ(batch->events.size(), elsewhere ? 0u : 1u);
  }
  const Result<EventBatch> unknown = DecodeBatch(BatchOf([](MsgpackWriter& out) {
    out.Array(2);
    out.Text("BlockSeen");
    out.Array(1), out.Unsigned(7);
  }));
  ASSERT_TRUE(unknown) << unknown.error().message;
  EXPECT_EQ(unknown->events.size(), 0u);
}

TEST(Batch, FieldsThatFitNoBlockAreRefused) {
  const auto number = [](uint64_t value) {
    return [value](MsgpackWriter& out) { out.Unsigned(value); };
  };
  const auto zeros = [](size_t count) {
    return [count](MsgpackWriter& out) {
      out.Array(count);
      for (size_t i = 0; i < count; ++i) out.Unsigned(0);
    };
  };
  StoredFields fields;
  for (const size_t tokens : {size_t{1}, size_t{3}, size_t{4}}) {
    fields.tokens = zeros(tokens);
    EXPECT_FALSE(fields.Read()) << tokens;
  }
  for (const uint64_t size : {uint64_t{0}, ~uint64_t{0}, uint64_t{65537}, uint64_t{65536}}) {
    fields.tokens = zeros(size > 65537 ? 0 : size);
    fields.block_tokens = number(size);
    EXPECT_EQ(fields.Read().ok(), size == 65536) << size;
  }
  using Field = StoredFields::Field;
  const Field array = zeros(1), nil = &MsgpackWriter::Nil;
  const Field text = [](MsgpackWriter& out) { out.Text("x"); };
  const Field real = [](MsgpackWriter& out) { out.Double(2); };
  const Field reals = [](MsgpackWriter& out) { out.Array(1), out.Double(2); };
  const std::vector<std::pair<Field StoredFields::*, Field>> wrong = {
      {&StoredFields::hashes, nil},          {&StoredFields::hashes, number(7)},
      {&StoredFields::hashes, reals},        {&StoredFields::parent, array},
      {&StoredFields::parent, real},         {&StoredFields::tokens, number(2)},
      {&StoredFields::tokens, reals},        {&StoredFields::block_tokens, nil},
      {&StoredFields::block_tokens, real},   {&StoredFields::medium, array},
      {&StoredFields::extra_keys, number(1)}, {&StoredFields::extra_keys, text}};
  for (size_t i = 0; i < wrong.size(); ++i) {
    StoredFields changed;
    changed.*wrong[i].first = wrong[i].second;
    EXPECT_FALSE(changed.Read()) << i;
  }
}

TEST(Batch, WhatIsNoListOfEventsIsRefused) {
  const std::string cleared = Bytes({0x91, 0xb0}) + "AllBlocksCleared";
  EXPECT_TRUE(DecodeBatch(Bytes({0x92, 0, 0x91}) + cleared));
  EXPECT_TRUE(DecodeBatch(Bytes({0x93, 0, 0x91}) + cleared + Bytes({0xc0})));
  const std::string type = Bytes({0xa4}) + "type", name = Bytes({0xb0}) + "AllBlocksCleared";
  EXPECT_TRUE(DecodeBatch(Bytes({0x92, 0, 0x91, 0x81}) + type + name));
  const std::vector<std::string> wrong = {
      Bytes({0x91, 0}),                                            // no events
      Bytes({0x82, 0, 0x91}) + cleared,                            // a map
      Bytes({0x92, 0, 0x81}) + cleared,                            // the events a map
      Bytes({0x92, 0, 0x91, 0x90}),                                // an event without a name
      Bytes({0x92, 0, 0x91, 0x80}),                                // likewise
      Bytes({0x92, 0, 0x91, 7}),                                   // an event that is a number
      Bytes({0x92, 0, 0x91, 0x91, 7}),                             // a name that is one
      Bytes({0x92, 0, 0x91, 0x81}) + type + Bytes({7}),            // likewise
      Bytes({0x92, 0, 0x91, 0x82}) + type + name + Bytes({7, 7}),  // a field's name that is one
      Bytes({0x92, 0, 0x91, 0x81, 0xa1}) + "x" + Bytes({0xc0}),    // a map without a name
      Bytes({0x93, 0, 0x91}) + cleared + Bytes({0xa1}) + "1",      // a rank that is a text
  };
  for (size_t i = 0; i < wrong.size(); ++i) EXPECT_FALSE(DecodeBatch(wrong[i])) << i;
}

// A rank of -1 is the reader's own word for all ranks.
TEST(Batch, ARankIsANumberFrom0) {
  EXPECT_EQ(DecodeBatch(Bytes({0x93, 0, 0x90, 0xce, 0x7f, 0xff, 0xff, 0xff}))->dp_rank, INT32_MAX);
  EXPECT_FALSE(DecodeBatch(Bytes({0x93, 0, 0x90, 0xce, 0x80, 0, 0, 0})));
  EXPECT_FALSE(DecodeBatch(Bytes({0x93, 0, 0x90, 0xff})));
}

}  // namespace
}  // namespace braid::kv
