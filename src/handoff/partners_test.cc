// Who may take part: a prefill or decode engine's partners thread and a transport that the test
// plays.
#include "handoff/partners.h"

#include <gmock/gmock.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <variant>

#include "base/clock.h"
#include "handoff/pairing.h"
#include "scheduler/scheduler.h"

namespace braid::handoff {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What the partners did, and what is to happen to them.
struct Network {
  std::mutex mutex;
  std::deque<std::function<void(Transport::Owner&)>> events;
  std::map<ConnectionId, std::vector<Message>> sent;
  std::set<ConnectionId> closed, trusted;
  int looked_up = 0;          // times that Connect is asked before the name is known
  int connects = 0;           // calls
  int64_t connections = 100;  // numbers of those that the partners begin

  void Post(std::function<void(Transport::Owner&)> event) {
    std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
  void Accept(int64_t id) {
    Post([id](Transport::Owner& owner) { owner.OnAccepted(ConnectionId(id)); });
  }
  void Say(int64_t id, Body body) {
    Post([id, bytes = Encode({SessionId(0), std::move(body)})](Transport::Owner& owner) {
      owner.OnMessage(ConnectionId(id), bytes);
    });
  }
  template <class F>
  auto Look(F look) {
    std::lock_guard lock(mutex);
    return look(*this);
  }
  template <class F>
  bool Until(F holds) {
    const int64_t end_us = MonotonicUs() + 30'000'000;
    while (!Look(holds) && MonotonicUs() < end_us) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Look(holds);
  }
};

class PlayedTransport final : public Transport {
 public:
  PlayedTransport(Network& network, Owner& owner) : network_(network), owner_(owner) {}
  Result<uint16_t> Listen(const HostPort&) override { return uint16_t{1}; }
  Result<ConnectionId> Connect(const HostPort&) override {
    std::lock_guard lock(network_.mutex);
    ++network_.connects;
    if (network_.looked_up-- > 0) return ConnectionId();
    return ConnectionId(network_.connections++);
  }
  void Trust(ConnectionId id) override {
    std::lock_guard lock(network_.mutex);
    network_.trusted.insert(id);
  }
  void Send(ConnectionId to, std::string message) override {
    std::lock_guard lock(network_.mutex);
    network_.sent[to].push_back(*Decode(message));
  }
  void SendData(ConnectionId, std::string, Data) override {}
  void Close(ConnectionId id) override {
    std::lock_guard lock(network_.mutex);
    network_.closed.insert(id);
  }
  void Progress() override {
    std::deque<std::function<void(Owner&)>> now;
    {
      std::lock_guard lock(network_.mutex);
      now.swap(network_.events);
    }
    for (const auto& event : now) event(owner_);
  }
  void Wait(int32_t) override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  void Wake() override {}

 private:
  Network& network_;
  Owner& owner_;
};

struct Idle final : Executor {
  void Launch(Plan, EventSink&) override {}
};

class PartnersTest : public ::testing::Test {
 protected:
  void Start(Side side) {
    PartnerOptions options{.side = side, .listen = {}, .key = "xyzzy", .fingerprint = "a: b\n"};
    if (side == Side::kDecode) options.prefills = {{"prefill", 7000}};
    options.transport = [this](Transport::Owner& owner) -> Result<std::unique_ptr<Transport>> {
      return std::unique_ptr<Transport>(std::make_unique<PlayedTransport>(network_, owner));
    };
    partners_ = *Partners::Create(std::move(options));
    partners_->Serve(driver_);
  }
  // As a decode engine that has the key.
  void Pair(int64_t id) {
    const ConnectionId connection(id);
    Nonces nonces{.decode = "d", .prefill = {}};
    network_.Accept(id);
    network_.Say(id, Hello{kProtocolVersion, "a: b\n", nonces.decode, ""});
    ASSERT_TRUE(network_.Until([&](Network& n) { return !n.sent[connection].empty(); }));
    nonces.prefill = network_.Look(
        [&](Network& n) { return std::get<Hello>(n.sent[connection][0].body).nonce; });
    network_.Say(id, Hello{kProtocolVersion, "", "", Prove("xyzzy", Side::kDecode, nonces)});
  }

  Network network_;
  Idle idle_;
  Driver driver_{
      *Scheduler::Create(
          {.cache = {.groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 9},
           .context_tokens_max = 256,
           .vocabulary = 100}),
      idle_,
      {}};
  std::unique_ptr<Partners> partners_;
};

TEST_F(PartnersTest, OneThatProvesTheKeyIsTrusted) {
  Start(Side::kPrefill);
  network_.Accept(1);
  network_.Say(1, Hello{kProtocolVersion, "a: b\n", "d", ""});
  Pair(2);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.trusted.empty(); }));
  EXPECT_THAT(network_.Look([](Network& n) { return n.trusted; }), ElementsAre(ConnectionId(2)));
}

TEST_F(PartnersTest, OneThatIsRefusedIsToldOnceAndClosed) {
  Start(Side::kPrefill);
  network_.Accept(1);  // says nothing, and is there for longer
  network_.Accept(2);
  for (int i = 0; i < 3; ++i) network_.Say(2, Hello{kProtocolVersion + 1, "a: b\n", "d", ""});
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.closed.empty(); }));
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }), ElementsAre(ConnectionId(2)));
  EXPECT_EQ(network_.Look([](Network& n) { return n.sent[ConnectionId(2)].size(); }), 1u);
}

TEST_F(PartnersTest, ThoseThatAreNotPairedKeepNobodyOut) {
  Start(Side::kPrefill);
  Pair(1);
  for (int64_t id = 2; id <= 66; ++id) network_.Accept(id);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.closed.empty(); }));
  ASSERT_TRUE(network_.Until([](Network& n) { return n.events.empty(); }));
  EXPECT_FALSE(network_.Look([](Network& n) { return n.closed.contains(ConnectionId(66)); }));
  EXPECT_FALSE(network_.Look([](Network& n) { return n.closed.contains(ConnectionId(1)); }));
}

TEST_F(PartnersTest, APrefillEngineThatIsNotReachedIsNamedInTheLog) {
  ::testing::internal::CaptureStdout();  // the log
  Start(Side::kDecode);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.sent[ConnectionId(100)].empty(); }));
  network_.Post([](Transport::Owner& owner) { owner.OnLost(ConnectionId(100), "refused"); });
  ASSERT_TRUE(network_.Until([](Network& n) { return n.events.empty(); }));
  partners_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("the prefill engine prefill:7000 cannot be reached: refused"));
}

TEST_F(PartnersTest, ANameThatIsBeingLookedUpIsNoFailure) {
  network_.looked_up = 5;
  Start(Side::kDecode);
  ASSERT_TRUE(network_.Until([](Network& n) { return !n.sent[ConnectionId(100)].empty(); }));
  EXPECT_EQ(network_.Look([](Network& n) { return n.connects; }), 6);
  EXPECT_THAT(network_.Look([](Network& n) { return n.closed; }), IsEmpty());
  EXPECT_FALSE(network_.Look([](Network& n) { return n.sent.contains(ConnectionId()); }));
}

}  // namespace
}  // namespace braid::handoff
