// Messages and parts; the rooms' promises are explored in tests/handoff.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "handoff/asked/asked_request.h"
#include "handoff/checksum.h"
#include "handoff/message.h"
#include "handoff/pairing.h"
#include "handoff/parts.h"
#include "scheduler/event_codec.h"

namespace braid::handoff {
namespace {

using ::testing::ElementsAre;

const std::vector<Body>& Bodies() {
  static const std::vector<Body> bodies = {
      Ask{RoomId(7), RoomId(3), 128, "a request"},
      Cancel{RoomId(7)},
      Took{RoomId(7)},
      PartHead{RoomId(7), {GroupId(1), 12}, 0x123456789abcdef0},
      Last{RoomId(7), 9, "a result"},
      Refusal{RoomId(7), "full"},
      Ping{},
      Hello{1, "model: 1", "nonce", "proof"},
      Unfit{RoomId(7), "too long"}};
  return bodies;
}

TEST(HandoffMessage, ReadsWhatItWrites) {
  for (const Body& body : Bodies()) {
    const std::string bytes = Encode({SessionId(5), body});
    const auto message = Decode(bytes);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->session, SessionId(5));
    EXPECT_EQ(message->body.index(), body.index());
    EXPECT_EQ(Encode(*message), bytes);
  }
}

// Engines of one protocol version understand each other: by these bytes.
TEST(HandoffMessage, HasTheBytesOfItsProtocolVersion) {
  const auto number = [](uint64_t value, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> 8 * i));
    return text;
  };
  const auto id = [&](uint64_t value) { return number(value, 8); };
  const auto text = [&](const std::string& value) { return number(value.size(), 4) + value; };
  const std::string key = number(1, 4) + number(12, 4);
  const std::vector<std::string> fields = {
      id(7) + id(3) + number(128, 4) + text("a request"),
      id(7),
      id(7),
      id(7) + key + id(0x123456789abcdef0),
      id(7) + number(9, 4) + text("a result"),
      id(7) + text("full"),
      "",
      number(1, 4) + text("model: 1") + text("nonce") + text("proof"),
      id(7) + text("too long")};
  ASSERT_EQ(kProtocolVersion, 3u);
  ASSERT_EQ(Bodies().size(), fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(Encode({SessionId(5), Bodies()[i]}), number(i, 1) + id(5) + fields[i]) << i;
  }
}

TEST(HandoffMessage, RefusesEveryOtherLength) {
  for (const Body& body : Bodies()) {
    const std::string bytes = Encode({SessionId(5), body});
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(Decode(bytes.substr(0, size))) << size << " of " << bytes.size();
    }
    EXPECT_FALSE(Decode(bytes + 'x'));
  }
}

TEST(HandoffMessage, RefusesTextsAboveTheirBounds) {
  EXPECT_TRUE(
      Decode(Encode({SessionId(1), Refusal{RoomId(1), std::string(kReasonBytesMax, 'x')}})));
  std::string bytes = Encode({SessionId(1), Refusal{RoomId(1), std::string(kReasonBytesMax, 'x')}});
  const uint32_t more = kReasonBytesMax + 1;
  bytes.replace(bytes.size() - kReasonBytesMax - sizeof(more), sizeof(more),
                reinterpret_cast<const char*>(&more), sizeof(more));
  EXPECT_FALSE(Decode(bytes + 'x'));
  const auto cut = Decode(Encode({SessionId(1), Refusal{RoomId(1), std::string(5000, 'x')}}));
  ASSERT_TRUE(cut) << "its writer shortens it";
  EXPECT_EQ(std::get<Refusal>(cut->body).reason, std::string(kReasonBytesMax, 'x'));
}

TEST(HandoffMessage, RefusesNumbersThatNobodyGives) {
  EXPECT_TRUE(Decode(Encode({SessionId(0), Cancel{RoomId(0)}})));
  EXPECT_FALSE(Decode(Encode({SessionId(0), Cancel{RoomId(-1)}})));
  EXPECT_FALSE(Decode(Encode({SessionId(-1), Cancel{RoomId(0)}})));
  EXPECT_FALSE(Decode(Encode({SessionId(0), PartHead{RoomId(0), {GroupId(-1), 0}, 0}})));
  std::string ping = Encode({SessionId(5), Ping{}});
  ping[0] = static_cast<char>(std::variant_size_v<Body>);
  EXPECT_FALSE(Decode(ping)) << "a kind of a later version";
}

TEST(HandoffMessage, AChecksumSeesEveryBit) {
  std::vector<std::byte> bytes(77, std::byte{3});
  const uint64_t sum = Checksum(bytes.data(), bytes.size());
  EXPECT_NE(Checksum(bytes.data(), bytes.size() - 1), sum);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(Checksum(bytes.data(), bytes.size()), sum) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8);
  bytes[3] = std::byte{4};
  std::vector<std::byte> swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 8);
  EXPECT_NE(Checksum(bytes.data(), bytes.size()), Checksum(swapped.data(), swapped.size()));
}

// The definition once more, word by word. Partners of one protocol version agree on its values.
uint64_t ChecksumByWords(const std::vector<std::byte>& bytes) {
  std::array<uint64_t, 16> lanes;
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = i + 1;
  for (size_t at = 0; at < bytes.size() || at % 128 != 0; ++at) {
    const auto byte = static_cast<uint64_t>(at < bytes.size() ? bytes[at] : std::byte{0});
    uint64_t& lane = lanes[at / 8 % lanes.size()];
    lane ^= byte << (at % 8 * 8);
    if (at % 8 == 7) lane = (lane & 0xffffffff) * 0xfffeb81b + (lane >> 32);
  }
  uint64_t sum = bytes.size();
  for (const uint64_t lane : lanes) sum = MixBits(sum ^ lane);
  return sum;
}

TEST(HandoffMessage, AChecksumIsTheSameEverywhere) {
  Rng rng(1);
  for (const size_t size : {0, 1, 7, 8, 127, 128, 129, 256, 1000, 4096, 65536}) {
    std::vector<std::byte> bytes(size + 1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Below(256));
    const std::vector<std::byte> odd(bytes.begin() + 1, bytes.end());
    EXPECT_EQ(Checksum(bytes.data() + 1, size), ChecksumByWords(odd)) << size;
  }
  EXPECT_EQ(kProtocolVersion, 3u);
  EXPECT_EQ(Checksum(reinterpret_cast<const std::byte*>("braid"), 5), 12317899538683295313u);
}

TEST(HandoffPairing, AProofIsOfKeySideAndBothNonces) {
  const std::string proof = Prove("key", Side::kPrefill, {"a", "b"});
  EXPECT_TRUE(SameProof(proof, Prove("key", Side::kPrefill, {"a", "b"})));
  for (const std::string& other :
       {Prove("kez", Side::kPrefill, {"a", "b"}), Prove("key", Side::kDecode, {"a", "b"}),
        Prove("key", Side::kPrefill, {"b", "a"}), Prove("key", Side::kPrefill, {"ab", ""}),
        Prove("", Side::kPrefill, {"a", "b"}), std::string()}) {
    EXPECT_FALSE(SameProof(proof, other));
  }
}

TEST(HandoffPairing, ASessionHasANumberOfItsOwn) {
  const SessionId session = SessionOf({"a", "b"});
  EXPECT_TRUE(session.valid());
  EXPECT_EQ(session, SessionOf({"a", "b"}));
  for (const Nonces& other : {Nonces{"b", "a"}, Nonces{"a", "c"}, Nonces{"c", "b"}}) {
    EXPECT_NE(session, SessionOf(other));
    EXPECT_TRUE(SessionOf(other).valid());
  }
}

TEST(Pairing, ADecodeEngineAnswersWithTheSecretThatWasProved) {
  const Nonces nonces{"a", "b"};
  const std::string proof = Prove("second", Side::kPrefill, nonces);
  const std::vector<std::string> keys = {"first", "second", "third"};
  EXPECT_EQ(KeyProved(keys, proof, nonces), &keys[1]);
  EXPECT_EQ(KeyProved({"first", "third"}, proof, nonces), nullptr);
  EXPECT_EQ(KeyProved(keys, proof, {"b", "a"}), nullptr);
  EXPECT_EQ(KeyProved(keys, Prove("second", Side::kDecode, nonces), nonces), nullptr);
}

TEST(Pairing, AFileHoldsASecretOnEachLine) {
  const std::string a(16, 'a'), b(20, 'b');
  using Keys = std::vector<std::string>;
  EXPECT_EQ(*KeysIn(a), Keys{a});
  EXPECT_EQ(*KeysIn(a + "\n\n"), Keys{a});
  EXPECT_EQ(*KeysIn(a + "\n" + b + "\n"), (Keys{a, b}));
  std::string eight;
  for (int i = 0; i < 8; ++i) eight += a + "\n";
  EXPECT_EQ(KeysIn(eight)->size(), 8u);
  const auto why = [](const std::string& text) { return KeysIn(text).error().message; };
  EXPECT_EQ(why(eight + b), "has more than 8 lines, one secret each");
  EXPECT_EQ(why("\n"), "holds no secret; write one on a line of its own");
  EXPECT_EQ(why(a + "\n" + b.substr(5)),
            "the secret of line 2 has 15 bytes, must have at least 16");
  EXPECT_EQ(why(a + "\n\n" + b), "the secret of line 2 has 0 bytes, must have at least 16");
}

TEST(HandoffPairing, NamesWhatDiffers) {
  EXPECT_EQ(Difference("model: 1\nkv: bf16\n", "model: 1\nkv: bf16\n"), "");
  EXPECT_EQ(Difference("model: 1\nkv: bf16\n", "model: 1\nkv: fp32\n"),
            "kv is fp32 there and bf16 here");
  EXPECT_EQ(Difference("model: 1\n", "model: 1\nkv: fp32\n"), "kv is fp32 there and nothing here");
  EXPECT_EQ(Difference("model: 1\nkv: bf16\n", ""), "model is nothing there and 1 here");
  // A line that one of them lacks in the middle.
  const std::string cpu = "model: 1\ncache: 5\n", there = "model: 1\ndevice: x\ncache: 5\n";
  EXPECT_EQ(Difference(cpu, there), "device is x there and nothing here");
  EXPECT_EQ(Difference(there, cpu), "device is nothing there and x here");
}

CacheGeometry Hybrid() {
  CacheGeometry geometry;
  geometry.groups = {{"attention", GroupKind::kFull, 64, 1}, {"state", GroupKind::kState, 64, 1}};
  return geometry;
}
constexpr GroupId kKeys{0}, kState{1};

TEST(HandoffParts, AreAllKeysAndTheLastStateWithItsRows) {
  EXPECT_THAT(PartsOf(Hybrid(), 0, 200),
              ElementsAre(PartKey{kKeys, 0}, PartKey{kKeys, 1}, PartKey{kKeys, 2},
                          PartKey{kKeys, 3}, PartKey{kState, 2}, PartKey{kState, 3}));
  EXPECT_THAT(PartsOf(Hybrid(), 0, 128),
              ElementsAre(PartKey{kKeys, 0}, PartKey{kKeys, 1}, PartKey{kState, 1}));
  EXPECT_THAT(PartsOf(Hybrid(), 0, 5), ElementsAre(PartKey{kKeys, 0}, PartKey{kState, 0}));
}

TEST(HandoffParts, LeaveOutWhatThePrefixBeforeHas) {
  EXPECT_THAT(PartsOf(Hybrid(), 128, 200), ElementsAre(PartKey{kKeys, 2}, PartKey{kKeys, 3},
                                                       PartKey{kState, 2}, PartKey{kState, 3}));
  EXPECT_THAT(PartsOf(Hybrid(), 192, 200), ElementsAre(PartKey{kKeys, 3}, PartKey{kState, 3}));
}

TEST(HandoffParts, WholeBlocksOfKeysAreFinalBeforeTheEnd) {
  EXPECT_TRUE(FinalAt(Hybrid(), {kKeys, 1}, 128));
  EXPECT_FALSE(FinalAt(Hybrid(), {kKeys, 2}, 191));
  EXPECT_FALSE(FinalAt(Hybrid(), {kState, 1}, 128));
}

TEST(HandoffRequest, IsCheckedAsAClientsIs) {
  const SchedulerConfig config{
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 9},
      .context_tokens_max = 256,
      .vocabulary = 100,
      .handoff = true};
  Request request;
  request.prompt.assign(130, 7);
  request.stop.stop_tokens = {2, 9};
  request.id = RequestId(7);
  request.stop.new_tokens_max = 100;
  request.draft_tokens = 3;
  request.dp_rank = 5;
  const auto read = [&](int32_t begin) {
    Ask ask{RoomId(1), RoomId(1), begin, {}};
    AppendRecord(Event(Submit{request}), ask.request);
    return RequestOf(ask, config);
  };
  const Result<Request> good = read(64);
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(good->role, RequestRole::kPrefill);
  EXPECT_EQ(good->prompt, request.prompt);
  EXPECT_EQ(good->stop.stop_tokens, request.stop.stop_tokens);
  EXPECT_FALSE(good->id.valid());
  EXPECT_EQ(good->stop.new_tokens_max, 2);
  EXPECT_EQ(good->draft_tokens, 0);
  EXPECT_EQ(good->dp_rank, -1);
  EXPECT_TRUE(read(0));
  EXPECT_TRUE(read(128));
  for (const int32_t begin : {-64, 1, 130, 192}) EXPECT_FALSE(read(begin).ok()) << begin;
  EXPECT_FALSE(RequestOf({RoomId(1), RoomId(1), 0, "no record"}, config).ok());
  request.stop.stop_tokens = {2, 1 << 30};
  EXPECT_EQ(read(0).error().field, "stop_tokens");
  request.stop.stop_tokens.clear();
  request.sampling.logit_bias = {{1 << 30, 1.0f}};
  EXPECT_EQ(read(0).error().field, "logit_bias");
  request.sampling.logit_bias.clear();
  request.prompt_logprobs = 0;
  EXPECT_EQ(read(0).error().field, "prompt_logprobs");
  // It must go on after the first token, or it ends before its pages are sent.
  request.prompt_logprobs = -1;
  request.prompt.assign(254, 7);
  EXPECT_TRUE(read(0).ok());
  request.prompt.assign(255, 7);
  EXPECT_EQ(read(0).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(read(0).error().message,
            "prompt has 255 tokens; a context of 256 sends pages of at most 254");
}

TEST(HandoffRequest, HasAGrammarThatHoldsForItsFirstToken) {
  const SchedulerConfig config{
      .cache = {.groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 9},
      .context_tokens_max = 256,
      .vocabulary = 100,
      .handoff = true};
  for (const auto& [after, least] :
       {std::pair<TokenId, int32_t>(-1, 0), {30, 0}, {0, 0}, {-1, 3}, {30, 3}}) {
    Request request;
    request.prompt.assign(70, 7);
    request.stop.stop_tokens = {2, 9};
    request.stop.new_tokens_min = least;
    request.grammar = "a grammar";
    request.grammar_after = after;
    Ask ask{RoomId(1), RoomId(1), 0, {}};
    AppendRecord(Event(Submit{request}), ask.request);
    const Result<Request> got = RequestOf(ask, config);
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(got->grammar, after < 0 ? "a grammar" : "");
    EXPECT_EQ(got->grammar_after, -1);
    EXPECT_EQ(got->stop.new_tokens_min, after < 0 ? least : std::max(least, 1))
        << "the stop tokens are kept out";
    EXPECT_THAT(got->stop.stop_tokens, ElementsAre(2, 9));
  }
}

}  // namespace
}  // namespace braid::handoff
