// Pages that leave a prefill engine and come to a decode engine: which, when, where they lie, and
// what each side says. The test plays the network, and the engine on the other side.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "handoff/checksum.h"
#include "handoff/handoff_executor.h"
#include "handoff/pairing.h"
#include "handoff/partners.h"
#include "handoff/test_network.h"
#include "scheduler/event_codec.h"
#include "scheduler/inbox.h"
#include "scheduler/scheduler.h"

namespace braid::handoff {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 96;  // of a block
constexpr size_t kBlockBytes = kBytes;
constexpr TokenId kToken = 42;  // the first of every answer
constexpr int64_t kConnection = 1;
const SchedulerConfig kConfig = {
    .cache = {.groups = {{"full", GroupKind::kFull, kBytes, 1}}, .page_bytes = kBytes, .pages = 9},
    .context_tokens_max = 256,
    .chunk_tokens_max = kBlockTokens,
    .vocabulary = 100,
    .handoff = true};

// Every block full of its own number.
std::vector<std::byte> NumberedBlocks() {
  std::vector<std::byte> arena(kBlockBytes * 9);
  for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<std::byte>(i / kBlockBytes);
  return arena;
}

std::string RecordOf(Event event) {
  std::string record;
  AppendRecord(event, record);
  return record;
}

// Two ranks, each of which has half of a block.
constexpr int64_t kHalf = kBytes / 2;
PageLayout Halves() {
  return {.block_bytes = {kBytes},
          .ranks = {{.runs = {{{.whole = 0, .own = 0, .bytes = kHalf}}}},
                    {.runs = {{{.whole = kHalf, .own = 0, .bytes = kHalf}}}}}};
}
const CacheGeometry kHalfGeometry = {
    .groups = {{"full", GroupKind::kFull, kHalf, 1}}, .page_bytes = kHalf, .pages = 9};

class PagesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Partners> Create(PartnerOptions options) {
    options.keys = {"xyzzy"};
    options.fingerprint = "a: b\n";
    options.transport = [this](Transport::Owner& owner) -> Result<std::unique_ptr<Transport>> {
      return std::unique_ptr<Transport>(std::make_unique<PlayedTransport>(network_, owner));
    };
    return *Partners::Create(std::move(options));
  }
  // The messages of a kind that the partners have sent to a connection.
  template <class Kind>
  std::vector<Kind> Said(int64_t to = kConnection) {
    return network_.Look([&](Network& n) {
      std::vector<Kind> found;
      for (const Message& message : n.sent[ConnectionId(to)]) {
        if (const auto* kind = std::get_if<Kind>(&message.body)) found.push_back(*kind);
      }
      return found;
    });
  }
  template <class F>
  bool Until(F holds) {
    const int64_t end_us = MonotonicUs() + 30'000'000;
    while (!holds() && MonotonicUs() < end_us) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return holds();
  }

  Network network_;
};

// Computes prompts at once; pages that are to leave go to the partners.
struct Computes final : Executor {
  void Launch(Plan plan, EventSink& sink) override {
    for (const TableUpdate& update : plan.tables) blocks[update.index] = update.block;
    for (const PageMove& move : plan.moves) {
      for (int32_t rank = 0; rank < ranks; ++rank) partners->MoverOf(rank).Start(move, sink);
    }
    StepDone done{.step = plan.step};
    for (const Row& row : plan.rows) {
      done.rows.push_back({.request = row.request});
      if (row.sample) done.rows.back().token = kToken;
    }
    sink.Post(std::move(done));
  }
  Partners* partners = nullptr;
  int32_t ranks = 1;
  std::map<int32_t, BlockId> blocks;  // by their index in the table, of the request that runs
};

class PagesThatLeaveTest : public PagesTest {
 protected:
  void Start(PartnerOptions options) {
    options.side = Side::kPrefill;
    partners_ = Create(std::move(options));
    computes_.partners = partners_.get();
    executor_ = std::make_unique<HandoffExecutor>(computes_, *partners_, config_);
    driver_ = std::make_unique<Driver>(*Scheduler::Create(config_), *executor_, DriverConfig{});
    partners_->Attach({memory_}, config_.cache);
    partners_->Serve(*driver_);
    network_.AwaitTurn();
    Nonces nonces{.decode = "d", .prefill = {}};
    network_.Accept(kConnection);
    network_.Say(kConnection, Hello{kProtocolVersion, "a: b\n", nonces.decode, ""});
    ASSERT_TRUE(Until([&] { return !Said<Hello>().empty(); }));
    nonces.prefill = Said<Hello>()[0].nonce;
    const std::string proof = Prove("xyzzy", Side::kDecode, nonces);
    network_.Say(kConnection, Hello{kProtocolVersion, "", "", proof});
    session_ = SessionOf(nonces);
  }
  ~PagesThatLeaveTest() override { partners_.reset(); }
  // For the parts of a prompt of 130 tokens from one on.
  void Ask(int64_t room, int32_t begin) {
    Request request;
    request.prompt.assign(130, static_cast<TokenId>(room));
    network_.Say(kConnection,
                 handoff::Ask{RoomId(room), RoomId(1), begin, RecordOf(Submit{request})}, session_);
  }
  // With the engine's turns in between.
  template <class F>
  bool Await(F holds) {
    return Until([&] { return driver_->Turn(), holds(); });
  }
  size_t parts() {
    return network_.Look([](Network& n) { return n.parts.size(); });
  }
  // The index of a part that left; it is what its block holds.
  int32_t Left(size_t number, int64_t room) {
    const SentPart part = network_.Look([&](Network& n) { return n.parts.at(number); });
    const PartHead head = std::get<PartHead>(part.head.body);
    EXPECT_EQ(part.to, ConnectionId(kConnection));
    EXPECT_EQ(part.head.session, session_);
    EXPECT_EQ(head.room, RoomId(room));
    EXPECT_EQ(head.part.group, GroupId(0));
    EXPECT_EQ(head.checksum, Checksum(part.bytes.data(), part.bytes.size()));
    const auto value = static_cast<std::byte>(computes_.blocks.at(head.part.index).value);
    EXPECT_EQ(part.bytes, std::vector<std::byte>(kBlockBytes, value)) << head.part.index;
    return head.part.index;
  }
  int32_t requests() const {
    const SchedulerStats stats = driver_->scheduler().stats();
    return stats.running + stats.waiting;
  }

  SchedulerConfig config_ = kConfig;
  std::vector<std::byte> arena_ = NumberedBlocks();
  std::byte* memory_ = arena_.data();  // of the blocks
  Computes computes_;
  std::unique_ptr<HandoffExecutor> executor_;
  std::unique_ptr<Driver> driver_;
  SessionId session_;
  std::unique_ptr<Partners> partners_;
};

TEST_F(PagesThatLeaveTest, BlocksGoWhileThePromptIsComputedAndTheRestWithItsToken) {
  Start({});
  Ask(1, 0);
  ASSERT_TRUE(Await([&] { return parts() == 3; }));
  EXPECT_EQ(Left(0, 1), 0);
  EXPECT_EQ(Left(1, 1), 1);
  EXPECT_EQ(Left(2, 1), 2);
  ASSERT_TRUE(Until([&] { return Said<Last>().size() == 1; }));
  const Last last = Said<Last>()[0];
  EXPECT_EQ(last.room, RoomId(1));
  EXPECT_EQ(last.parts, 3);
  EXPECT_EQ(EventIn<PagesMoved>(last.result)->token, kToken);
  for (size_t i = 0; i < 3; ++i) network_.Sent(i);
  EXPECT_EQ(requests(), 1) << "its pages stay";
  network_.Say(kConnection, Took{RoomId(1)}, session_);
  ASSERT_TRUE(Await([&] { return requests() == 0; }));
  ASSERT_TRUE(Until([&] { return partners_->stats().done == 1; }));
  const PartnerStats stats = partners_->stats();
  EXPECT_EQ(stats.rooms, 1);
  EXPECT_EQ(stats.failed, 0);
  EXPECT_EQ(stats.bytes, 3 * kBytes);
  EXPECT_EQ(stats.early_bytes, 2 * kBytes);
}

// The partner has the first block. One part is on its way at a time; the token waits for the rest,
// so that goes before what could have left earlier.
TEST_F(PagesThatLeaveTest, PartsLeaveAsFarAsThereIsRoomOnTheWay) {
  Start({.flight_bytes = kBytes});
  Ask(1, kBlockTokens);
  ASSERT_TRUE(Await([&] { return Said<Last>().size() == 1; }));
  EXPECT_EQ(Said<Last>()[0].parts, 2);
  ASSERT_EQ(parts(), 1u);
  EXPECT_EQ(Left(0, 1), 1);
  Ask(2, 0);
  ASSERT_TRUE(Await([&] { return Said<Last>().size() == 2; }));
  ASSERT_EQ(parts(), 1u);
  for (size_t sent = 0; sent < 4; ++sent) {
    network_.Sent(sent);
    ASSERT_TRUE(Until([&] { return parts() == sent + 2; }));
  }
  const std::vector<SentPart> all = network_.Look([](Network& n) { return n.parts; });
  std::vector<std::pair<int64_t, int32_t>> order;  // rooms and parts
  for (const SentPart& part : all) {
    const PartHead head = std::get<PartHead>(part.head.body);
    order.emplace_back(head.room.value, head.part.index);
  }
  using At = std::pair<int64_t, int32_t>;
  EXPECT_THAT(order, ElementsAre(At(1, 1), At(1, 2), At(2, 2), At(2, 0), At(2, 1)));
}

// Of blocks of 129 MiB. Of a prompt's two whole blocks the first leaves early, as that of the next
// prompt does, when it has left.
TEST_F(PagesThatLeaveTest, CopiesOfBlocksTakeABoundedPieceOfMemory) {
  constexpr int64_t kLarge = kCopiesBytesMax / 2 + (1 << 20);
  config_.cache.groups[0].block_bytes = config_.cache.page_bytes = kLarge;
  const auto bytes = static_cast<size_t>(9 * kLarge);
  void* nothing = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);  // zeros, which take no memory
  ASSERT_NE(nothing, MAP_FAILED);
  ::madvise(nothing, bytes, MADV_HUGEPAGE);  // read sooner
  memory_ = static_cast<std::byte*>(nothing);
  Start({.flight_bytes = 4 * kLarge});
  for (int64_t room = 1; room <= 2; ++room) {
    const auto before = static_cast<size_t>(room - 1) * 3;
    Ask(room, 0);
    ASSERT_TRUE(Await([&] { return parts() == before + 3; }));
    for (size_t i = before; i < before + 3; ++i) network_.Sent(i);
    network_.Say(kConnection, Took{RoomId(room)}, session_);
    ASSERT_TRUE(Await([&] { return requests() == 0; }));
    EXPECT_TRUE(Until([&] { return partners_->stats().done == room; }));
    EXPECT_EQ(partners_->stats().early_bytes, room * kLarge);
  }
  partners_.reset();
  ::munmap(nothing, bytes);
}

TEST_F(PagesThatLeaveTest, WhatNobodyWantsAnyMoreDoesNotLeave) {
  Start({.flight_bytes = kBytes});
  Ask(1, 0);
  ASSERT_TRUE(Await([&] { return Said<Last>().size() == 1; }));
  network_.Say(kConnection, Cancel{RoomId(1)}, session_);
  network_.Sent(0);
  ASSERT_TRUE(Await([&] { return requests() == 0; }));
  ASSERT_TRUE(Until([&] { return partners_->stats().failed == 1; }));
  EXPECT_EQ(parts(), 1u);
  Ask(2, 2 * kBlockTokens);
  ASSERT_TRUE(Await([&] { return parts() == 2; })) << "there is room again";
  EXPECT_EQ(Left(1, 2), 2);
}

TEST_F(PagesThatLeaveTest, LostPagesAreToldAndDrainWaitsForNoPartner) {
  Start({});
  Ask(1, 0);
  ASSERT_TRUE(Await([&] { return Said<Last>().size() == 1 && parts() == 3; }));
  for (size_t i = 0; i < 3; ++i) network_.Sent(i);
  partners_->Drain();
  ASSERT_TRUE(Until([&] { return Said<Refusal>().size() == 1; }));
  EXPECT_EQ(Said<Refusal>()[0].room, RoomId(1));
  EXPECT_EQ(Said<Refusal>()[0].reason, "the device that has the pages has failed");
  EXPECT_TRUE(Await([&] { return requests() == 0; }));
}

// They leave when all ranks have handed them over, as copies, of which two find room at a time.
TEST_F(PagesThatLeaveTest, BlocksOfRanksLeaveWhole) {
  std::vector<std::byte> halves[2];
  for (int32_t rank : {0, 1}) {
    halves[rank].resize(static_cast<size_t>(9 * kHalf));
    for (size_t i = 0; i < halves[rank].size(); ++i) {
      halves[rank][i] = static_cast<std::byte>(i / static_cast<size_t>(kHalf) + 100 * rank);
    }
  }
  computes_.ranks = 2;
  Start({.layout = Halves(), .staging_bytes = 1});
  for (int32_t rank : {0, 1}) {
    partners_->MoverOf(rank).Attach({halves[rank].data()}, kHalfGeometry);
  }
  Ask(1, 0);
  ASSERT_TRUE(Await([&] { return parts() == 2 && Said<Last>().size() == 1; }));
  for (size_t sent = 0; sent < 3; ++sent) {
    ASSERT_TRUE(Until([&] { return parts() > sent; }));
    const SentPart part = network_.Look([&](Network& n) { return n.parts.at(sent); });
    const PartHead head = std::get<PartHead>(part.head.body);
    EXPECT_EQ(head.part.index, static_cast<int32_t>(sent));
    EXPECT_EQ(head.checksum, Checksum(part.bytes.data(), part.bytes.size()));
    const auto block = static_cast<size_t>(computes_.blocks.at(head.part.index).value);
    std::vector<std::byte> want(kHalf, static_cast<std::byte>(block));
    want.insert(want.end(), kHalf, static_cast<std::byte>(block + 100));
    EXPECT_EQ(part.bytes, want) << sent;
    network_.Sent(sent);
  }
  network_.Say(kConnection, Took{RoomId(1)}, session_);
  ASSERT_TRUE(Await([&] { return requests() == 0; }));
  EXPECT_TRUE(Until([&] { return partners_->stats().done == 1; }));
  EXPECT_EQ(partners_->stats().bytes, 3 * kBytes);
  partners_.reset();  // before the halves
}

class PagesThatComeTest : public PagesTest {
 protected:
  // With so many prefill engines, which are paired.
  void Start(int engines, PartnerOptions options = {}) {
    options.side = Side::kDecode;
    for (int i = 0; i < engines; ++i) options.prefills.push_back({fmt::format("p{}", i), 7000});
    partners_ = Create(std::move(options));
    for (int64_t id = 100; id < 100 + engines; ++id) {
      ASSERT_TRUE(Until([&] { return !Said<Hello>(id).empty(); }));
      const Nonces nonces{.decode = Said<Hello>(id)[0].nonce, .prefill = std::to_string(id)};
      network_.Say(id, Hello{kProtocolVersion, "a: b\n", nonces.prefill,
                             Prove("xyzzy", Side::kPrefill, nonces)});
      sessions_[id] = SessionOf(nonces);
    }
    ASSERT_TRUE(Until([&] { return partners_->stats().partners == engines; }));
    partners_->Attach({arena_.data()}, kConfig.cache);
  }
  ~PagesThatComeTest() override { partners_.reset(); }

  // Of a request whose prompt has 130 tokens, into blocks 3, 4 and 5.
  void Expect(int64_t number) {
    Request request;
    request.id = RequestId(number);
    request.prompt.assign(130, 7);
    partners_->Expect(MoveId(number), request);
  }
  PageMove Move(int64_t number) {
    PageMove move{.id = MoveId(number),
                  .direction = Direction::kIn,
                  .slot = {},
                  .request = RequestId(number),
                  .end = 130,
                  .parts = {}};
    for (int32_t i = 0; i < 3; ++i) {
      PagePart part{.index = i, .kind = GroupKind::kFull, .blocks = {}, .key = {}};
      part.blocks.by_group[0] = BlockId(3 + i);
      move.parts.push_back(part);
    }
    return move;
  }
  // Begins the move; the room that it opens, at the engine of `asked_`.
  RoomId Open(int64_t number) {
    std::map<int64_t, size_t> before;
    for (const auto& [id, session] : sessions_) before[id] = Said<Ask>(id).size();
    Expect(number);
    partners_->Start(Move(number), inbox_);
    EXPECT_TRUE(Until([&] {
      for (const auto& [id, asks] : before) {
        if (Said<Ask>(id).size() > asks) asked_ = id;
      }
      return asked_ != 0 && Said<Ask>(asked_).size() > before[asked_];
    }));
    return Said<Ask>(asked_).back().room;
  }
  // Where a part of some bytes is to be written that comes by a connection, in a session.
  Transport::Place Offer(Body body, size_t bytes, int64_t id, SessionId session) {
    const std::string header = Encode({session, std::move(body)});
    std::promise<Transport::Place> place;
    network_.Post([&](Transport::Owner& owner) {
      place.set_value(owner.OnData(ConnectionId(id), header, bytes));
    });
    return place.get_future().get();
  }
  Transport::Place Offer(Body body, size_t bytes = kBlockBytes) {
    return Offer(std::move(body), bytes, asked_, sessions_.at(asked_));
  }
  // Everything anew, with one engine.
  void StartAgain() {
    partners_.reset();
    network_.connections = 100;
    network_.sent.clear();
    Start(1);
  }
  PartHead HeadOf(RoomId room, int32_t index) {
    const std::vector<std::byte> bytes = BytesOf(index);
    return {room, {GroupId(0), index}, Checksum(bytes.data(), bytes.size())};
  }
  static std::vector<std::byte> BytesOf(int32_t index) {
    std::vector<std::byte> bytes(kBlockBytes, static_cast<std::byte>(100 + index));
    for (size_t i = 0; i < bytes.size() / 2; ++i) bytes[i] = static_cast<std::byte>(i);
    return bytes;
  }
  void End(const Transport::Place& place, int32_t index, bool whole = true) {
    const std::vector<std::byte> bytes = BytesOf(index);
    std::memcpy(place.data, bytes.data(), bytes.size());
    network_.Post([cookie = place.cookie, whole](Transport::Owner& owner) {
      owner.OnReceived(cookie, whole);
    });
  }
  void SayLast(RoomId room, int32_t parts, const std::string& result) {
    network_.Say(asked_, Last{room, parts, result}, sessions_.at(asked_));
  }
  static std::string Result() {
    return RecordOf(
        PagesMoved{.move = MoveId(0), .error = {}, .lost = {}, .token = kToken, .logprob = {}});
  }
  PagesMoved Moved() {
    std::vector<Event> events;
    EXPECT_TRUE(Until([&] {
      for (Event& event : inbox_.Take()) events.push_back(std::move(event));
      return !events.empty();
    }));
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? PagesMoved() : std::get<PagesMoved>(events[0]);
  }

  std::vector<std::byte> arena_ = NumberedBlocks();
  std::map<int64_t, SessionId> sessions_;  // by connection
  int64_t asked_ = 0;                      // the connection of the engine that was asked last
  Inbox inbox_;
  std::unique_ptr<Partners> partners_;
};

TEST_F(PagesThatComeTest, AreWrittenIntoTheirBlocksAndTheTokenIsTold) {
  Start(1);
  const RoomId room = Open(5);
  const Ask ask = Said<Ask>(100)[0];
  EXPECT_EQ(ask.begin, 0);
  EXPECT_EQ(ask.open_from, room);
  EXPECT_EQ(EventIn<Submit>(ask.request)->request.prompt.size(), 130u);
  SayLast(room, 3, Result());  // it may overtake parts
  for (const int32_t index : {2, 0, 1}) {
    const Transport::Place place = Offer(HeadOf(room, index));
    ASSERT_EQ(place.data, arena_.data() + static_cast<size_t>(3 + index) * kBlockBytes);
    EXPECT_EQ(Offer(HeadOf(room, index)).data, nullptr) << "it comes twice";
    EXPECT_TRUE(Said<Took>(100).empty());
    End(place, index);
  }
  const PagesMoved moved = Moved();
  EXPECT_EQ(moved.move, MoveId(5));
  EXPECT_EQ(moved.error, "");
  EXPECT_EQ(moved.token, kToken);
  std::vector<std::byte> want = NumberedBlocks();
  for (int32_t index = 0; index < 3; ++index) {
    std::ranges::copy(BytesOf(index), want.begin() + (3 + index) * kBytes);
  }
  EXPECT_EQ(arena_, want);
  ASSERT_TRUE(Until([&] { return Said<Took>(100).size() == 1; }));
  EXPECT_EQ(Said<Took>(100)[0].room, room);
  const PartnerStats stats = partners_->stats();
  EXPECT_EQ(stats.done, 1);
  EXPECT_EQ(stats.failed, 0);
  EXPECT_EQ(stats.rooms, 1);
  EXPECT_EQ(stats.bytes, 3 * kBytes);
  EXPECT_EQ(Offer(HeadOf(room, 0)).data, nullptr) << "the room is over";
}

// A part finds its place by its room, its number and its size, on its own connection.
TEST_F(PagesThatComeTest, PartsThatNobodyAskedForFindNoPlace) {
  Start(2);
  const RoomId room = Open(5);
  const int64_t other = 201 - asked_;
  EXPECT_EQ(Offer(HeadOf(RoomId(room.value + 1), 0)).data, nullptr);
  EXPECT_EQ(Offer(HeadOf(room, 3)).data, nullptr);
  EXPECT_EQ(Offer(PartHead{room, {GroupId(1), 0}, 0}).data, nullptr);
  EXPECT_EQ(Offer(HeadOf(room, 0), kBlockBytes - 1).data, nullptr);
  EXPECT_EQ(Offer(HeadOf(room, 0), kBlockBytes + 1).data, nullptr);
  EXPECT_EQ(Offer(Ping{}).data, nullptr);
  for (const int64_t id : {other, asked_, int64_t{300}}) {
    EXPECT_EQ(Offer(HeadOf(room, 0), kBlockBytes, id, sessions_.at(other)).data, nullptr) << id;
  }
  EXPECT_EQ(Offer(HeadOf(room, 0), kBlockBytes, other, sessions_.at(asked_)).data, nullptr);
  EXPECT_NE(Offer(HeadOf(room, 0)).data, nullptr);
}

TEST_F(PagesThatComeTest, APartThatIsDamagedOrCutEndsTheMove) {
  for (const bool damaged : {true, false}) {
    StartAgain();
    const RoomId room = Open(5);
    PartHead head = HeadOf(room, 0);
    head.checksum += damaged;
    End(Offer(head), 0, damaged);
    EXPECT_EQ(Moved().error, "a page did not arrive as it was sent");
    ASSERT_TRUE(Until([&] { return Said<Cancel>(100).size() == 1; }));
    EXPECT_EQ(Said<Cancel>(100)[0].room, room);
    EXPECT_EQ(partners_->stats().failed, 1);
    EXPECT_EQ(partners_->stats().bytes, 0);
  }
}

TEST_F(PagesThatComeTest, WhatIsNoResultEndsTheMove) {
  for (const bool parts : {false, true}) {
    StartAgain();
    const RoomId room = Open(5);
    for (const int32_t index : {0, 1, 2}) End(Offer(HeadOf(room, index)), index);
    SayLast(room, parts ? 2 : 3, parts ? Result() : "no event");
    EXPECT_EQ(Moved().error, parts ? "the prefill engine sent 2 blocks, not 3"
                                   : "the prefill engine's first token cannot be read");
    EXPECT_EQ(partners_->stats().failed, 1);
    EXPECT_EQ(partners_->stats().done, 0);
  }
}

// The one that was asked refuses; so does the other, and there is no third try.
TEST_F(PagesThatComeTest, AnotherEngineIsAskedOnce) {
  Start(2);
  const RoomId room = Open(5);
  const int64_t first = asked_, second = 201 - first;
  network_.Say(first, Refusal{room, "full"}, sessions_.at(first));
  ASSERT_TRUE(Until([&] { return Said<Ask>(second).size() == 1; }));
  EXPECT_EQ(Said<Ask>(second)[0].request, Said<Ask>(first)[0].request);
  network_.Say(second, Refusal{Said<Ask>(second)[0].room, "full, too"}, sessions_.at(second));
  EXPECT_EQ(Moved().error, "the prefill engine: full, too");
  EXPECT_EQ(partners_->stats().rooms, 1) << "of the request";
  EXPECT_EQ(partners_->stats().failed, 1);
}

TEST_F(PagesThatComeTest, AnAbortEndsItsOwnMove) {
  Start(1);
  const RoomId room = Open(5), other = Open(6);
  partners_->Abort(RequestId(7));  // has none
  partners_->Abort(RequestId(6));
  const PagesMoved moved = Moved();
  EXPECT_EQ(moved.move, MoveId(6));
  EXPECT_EQ(moved.error, "the request was aborted");
  ASSERT_TRUE(Until([&] { return Said<Cancel>(100).size() == 1; }));
  EXPECT_EQ(Said<Cancel>(100)[0].room, other);
  EXPECT_NE(Offer(HeadOf(room, 0)).data, nullptr);
}

TEST_F(PagesThatComeTest, ALostEngineEndsItsMovesAndIsAskedNoMore) {
  Start(1);
  Open(5);
  network_.Post([](Transport::Owner& owner) { owner.OnLost(ConnectionId(100), "cut"); });
  EXPECT_EQ(Moved().error, "the prefill engine p0:7000 is lost: cut");
  EXPECT_TRUE(Until([&] { return partners_->stats().partners == 0; }));
  Expect(6);
  partners_->Start(Move(6), inbox_);
  EXPECT_THAT(Moved().error, HasSubstr("no prefill engine is connected"));
  EXPECT_TRUE(Until([&] { return partners_->stats().failed == 2; }));
}

TEST_F(PagesThatComeTest, ALostDeviceEndsAllMovesBeforeDrainReturns) {
  Start(1);
  Open(5);
  Open(6);
  partners_->Drain();
  std::vector<std::string> errors;
  for (Event& event : inbox_.Take()) errors.push_back(std::get<PagesMoved>(event).error);
  const std::string lost = "the device that has the pages has failed";
  EXPECT_THAT(errors, ElementsAre(lost, lost));
}

// Each of two ranks has half of a block. A move begins when both have started it.
TEST_F(PagesThatComeTest, RanksGetTheirOwnBytesOfEachBlock) {
  Computes none;
  Driver driver(*Scheduler::Create(kConfig), none, {});
  Start(1, {.layout = Halves()});
  std::vector<std::vector<std::byte>> arenas(2, std::vector<std::byte>(kBlockBytes / 2 * 9));
  for (int32_t rank : {0, 1}) {
    partners_->MoverOf(rank).Attach({arenas[static_cast<size_t>(rank)].data()},
                                    kHalfGeometry);
  }
  partners_->Serve(driver);
  Expect(5);
  partners_->MoverOf(1).Start(Move(5), inbox_);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(Said<Ask>(100).empty());
  partners_->Start(Move(5), inbox_);
  ASSERT_TRUE(Until([&] { return Said<Ask>(100).size() == 1; }));
  const RoomId room = Said<Ask>(100)[0].room;
  asked_ = 100;
  for (const int32_t index : {0, 1, 2}) End(Offer(HeadOf(room, index)), index);
  SayLast(room, 3, Result());
  EXPECT_EQ(Moved().error, "");
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    for (int32_t index = 0; index < 3; ++index) {
      const std::vector<std::byte> whole = BytesOf(index);
      const auto want = whole.begin() + (rank == 0 ? 0 : kHalf);
      const auto at = arenas[rank].begin() + (3 + index) * kHalf;
      EXPECT_TRUE(std::equal(at, at + kHalf, want)) << rank << " " << index;
    }
    EXPECT_EQ(std::ranges::count(arenas[rank], std::byte{0}), rank == 0 ? 6 * kHalf + 3 : 6 * kHalf)
        << "nothing else is written";
  }
  partners_.reset();  // before the driver
}

}  // namespace
}  // namespace braid::handoff
