// Who may take part: a prefill or decode engine's partners thread and a transport that the test
// plays.
#include "handoff/partners.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "handoff/pairing.h"
#include "handoff/test_network.h"
#include "scheduler/event_codec.h"
#include "scheduler/scheduler.h"

namespace braid::handoff {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What waits to be compiled, until the test has an answer.
class PlayedGate final : public GrammarGate {
 public:
  Result<std::unique_ptr<Ticket>> Enter(const std::string& key, const std::string& grammar,
                                        std::function<void()> wake) override {
    std::lock_guard lock(mutex_);
    if (grammar == "too many") return Error{ErrorCode::kUnavailable, "no place is left"};
    if (grammar == "too many of one")
      return Error{ErrorCode::kExhausted, "no place is left for one"};
    entries_.push_back({.key = key, .wake = std::move(wake)});
    return std::unique_ptr<Ticket>(std::make_unique<PlayedTicket>(*this, entries_.size() - 1));
  }
  void Answer(size_t i, const Status& status) {
    std::unique_lock lock(mutex_);
    entries_[i].outcome = status;
    const std::function<void()> wake = entries_[i].wake;
    lock.unlock();
    wake();
  }
  std::vector<std::string> keys() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (const Entry& entry : entries_) keys.push_back(entry.key);
    return keys;
  }
  bool left(size_t i) {
    std::lock_guard lock(mutex_);
    return entries_[i].left;
  }

 private:
  struct Entry {
    std::string key;
    std::function<void()> wake;
    std::optional<Status> outcome = {};
    bool left = false;
  };
  class PlayedTicket final : public Ticket {
   public:
    PlayedTicket(PlayedGate& gate, size_t i) : gate_(gate), i_(i) {}
    ~PlayedTicket() override {
      std::lock_guard lock(gate_.mutex_);
      gate_.entries_[i_].left = true;
    }
    std::optional<Status> Outcome() override {
      std::lock_guard lock(gate_.mutex_);
      return gate_.entries_[i_].outcome;
    }

   private:
    PlayedGate& gate_;
    const size_t i_;
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

// Computes nothing; or says that every row fails.
struct Idle final : Executor {
  void Launch(Plan plan, EventSink& sink) override {
    if (fails.message.empty()) return;
    StepDone done{.step = plan.step};
    for (const Row& row : plan.rows) {
      done.rows.push_back({.request = row.request});
      done.rows.back().error = fails.message;
      done.rows.back().error_code = fails.code;
    }
    sink.Post(std::move(done));
  }
  Error fails;
};

class PartnersTest : public ::testing::Test {
 protected:
  void Create(Side side) {
    PartnerOptions options{.side = side, .listen = {}, .keys = {"xyzzy"}, .fingerprint = "a: b\n"};
    if (side == Side::kDecode) options.prefills = {{"prefill", 7000}};
    if (side == Side::kPrefill) options.grammars = &gate_;
    options.transport = [this](Transport::Owner& owner) -> Result<std::unique_ptr<Transport>> {
      return std::unique_ptr<Transport>(std::make_unique<PlayedTransport>(network_, owner));
    };
    partners_ = *Partners::Create(std::move(options));
  }
  void Start(Side side) {
    Create(side);
    partners_->Serve(driver_);
    network_.AwaitTurn();
  }
  // As a decode engine that has a key.
  void Pair(int64_t id, const std::string& key = "xyzzy") {
    const ConnectionId connection(id);
    Nonces nonces{.decode = "d", .prefill = {}};
    network_.Accept(id);
    network_.Say(id, Hello{kProtocolVersion, "a: b\n", nonces.decode, ""});
    ASSERT_TRUE(network_.Until([&](Network& n) { return !n.sent[connection].empty(); }));
    const Hello hello =
        network_.Look([&](Network& n) { return std::get<Hello>(n.sent[connection][0].body); });
    nonces.prefill = hello.nonce;
    proved_ = hello.proof == Prove(key, Side::kPrefill, nonces);
    network_.Say(id, Hello{kProtocolVersion, "", "", Prove(key, Side::kDecode, nonces)});
    session_ = SessionOf(nonces);
  }
  void Ask(int64_t room, const std::string& grammar, const std::string& tenant = {}) {
    Request request;
    request.prompt.assign(70, 7);
    request.grammar = grammar;
    request.tenant = tenant;
    handoff::Ask ask{RoomId(room), RoomId(1), 0, {}};
    AppendRecord(Event(Submit{std::move(request)}), ask.request);
    network_.Say(1, std::move(ask), session_);
  }
  // Requests that the engine has.
  int32_t Computed() {
    driver_.Turn();
    const SchedulerStats stats = driver_.scheduler().stats();
    return stats.running + stats.waiting;
  }
  // With an Answer (a Refusal or Unfit) for this reason.
  template <class Answer>
  bool Refused(const std::string& why) {
    return network_.Until([&](Network& n) {
      for (const Message& message : n.sent[ConnectionId(1)]) {
        const auto* answer = std::get_if<Answer>(&message.body);
        if (answer != nullptr && answer->reason == why) return true;
      }
      return false;
    });
  }
  std::string ReasonSaid(ConnectionId to, size_t message) {
    return network_.Look(
        [&](Network& n) { return std::get<Refusal>(n.sent[to].at(message).body).reason; });
  }
  template <class F>
  bool Until(F holds) {
    return network_.Until([&](Network&) { return holds(); });
  }

  Network network_;
  PlayedGate gate_;
  SessionId session_;
  bool proved_ = false;  // the prefill engine has proved that it has the key
  Idle idle_;
  Driver driver_{
      *Scheduler::Create(
          {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 9},
           .context_tokens_max = 256,
           .vocabulary = 100,
           .handoff = true}),
      idle_,
      {}};
  std::unique_ptr<Partners> partners_;
};

TEST_F(PartnersTest, OneThatProvesTheKeyIsTrusted) {
  Start(Side::kPrefill);
  network_.Accept(1);
  network_.Say(1, Hello{kProtocolVersion, "a: b\n", "d", ""});
  Pair(3, "wrong");
  EXPECT_FALSE(proved_);
  ASSERT_TRUE(network_.Until([](Network& n) { return n.sent[ConnectionId(3)].size() == 2; }));
  EXPECT_EQ(ReasonSaid(ConnectionId(3), 1), "the --handoff-key-file of the two engines differ");
  Pair(2);
  EXPECT_TRUE(proved_);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.trusted.empty(); }));
  EXPECT_THAT(network_.Look([](Network& n) { return n.trusted; }), ElementsAre(ConnectionId(2)));
  EXPECT_TRUE(Until([&] { return partners_->stats().partners == 1; }));
}

TEST_F(PartnersTest, NewKeysAreThoseOfTheNextPartners) {
  Start(Side::kPrefill);
  Pair(1);
  ASSERT_TRUE(network_.Until([](Network& n) { return n.trusted.contains(ConnectionId(1)); }));
  partners_->SetKeys({"new", "xyzzy"});
  network_.AwaitTurn();
  Pair(2);
  EXPECT_FALSE(proved_) << "a prefill engine proves the first of its keys";
  Pair(3, "new");
  EXPECT_TRUE(proved_);
  ASSERT_TRUE(network_.Until([](Network& n) { return n.trusted.contains(ConnectionId(3)); }));
  EXPECT_FALSE(network_.Look([](Network& n) { return n.trusted.contains(ConnectionId(2)); }));
  EXPECT_TRUE(Until([&] { return partners_->stats().partners == 2; })) << "the first one stays";
}

TEST_F(PartnersTest, WordsOfAnotherSessionCountForNothing) {
  Start(Side::kPrefill);
  Pair(1);
  const SessionId session = std::exchange(session_, SessionId(session_.value ^ 1));
  Ask(1, "");
  session_ = session;
  Ask(2, "");
  ASSERT_TRUE(Until([&] { return Computed() == 1; }));
  EXPECT_TRUE(Until([&] { return partners_->stats().rooms > 0; }));
  EXPECT_EQ(partners_->stats().rooms, 1);
}

TEST_F(PartnersTest, OneThatLeavesEndsItsRoomsAndTakesNoMorePartners) {
  Start(Side::kPrefill);
  Pair(1);
  Ask(1, "");
  ASSERT_TRUE(Until([&] { return Computed() == 1; }));
  partners_->Leave();
  partners_->Leave();  // as often as somebody says so
  EXPECT_TRUE(network_.Until([](Network& n) { return n.closed.contains(ConnectionId(1)); }));
  EXPECT_TRUE(Until([&] { return Computed() == 0 && partners_->stats().partners == 0; }));
  network_.Accept(2);
  EXPECT_TRUE(network_.Until([](Network& n) { return n.closed.contains(ConnectionId(2)); }));
}

TEST_F(PartnersTest, ADecodeEngineTakesNoConnections) {
  Start(Side::kDecode);
  network_.Accept(1);
  EXPECT_TRUE(network_.Until([](Network& n) { return n.closed.contains(ConnectionId(1)); }));
}

TEST_F(PartnersTest, PrefillEnginesThatAreFoundAreConnectedToBesideTheFirst) {
  Start(Side::kDecode);
  const std::vector<HostPort> all = {{"prefill", 7000}, {"second", 7001}, {"third", 7002}};
  for (size_t i = 1; i < all.size(); ++i) {
    partners_->SetPrefills({all[i]});  // in place of the one before
    ASSERT_TRUE(network_.Until([&](Network& n) { return n.called.size() == i + 1; }));
  }
  EXPECT_EQ(network_.Look([](Network& n) { return n.called; }), all);
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }), IsEmpty());
}

TEST_F(PartnersTest, AGrammarIsCompiledBeforeItsPromptIsComputed) {
  Start(Side::kPrefill);
  Pair(1);
  Ask(1, "slow", "ann");
  Ask(2, "slow");
  Ask(3, "");  // does not wait for the others
  ASSERT_TRUE(Until([&] { return Computed() == 1; }));
  EXPECT_THAT(gate_.keys(), ElementsAre("tenant ann", fmt::format("session {}", session_.value)));
  gate_.Answer(0, {});
  ASSERT_TRUE(Until([&] { return Computed() == 2; }));
  EXPECT_FALSE(gate_.left(0)) << "it is kept until the prompt is computed";
  network_.Say(1, Cancel{RoomId(1)}, session_);
  ASSERT_TRUE(Until([&] { return Computed() == 1; }));
  EXPECT_TRUE(Until([&] { return gate_.left(0); }));
  EXPECT_FALSE(gate_.left(1));
}

TEST_F(PartnersTest, ARoomThatEndsWaitsForNoGrammar) {
  Start(Side::kPrefill);
  Pair(1);
  Ask(1, "slow");
  Ask(2, "slow");
  ASSERT_TRUE(Until([&] { return gate_.keys().size() == 2; }));
  network_.Say(1, Cancel{RoomId(1)}, session_);
  ASSERT_TRUE(Until([&] { return gate_.left(0); }));
  EXPECT_FALSE(gate_.left(1));
  Ask(1, "");  // it is over, so it is not computed
  Ask(3, "slow");
  ASSERT_TRUE(Until([&] { return gate_.keys().size() == 3; }));
  EXPECT_EQ(Computed(), 0);
  network_.Post([](Transport::Owner& owner) { owner.OnLost(ConnectionId(1), "gone"); });
  ASSERT_TRUE(Until([&] { return gate_.left(1) && gate_.left(2); }));
  EXPECT_EQ(Computed(), 0);
  EXPECT_TRUE(Until([&] { return partners_->stats().failed == 3; }));
  EXPECT_EQ(partners_->stats().rooms, 3);
}

TEST_F(PartnersTest, AGrammarThatCannotBeUsedConcernsItsRequestAlone) {
  Start(Side::kPrefill);
  Pair(1);
  Ask(1, "slow");
  ASSERT_TRUE(Until([&] { return gate_.keys().size() == 1; }));
  gate_.Answer(0, Error{ErrorCode::kExhausted, "over its budget"});
  EXPECT_TRUE(Refused<Unfit>("over its budget"));
  Ask(2, "too many of one");
  EXPECT_TRUE(Refused<Unfit>("no place is left for one"));
  Ask(3, "too many");
  EXPECT_TRUE(Refused<Refusal>("no place is left"));
  EXPECT_EQ(Computed(), 0);
}

TEST_F(PartnersTest, ARequestThatFailsByItselfSaysNothingOfTheEngine) {
  Start(Side::kPrefill);
  Pair(1);
  for (const ErrorCode code : {ErrorCode::kInvalid, ErrorCode::kInternal}) {
    idle_.fails = {code, fmt::format("for reason {}", static_cast<int>(code))};
    const int64_t failed = partners_->stats().failed;
    Ask(code == ErrorCode::kInvalid ? 1 : 2, "");
    ASSERT_TRUE(Until([&] { return driver_.Turn(), partners_->stats().failed > failed; }));
    if (code == ErrorCode::kInvalid) {
      EXPECT_TRUE(Refused<Unfit>(idle_.fails.message));
    } else {
      EXPECT_TRUE(Refused<Refusal>(idle_.fails.message));
    }
  }
  EXPECT_TRUE(Until([&] { return partners_->stats().failed == 2; }));
}

TEST_F(PartnersTest, APromptThatAStopEndsIsRefused) {
  Start(Side::kPrefill);
  Pair(1);
  Ask(1, "");
  ASSERT_TRUE(Until([&] { return Computed() == 1; }));
  driver_.Stop(true);
  EXPECT_EQ(Computed(), 0);
  EXPECT_TRUE(Refused<Refusal>("the prompt's computation was ended"));
  Ask(2, "");
  EXPECT_TRUE(Until([&] { return partners_->stats().failed == 2; })) << "none is taken any more";
}

TEST_F(PartnersTest, APrefillEngineThatLoadsSaysWhatDiffersAndTakesPartnersLater) {
  Create(Side::kPrefill);
  network_.Accept(1);
  network_.Say(1, Hello{kProtocolVersion, "a: c\n", "d", ""});
  EXPECT_TRUE(Refused<Refusal>("a is c there and b here"));
  network_.Accept(2);
  network_.Say(2, Hello{kProtocolVersion, "a: b\n", "d", ""});
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.sent[ConnectionId(2)].empty(); }));
  EXPECT_EQ(ReasonSaid(ConnectionId(2), 0), "its weights are being loaded");
  ASSERT_TRUE(network_.Until([](Network& n) { return n.closed.contains(ConnectionId(2)); }));
  partners_->Serve(driver_);
  network_.AwaitTurn();
  Pair(3);
  ASSERT_TRUE(network_.Until([](Network& n) { return n.trusted.contains(ConnectionId(3)); }));
}

TEST_F(PartnersTest, ADecodeEngineThatLoadsFindsItsPartners) {
  const int64_t began_us = MonotonicUs();
  Create(Side::kDecode);
  const ConnectionId first(100), next(101);
  const auto answer = [&](ConnectionId to, const char* fingerprint) {
    ASSERT_TRUE(network_.Until([&](Network& n) { return !n.sent[to].empty(); }));
    Nonces nonces{.decode = {}, .prefill = "p"};
    nonces.decode =
        network_.Look([&](Network& n) { return std::get<Hello>(n.sent[to][0].body).nonce; });
    network_.Say(to.value, Hello{kProtocolVersion, fingerprint, nonces.prefill,
                                 Prove("xyzzy", Side::kPrefill, nonces)});
    ASSERT_TRUE(network_.Until([&](Network& n) { return n.sent[to].size() == 2; }));
  };
  answer(first, "a: c\n");
  EXPECT_EQ(ReasonSaid(first, 1), "a is c there and b here");
  answer(next, "a: b\n");
  EXPECT_GE(MonotonicUs() - began_us, 2'000'000) << "who was refused comes less often";
  EXPECT_TRUE(Until([&] { return partners_->stats().partners == 1; }));
}

TEST_F(PartnersTest, OneThatIsRefusedIsToldOnceAndClosed) {
  Start(Side::kPrefill);
  Pair(3);
  network_.Accept(1);  // says nothing, and is there for longer
  network_.Accept(2);
  for (int i = 0; i < 3; ++i) network_.Say(2, Hello{kProtocolVersion + 1, "a: b\n", "d", ""});
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.closed.empty(); }));
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }), ElementsAre(ConnectionId(2)));
  EXPECT_EQ(network_.Look([](Network& n) { return n.sent[ConnectionId(2)].size(); }), 1u);
  // Meanwhile a partner has heard twice a second that this engine is there, and nobody else has.
  const auto pings = [](Network& n) {
    return std::ranges::count_if(n.sent[ConnectionId(3)], [](const Message& message) {
      return std::holds_alternative<Ping>(message.body);
    });
  };
  EXPECT_TRUE(network_.Until([&](Network& n) { return pings(n) > 0; }));
  EXPECT_LT(network_.Look(pings), 20);
  EXPECT_EQ(network_.Look([](Network& n) { return n.sent[ConnectionId(1)].size(); }), 0u);
}

TEST_F(PartnersTest, ThoseThatAreNotPairedKeepNobodyOut) {
  Start(Side::kPrefill);
  Pair(1);
  for (int64_t id = 2; id <= 66; ++id) network_.Accept(id);
  ASSERT_TRUE(network_.Until([](Network& n) { return n.closed.size() == 2; }));
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }),
              ElementsAre(ConnectionId(2), ConnectionId(3)));
}

TEST_F(PartnersTest, BesideSixtyFourPartnersThereIsNoPlace) {
  Start(Side::kPrefill);
  for (int64_t id = 1; id <= 64; ++id) Pair(id);
  ASSERT_TRUE(network_.Until([](Network& n) { return n.trusted.size() == 64; }));
  network_.Accept(65);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.closed.empty(); }));
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }), ElementsAre(ConnectionId(65)));
}

// Anybody may connect; the log is for others too.
TEST_F(PartnersTest, TheLogNamesTenThatAreRefusedInAMinute) {
  ::testing::internal::CaptureStdout();  // the log
  Start(Side::kPrefill);
  for (int64_t id = 1; id <= 13; ++id) {
    network_.Accept(id);
    network_.Say(id, Hello{kProtocolVersion + 1, "a: b\n", "d", ""});
  }
  EXPECT_TRUE(network_.Until([](Network& n) { return !n.sent[ConnectionId(13)].empty(); }));
  partners_.reset();
  const std::string log = ::testing::internal::GetCapturedStdout();
  int lines = 0;
  for (size_t at = log.find("is no partner"); at != std::string::npos; ++lines) {
    at = log.find("is no partner", at + 1);
  }
  EXPECT_EQ(lines, 10) << log;
}

TEST_F(PartnersTest, APrefillEngineThatIsNotReachedOrRefusesIsNamedInTheLog) {
  for (const bool refuses : {false, true}) {
    ::testing::internal::CaptureStdout();  // the log
    Start(Side::kDecode);
    const int64_t id = refuses ? 101 : 100;
    ASSERT_TRUE(network_.Until([&](Network& n) { return !n.sent[ConnectionId(id)].empty(); }));
    if (refuses) network_.Say(id, Refusal{RoomId(0), "it is full"});
    network_.Post([id](Transport::Owner& owner) { owner.OnLost(ConnectionId(id), "refused"); });
    ASSERT_TRUE(network_.Until([](Network& n) { return n.events.empty(); }));
    partners_.reset();
    const std::string log = ::testing::internal::GetCapturedStdout();
    const std::string reached = "the prefill engine prefill:7000 cannot be reached: refused";
    EXPECT_EQ(log.find(reached) == std::string::npos, refuses) << "one reason is enough";
    const std::string refused = "the prefill engine prefill:7000 refuses this engine: it is full";
    EXPECT_EQ(log.find(refused) != std::string::npos, refuses);
  }
}

TEST_F(PartnersTest, ANameThatIsBeingLookedUpIsNoFailure) {
  network_.looked_up = 5;
  Start(Side::kDecode);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.sent[ConnectionId(100)].empty(); }));
  EXPECT_EQ(network_.Look([](Network& n) { return n.connects; }), 6);
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }), IsEmpty());
  EXPECT_FALSE(network_.Look([](Network& n) { return n.sent.contains(ConnectionId()); }));
}

// Who is told of a move's end; it looks at once at what is counted.
struct Counted final : EventSink {
  explicit Counted(const Partners& partners) : partners(partners) {}
  void Post(Event event) override {
    if (std::holds_alternative<PagesMoved>(event)) failed = partners.stats().failed;
  }
  const Partners& partners;
  std::atomic<int64_t> failed = -1;
};

TEST_F(PartnersTest, AMoveIsCountedBeforeItsEndIsKnown) {
  Start(Side::kDecode);
  Counted sink(*partners_);
  Request request;
  request.prompt.assign(70, 7);
  request.id = RequestId(3);
  partners_->Expect(MoveId(1), request);
  PageMove move;
  move.id = MoveId(1);
  move.direction = Direction::kIn;
  move.request = request.id;
  partners_->Start(move, sink);  // no prefill engine is connected
  ASSERT_TRUE(Until([&] { return sink.failed >= 0; }));
  EXPECT_EQ(sink.failed, 1);
  partners_.reset();  // before the sink
}

}  // namespace
}  // namespace braid::handoff
