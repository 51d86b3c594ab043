// Two transports in one process, in one thread.
#include "handoff/transport.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "handoff/ucx.h"

namespace braid::handoff {
namespace {

using ::testing::HasSubstr;

struct End final : Transport::Owner {
  void OnAccepted(ConnectionId connection) override {
    accepted = connection;
    if (trusts != nullptr) trusts->Trust(connection);
  }
  void OnLost(ConnectionId connection, const std::string& why) override {
    lost_from = connection;
    lost = why;
  }
  void OnMessage(ConnectionId from, std::string_view message) override {
    last_from = from;
    messages.emplace_back(message);
    if (message == "proof") owns->Trust(from);
    if (message == "close") owns->Close(closes);
  }
  Transport::Place OnData(ConnectionId, std::string_view header, size_t bytes) override {
    ++offered;
    if (header == "drop") {
      const int64_t end_us = MonotonicUs() + drop_us;
      while (MonotonicUs() < end_us) continue;
      return {};
    }
    if (header == "wait" && full) return {.later = true};
    order.emplace_back(header);
    page.assign(bytes, std::byte{0});
    return {page.data(), 7};
  }
  void OnReceived(uint64_t cookie, bool whole) override {
    received += cookie == 7 && whole;
    ++ended;
  }
  void OnSent(uint64_t, bool whole) override { whole ? ++sent : ++failed; }

  ConnectionId accepted, last_from, lost_from;
  ConnectionId closes;  // when somebody says so
  std::string lost;
  std::vector<std::string> messages;
  std::vector<std::byte> page;
  int received = 0, ended = 0, sent = 0, failed = 0, offered = 0;
  int64_t drop_us = 0;             // that it takes to drop data
  Transport* owns = nullptr;       // the transport whose owner this is
  Transport* trusts = nullptr;     // not null: whoever connects is trusted
  bool full = false;               // no part that may wait finds room
  std::vector<std::string> order;  // of the parts that have found some
};

class TransportTest : public ::testing::Test {
 protected:
  TransportTest() {
    for (size_t i = 0; i < 2; ++i) {
      auto made = Transport::Create(ends_[i]);
      EXPECT_TRUE(made) << (made ? "" : made.error().message);
      transports_[i] = std::move(*made);
      ends_[i].owns = ends_[i].trusts = transports_[i].get();
    }
    const Result<uint16_t> port = transports_[0]->Listen({"127.0.0.1", 0});
    EXPECT_TRUE(port) << (port ? "" : port.error().message);
    port_ = *port;
    out_ = *transports_[1]->Connect({"127.0.0.1", port_});
    transports_[1]->Trust(out_);
  }
  template <class F>
  bool Until(F done) {
    const int64_t end_us = MonotonicUs() + 60'000'000;
    while (!done() && MonotonicUs() < end_us) {
      for (auto& transport : transports_) {
        if (transport) transport->Progress();
      }
    }
    return done();
  }

  End ends_[2];
  std::unique_ptr<Transport> transports_[2];
  ConnectionId out_;
  uint16_t port_ = 0;
};

TEST_F(TransportTest, CarriesMessagesBothWays) {
  transports_[1]->Send(out_, "hello");
  ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
  EXPECT_EQ(ends_[0].messages[0], "hello");
  EXPECT_EQ(ends_[0].last_from, ends_[0].accepted);
  for (const size_t bytes : {0, 3000, 20'000, 100'000, 3 << 20}) {  // in ever other ways of UCX's
    std::string message(bytes, 'x');
    for (size_t i = 0; i < bytes; ++i) message[i] = static_cast<char>(i * 7 + i / 256);
    ends_[1].messages.clear();
    transports_[0]->Send(ends_[0].accepted, message);
    ASSERT_TRUE(Until([&] { return !ends_[1].messages.empty(); })) << bytes;
    EXPECT_TRUE(ends_[1].messages[0] == message) << bytes;
    EXPECT_EQ(ends_[1].last_from, out_);
  }
}

TEST_F(TransportTest, WritesDataWhereTheReceiverSays) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5} << 20}) {
    std::vector<std::byte> page(bytes);
    for (size_t i = 0; i < bytes; ++i) page[i] = static_cast<std::byte>(i * 7 + i / 256);
    transports_[1]->SendData(out_, "head", {page.data(), bytes, 1});
    const int before = ends_[0].received;
    ASSERT_TRUE(Until([&] { return ends_[0].received > before; })) << bytes;
    EXPECT_TRUE(ends_[0].page == page) << bytes;
  }
  EXPECT_TRUE(Until([&] { return ends_[1].sent == 3; }));
}

TEST_F(TransportTest, DropsDataThatNobodyWants) {
  std::vector<std::byte> page(5 << 20);
  transports_[1]->SendData(out_, "drop", {page.data(), page.size(), 1});
  EXPECT_TRUE(Until([&] { return ends_[1].sent == 1; }));
  EXPECT_EQ(ends_[0].received, 0);
}

// Small parts come with their announcement, large ones when they are asked for.
TEST_F(TransportTest, DataThatWaitsHoldsUpItsOwnConnectionOnly) {
  const ConnectionId other = *transports_[1]->Connect({"127.0.0.1", port_});
  for (const size_t bytes : {size_t{64}, size_t{5} << 20}) {
    const std::vector<std::byte> page(bytes, std::byte{3});
    End& to = ends_[0];
    to.full = true;
    to.order.clear();
    const int before = to.received, sent = ends_[1].sent;
    transports_[1]->SendData(out_, "wait", {page.data(), bytes, 1});
    transports_[1]->SendData(out_, "behind", {page.data(), bytes, 1});
    transports_[1]->Send(out_, "said");
    to.messages.clear();
    ASSERT_TRUE(Until([&] { return !to.messages.empty(); }));
    transports_[1]->SendData(other, "beside", {page.data(), bytes, 1});
    ASSERT_TRUE(Until([&] { return to.received == before + 1; })) << bytes;
    EXPECT_EQ(to.order, std::vector<std::string>{"beside"});
    EXPECT_TRUE(to.page == page);
    to.full = false;
    ASSERT_TRUE(Until([&] { return to.received == before + 3; })) << bytes;
    EXPECT_EQ(to.order, (std::vector<std::string>{"beside", "wait", "behind"}));
    EXPECT_TRUE(Until([&] { return ends_[1].sent == sent + 3; }));
  }
}

TEST_F(TransportTest, DataWithALongHeaderIsDropped) {
  const std::vector<std::byte> page(64, std::byte{3});
  for (const size_t more : {1, 0}) {
    transports_[1]->SendData(out_, std::string(Transport::kHeaderBytesMax + more, 'h'),
                             {page.data(), page.size(), 1});
  }
  ASSERT_TRUE(Until([&] { return ends_[0].received == 1 && ends_[1].sent == 2; }));
  EXPECT_EQ(ends_[0].offered, 1);
  EXPECT_EQ(ends_[0].lost, "");
}

// By its other end, which has failed, or by this one, which has parts of both that wait.
TEST_F(TransportTest, OtherConnectionsOutliveOneThatEnds) {
  for (const bool closed : {false, true}) {
    for (const size_t bytes : {size_t{64}, size_t{5} << 20}) {
      End third_end;
      auto third = *Transport::Create(third_end);
      third_end.owns = third.get();
      End& to = ends_[0];
      to.lost.clear();
      to.full = true;
      to.offered = 0;
      to.order.clear();
      const std::vector<std::byte> page(bytes, std::byte{3});
      const ConnectionId ends = *third->Connect({"127.0.0.1", port_});
      const auto until = [&](auto done) {
        return Until([&] {
          if (third) third->Progress();
          return done();
        });
      };
      third->SendData(ends, "wait", {page.data(), bytes, 1});
      third->Send(ends, "from the third");
      ASSERT_TRUE(until([&] { return !to.messages.empty() && to.offered > 0; }));
      const ConnectionId from = to.last_from;
      to.messages.clear();
      transports_[1]->SendData(out_, "wait", {page.data(), bytes, 1});
      transports_[1]->Send(out_, "here");
      ASSERT_TRUE(until([&] { return !to.messages.empty(); }));
      if (closed) {
        transports_[0]->Close(from);
      } else {
        third.reset();
        ASSERT_TRUE(until([&] { return !to.lost.empty(); }));
        EXPECT_EQ(to.lost_from, from);
      }
      to.full = false;
      to.received = 0;
      to.messages.clear();
      ASSERT_TRUE(until([&] { return to.received > 0; })) << closed << " " << bytes;
      EXPECT_EQ(to.order, std::vector<std::string>{"wait"});
      transports_[1]->Send(out_, "still here");
      ASSERT_TRUE(until([&] { return !to.messages.empty(); }));
      to.messages.clear();
    }
  }
}

// All three may be there when the first one's message has the owner close the second.
TEST_F(TransportTest, AMessageOfAClosedConnectionHoldsUpNoOther) {
  ConnectionId out[3];
  for (int i = 0; i < 3; ++i) {
    out[i] = *transports_[1]->Connect({"127.0.0.1", port_});
    ends_[0].messages.clear();
    transports_[1]->Send(out[i], "hello");
    ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
    if (i == 1) ends_[0].closes = ends_[0].last_from;
  }
  ends_[0].messages.clear();
  transports_[1]->Send(out[0], "close");
  transports_[1]->Send(out[1], "of the second");
  transports_[1]->Send(out[2], "of the third");
  const auto came = [&](const char* message) {
    return std::ranges::count(ends_[0].messages, message) == 1;
  };
  EXPECT_TRUE(Until([&] { return came("close") && came("of the third"); }));
}

// The owner's thread sleeps in Wait.
TEST_F(TransportTest, WaitEndsWhenThereIsSomethingToDo) {
  transports_[1]->Send(out_, "hello");
  ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
  ends_[0].messages.clear();
  Transport& here = *transports_[0];
  constexpr int32_t kLongMs = 60'000;
  const int64_t began_us = MonotonicUs();
  std::atomic<bool> woken = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    woken = true;
    here.Wake();
  });
  while (!woken) {
    here.Progress();
    here.Wait(kLongMs);
  }
  other.join();
  std::atomic<bool> over = false;
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    transports_[1]->Send(out_, "hello");
    while (!over) transports_[1]->Progress();
  });
  while (ends_[0].messages.empty() && MonotonicUs() - began_us < int64_t{kLongMs} * 1000) {
    here.Progress();
    here.Wait(kLongMs);
  }
  over = true;
  sender.join();
  EXPECT_LT(MonotonicUs() - began_us, int64_t{kLongMs} * 1000 / 2);
  // And not sooner: a thread that is woken once does not turn for ever.
  here.Wake();
  int turns = 0;
  for (const int64_t end_us = MonotonicUs() + 200'000; MonotonicUs() < end_us; ++turns) {
    here.Progress();
    here.Wait(20);
  }
  EXPECT_LT(turns, 200);
}

// A part that waits is given up with its connection, whose other end has failed; then others come.
TEST_F(TransportTest, DataThatWaitsGoesWithItsConnection) {
  for (int round = 0; round < 12; ++round) {
    const std::vector<std::byte> page(round % 2 == 0 ? 64 : size_t{5} << 20, std::byte{3});
    End& to = ends_[0];
    to.full = true;
    to.received = 0;
    to.lost.clear();
    to.messages.clear();
    to.order.clear();
    const ConnectionId out = *transports_[1]->Connect({"127.0.0.1", port_});
    for (int part = 0; part < 3; ++part) {
      transports_[1]->SendData(out, "wait", {page.data(), page.size(), 1});
    }
    transports_[1]->Send(out, "said");
    ASSERT_TRUE(Until([&] { return !to.messages.empty(); }));
    if (round % 4 < 2) {
      transports_[1].reset();  // it is lost, and room may come before that is noticed
      to.full = round % 8 < 4;
      ASSERT_TRUE(Until([&] { return !to.lost.empty(); }));
      transports_[1] = *Transport::Create(ends_[1]);
    } else {
      transports_[0]->Close(to.last_from);
      ASSERT_TRUE(Until([&] { return !ends_[1].lost.empty(); }));
      ends_[1].lost.clear();
    }
    if (to.full) {
      EXPECT_EQ(to.received, 0) << round;
    }
    to.full = false;
    to.received = 0;
    const ConnectionId next = *transports_[1]->Connect({"127.0.0.1", port_});
    transports_[1]->SendData(next, "head", {page.data(), page.size(), 1});
    ASSERT_TRUE(Until([&] { return to.received == 1; })) << round;
    EXPECT_TRUE(to.page == page);
  }
}

TEST_F(TransportTest, NoticesAnEndThatIsGone) {
  transports_[1]->Send(out_, "hello");
  ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
  transports_[0].reset();
  EXPECT_TRUE(Until([&] { return !ends_[1].lost.empty(); }));
  std::vector<std::byte> page(64);
  transports_[1]->SendData(out_, "head", {page.data(), page.size(), 1});
  EXPECT_TRUE(Until([&] { return ends_[1].failed == 1; }));
}

// After so many turns the end that sends gives up its connection, where what the other has said of
// the data may be on its way. Which end sends: the one that listens, or the other.
class GivenUpTest : public TransportTest,
                    public ::testing::WithParamInterface<std::tuple<int, size_t>> {};
TEST_P(GivenUpTest, EverySendEnds) {
  const auto [turns, sends] = GetParam();
  ASSERT_TRUE(Until([&] { return ends_[0].accepted.valid(); }));
  const ConnectionId to = sends == 0 ? ends_[0].accepted : out_;
  const std::vector<std::byte> page(size_t{1} << 20);
  for (int i = 0; i < 4; ++i) {
    transports_[sends]->SendData(to, "page", {page.data(), page.size(), 1});
  }
  for (int turn = 0; turn < turns; ++turn) {
    transports_[sends]->Progress();
    for (int i = 0; i < 100; ++i) transports_[1 - sends]->Progress();
  }
  transports_[sends]->Close(to);
  EXPECT_TRUE(Until([&] { return ends_[sends].sent + ends_[sends].failed == 4; }));
  for (int i = 0; i < 1000; ++i) transports_[sends]->Progress();  // what comes later does no harm
}
INSTANTIATE_TEST_SUITE_P(After, GivenUpTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 8, 13),
                                            ::testing::Values(0, 1)));

TEST_F(TransportTest, LosesAConnectionToNobody) {
  const auto out = transports_[1]->Connect({"127.0.0.1", 1});
  EXPECT_TRUE(!out || Until([&] { return !ends_[1].lost.empty(); }));
}

// Whoever has not proved anything takes little memory here, and no place.
TEST_F(TransportTest, AStrangerWhoSendsMuchIsLost) {
  ends_[0].trusts = nullptr;
  transports_[1]->Send(out_, std::string(Transport::kStrangerBytesMax, 'x'));
  ASSERT_TRUE(Until([&] { return ends_[0].messages.size() == 1; }));
  EXPECT_EQ(ends_[0].lost, "");
  transports_[1]->Send(out_, std::string(Transport::kStrangerBytesMax + 1, 'x'));
  ASSERT_TRUE(Until([&] { return !ends_[0].lost.empty() && !ends_[1].lost.empty(); }));
  EXPECT_THAT(ends_[0].lost, HasSubstr("16385 bytes, at most 16384"));
  ends_[0].lost.clear();
  out_ = *transports_[1]->Connect({"127.0.0.1", port_});
  for (int i = 0; i < 4; ++i) transports_[1]->Send(out_, std::string(40 << 20, 'x'));
  ASSERT_TRUE(Until([&] { return !ends_[0].lost.empty(); }));
  EXPECT_EQ(ends_[0].messages.size(), 1u);
}

TEST_F(TransportTest, AStrangersDataIsNotOffered) {
  for (const size_t bytes : {size_t{64}, size_t{5} << 20}) {
    ends_[0].trusts = nullptr;
    ends_[0].lost.clear();
    const ConnectionId out = *transports_[1]->Connect({"127.0.0.1", port_});
    const std::vector<std::byte> page(bytes);
    transports_[1]->SendData(out, "head", {page.data(), page.size(), 1});
    ASSERT_TRUE(Until([&] { return !ends_[0].lost.empty(); })) << bytes;
    EXPECT_EQ(ends_[0].offered, 0) << bytes;
    transports_[1]->Close(out);
  }
}

// A partner does not wait for the other side to read its proof before it goes on.
TEST_F(TransportTest, MessagesBehindAProofWaitForIt) {
  ends_[0].trusts = nullptr;
  transports_[1]->Send(out_, "hello");
  ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
  ends_[0].messages.clear();
  const std::vector<std::string> sent = {"proof",
                                         "short",
                                         std::string(3 << 20, 'x'),
                                         "again",
                                         std::string(50 << 20, 'y'),
                                         std::string(40 << 20, 'z')};
  for (const std::string& message : sent) transports_[1]->Send(out_, message);
  const int64_t end_us = MonotonicUs() + 100'000;  // so that several are there at once
  while (MonotonicUs() < end_us) transports_[1]->Progress();
  ASSERT_TRUE(Until([&] { return ends_[0].messages.size() == sent.size(); })) << ends_[0].lost;
  // A long one may come after short ones that were sent later.
  EXPECT_EQ(ends_[0].messages[0], "proof");
  EXPECT_TRUE(std::ranges::is_permutation(ends_[0].messages, sent));
}

// The owner has other partners.
TEST_F(TransportTest, ComesBackFromDataThatNobodyWants) {
  transports_[1]->Send(out_, "hello");
  ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
  constexpr int kTurns = 3, kOnTheWay = 50'000;
  std::atomic<bool> enough = false, over = false;
  const std::vector<std::byte> page(64);
  std::thread flood([&] {
    const int64_t end_us = MonotonicUs() + 30'000'000;
    for (int begun = 0; !enough && MonotonicUs() < end_us; transports_[1]->Progress()) {
      for (; begun - ends_[1].sent < kOnTheWay; ++begun) {
        transports_[1]->SendData(out_, "drop", {page.data(), page.size(), 1});
      }
    }
    over = true;
  });
  ends_[0].drop_us = 50;  // so the next is there before one has been dropped
  int turns = 0;
  while (turns < kTurns && !over) {
    transports_[0]->Progress();
    turns += ends_[0].offered > 1000;
  }
  EXPECT_FALSE(over) << turns << " turns";
  enough = true;
  flood.join();
}

// And the address after the first one, where nobody answers at that.
TEST_F(TransportTest, LooksNamesUpWhileOthersAreServed) {
  ConnectionId named = *transports_[1]->Connect({"localhost", port_});
  EXPECT_FALSE(named.valid()) << "the caller waited for the name";
  ASSERT_TRUE(Until([&] {
    if (!named.valid() || !ends_[1].lost.empty()) {
      ends_[1].lost.clear();
      named = *transports_[1]->Connect({"localhost", port_});
      if (named.valid()) transports_[1]->Send(named, "by name");
    }
    return !ends_[0].messages.empty();
  }));
  EXPECT_EQ(ends_[0].messages[0], "by name");
}

// Canaries: when a write into a page of a closed connection has ended, the page has other owners,
// and a sender that is late does not reach it. Each time the connection is closed a few turns
// later.
TEST_F(TransportTest, NoLateWriteLandsInPagesThatWereGivenBack) {
  constexpr size_t kBytes = size_t{5} << 20;
  constexpr std::byte kCanary{0xa5};
  const std::vector<std::byte> late(kBytes, std::byte{0x11});
  for (int turns = 0; turns < 24; ++turns) {
    ends_[0].messages.clear();
    ends_[0].page.clear();
    const ConnectionId out = *transports_[1]->Connect({"127.0.0.1", port_});
    transports_[1]->Send(out, "hello");
    ASSERT_TRUE(Until([&] { return !ends_[0].messages.empty(); }));
    transports_[1]->SendData(out, "head", {late.data(), kBytes, 1});
    ASSERT_TRUE(Until([&] { return ends_[0].page.size() == kBytes; }));
    for (int i = 0; i < turns; ++i) {
      transports_[0]->Progress();
      transports_[1]->Progress();
    }
    transports_[0]->Close(ends_[0].last_from);
    ASSERT_TRUE(Until([&] { return ends_[0].ended == turns + 1; })) << "a write never ends";
    std::fill(ends_[0].page.begin(), ends_[0].page.end(), kCanary);
    const int64_t end_us = MonotonicUs() + 30'000;
    while (MonotonicUs() < end_us) {
      transports_[1]->Progress();
      transports_[0]->Progress();
    }
    EXPECT_EQ(std::ranges::count(ends_[0].page, kCanary), std::ssize(ends_[0].page)) << turns;
    transports_[1]->Close(out);
  }
  EXPECT_LT(ends_[0].received, 24) << "no write was under way";
}

int tries_to_fail = 0, tries_made = 0;
ucs_status_t CreateWorkerLater(ucp_context_h context, const ucp_worker_params_t* params,
                               ucp_worker_h* worker) {
  if (++tries_made <= tries_to_fail) return UCS_ERR_NO_DEVICE;
  return LoadUcx()->worker_create(context, params, worker);
}

int inits_to_fail = 0;
ucs_status_t InitLater(unsigned major, unsigned minor, const ucp_params_t* params,
                       const ucp_config_t* config, ucp_context_h* context) {
  if (inits_to_fail-- > 0) return UCS_ERR_NO_DEVICE;
  return LoadUcx()->init(major, minor, params, config, context);
}

// As when a network interface goes while UCX opens it.
TEST(Transport, IsOpenedAgainWhenUcxFails) {
  End owner;
  Result<Ucx> ucx = LoadUcx();
  ASSERT_TRUE(ucx);
  ucx->worker_create = &CreateWorkerLater;
  ucx->init = &InitLater;
  inits_to_fail = 1;
  tries_to_fail = 2;
  const auto opened = Transport::CreateWith(*ucx, owner);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE((*opened)->Listen({"127.0.0.1", 0}));
  EXPECT_EQ(tries_made, 3);
  tries_to_fail = 1000;
  const auto fails = Transport::CreateWith(*ucx, owner);
  ASSERT_FALSE(fails);
  EXPECT_THAT(fails.error().message, HasSubstr("a worker"));
}

// A partner that comes back while an engine stops: the request for a connection is anywhere.
TEST(Transport, EndsWhileOthersConnect) {
  End other;
  const auto connects = Transport::Create(other);
  ASSERT_TRUE(connects);
  for (int round = 0; round < 80; ++round) {
    End owner;
    auto listens = Transport::Create(owner);
    ASSERT_TRUE(listens) << listens.error().message;
    const Result<uint16_t> port = (*listens)->Listen({"127.0.0.1", 0});
    ASSERT_TRUE(port);
    for (int i = 0; i < 1 + round % 3; ++i) {
      const auto to = (*connects)->Connect({"127.0.0.1", *port});
      ASSERT_TRUE(to);
      (*connects)->Send(*to, "hello");
    }
    const int64_t end_us = MonotonicUs() + round * 30;
    while (MonotonicUs() < end_us) {
      (*connects)->Progress();
      if (round % 2 == 1) (*listens)->Progress();
    }
    listens->reset();
    (*connects)->Progress();
  }
}

// One that listens at a port, with a connection, beside one that listens at another.
TEST(Ucx, SocketsOfAPortAreShutDownAndCounted) {
  sockaddr_in at[2] = {};
  int listens[2];
  for (int i = 0; i < 2; ++i) {
    at[i].sin_family = AF_INET;
    at[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&at[i]);
    socklen_t size = sizeof(at[i]);
    listens[i] = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(listens[i], address, size), 0);
    ASSERT_EQ(::listen(listens[i], 1), 0);
    ASSERT_EQ(::getsockname(listens[i], address, &size), 0);
  }
  const auto connect = [&](int i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&at[i]), sizeof(at[i])), 0);
    return fd;
  };
  const int client = connect(0), server = ::accept(listens[0], nullptr, nullptr);
  EXPECT_EQ(ShutDownSockets(ntohs(at[0].sin_port)), 1);
  char byte = 0;
  EXPECT_EQ(::recv(client, &byte, 1, 0), 0) << "its other end is shut down";
  EXPECT_LT(::accept(listens[0], nullptr, nullptr), 0);
  const int beside = connect(1);
  for (const int fd : {client, server, beside, listens[0], listens[1]}) ::close(fd);
}

TEST(HostPort, SaysWhatIsWrong) {
  for (const auto& [text, host] : {std::pair("10.0.0.1:7000", "10.0.0.1"),
                                   {"[::1]:7000", "::1"},
                                   {"prefill:7000", "prefill"}}) {
    const auto at = ParseHostPort(text);
    ASSERT_TRUE(at) << text;
    EXPECT_EQ(*at, (HostPort{host, 7000}));
  }
  EXPECT_EQ(ParseHostPort(std::string_view("host:7000").substr(0, 7))->port, 70);
  for (const char* wrong : {"", ":1", "host", "host:", "host:x", "host:70000", "[]:1"}) {
    const auto at = ParseHostPort(wrong);
    ASSERT_FALSE(at) << wrong;
    EXPECT_THAT(at.error().message, HasSubstr("is not HOST:PORT"));
  }
}

}  // namespace
}  // namespace braid::handoff
