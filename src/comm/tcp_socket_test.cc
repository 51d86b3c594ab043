// Two sockets that meet, and whom each of them believes.
#include "comm/tcp_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

int64_t Soon() { return MonotonicUs() + 20'000'000; }

// A connection on the loopback interface.
struct Pair {
  Socket listening = *Listen("127.0.0.1", 0);
  Socket calling = *Connect("127.0.0.1", AddressOf(listening).port, Soon());
  Socket answering = *Accept(listening, Soon());
};

int OptionOf(const Socket& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  ::getsockopt(socket.fd(), level, name, &value, &size);
  return value;
}

TEST(TcpSocket, TwoThatKnowTheSecretLearnWhoCalls) {
  Pair pair;
  Status introduced;
  std::thread caller([&] {
    introduced = Introduce(pair.calling, "xyzzy", {.rank = 3, .channel = 1, .port = 77}, Soon());
  });
  const Result<Caller> met = Meet(pair.answering, "xyzzy", Soon());
  caller.join();
  ASSERT_TRUE(met) << met.error().message;
  EXPECT_TRUE(introduced);
  EXPECT_EQ(met->rank, 3);
  EXPECT_EQ(met->channel, 1);
  EXPECT_EQ(met->port, 77);
}

// A stranger at the address of rank 0 must not get a model's activations.
TEST(TcpSocket, WhoAnswersWithoutTheSecretIsNotBelieved) {
  Pair pair;
  const std::array<std::byte, 1024> anything = {};
  ASSERT_TRUE(SendAll(pair.answering, anything, Soon()));
  const Status introduced = Introduce(pair.calling, "xyzzy", {.rank = 1}, Soon());
  ASSERT_FALSE(introduced);
  EXPECT_EQ(introduced.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(introduced.error().message, HasSubstr("another secret"));
}

TEST(TcpSocket, WhoCallsWithoutTheSecretIsNotBelieved) {
  Pair pair;
  const std::array<std::byte, 1024> anything = {};
  ASSERT_TRUE(SendAll(pair.calling, anything, Soon()));
  const Result<Caller> met = Meet(pair.answering, "xyzzy", Soon());
  ASSERT_FALSE(met);
  EXPECT_EQ(met.error().code, ErrorCode::kInvalid);
}

// A connection to somebody who knows the secret, through one who does not: it has read what both
// say, and changes byte `flip` of the call.
class Relay {
 public:
  static constexpr size_t kCallBytes = sizeof(Caller) + 64;

  explicit Relay(int flip) {
    std::thread caller(
        [&] { introduced = Introduce(ours.calling, "xyzzy", {.rank = 3, .channel = 1}, Soon()); });
    std::thread answer([&] { met = Meet(theirs.answering, "xyzzy", Soon()); });
    EXPECT_TRUE(ReceiveAll(theirs.calling, nonce, Soon()));
    EXPECT_TRUE(SendAll(ours.answering, nonce, Soon()));
    EXPECT_TRUE(ReceiveAll(ours.answering, call, Soon()));
    if (flip >= 0) call[static_cast<size_t>(flip)] ^= std::byte{1};
    EXPECT_TRUE(SendAll(theirs.calling, call, Soon()));
    std::array<std::byte, 32> proof;
    answer.join();
    EXPECT_TRUE(ReceiveAll(theirs.calling, proof, Soon()));
    EXPECT_TRUE(SendAll(ours.answering, proof, Soon()));
    ours.answering = Socket();
    caller.join();
  }

  Pair ours, theirs;
  std::array<std::byte, 32> nonce = {};
  std::array<std::byte, kCallBytes> call = {};
  Status introduced;
  Result<Caller> met = Caller();
};

TEST(TcpSocket, WhatACallerSaysCannotBeChangedOnItsWay) {
  const Relay whole(-1);
  EXPECT_TRUE(whole.introduced);
  ASSERT_TRUE(whole.met);
  EXPECT_EQ(whole.met->rank, 3);
  // Its rank, channel and port, what it drew and the proof.
  for (const int flip : {0, 4, 8, 12, 43, 44, 75}) {
    const Relay changed(flip);
    EXPECT_FALSE(changed.met) << "byte " << flip;
    ASSERT_FALSE(changed.introduced);
    EXPECT_EQ(changed.introduced.error().code, ErrorCode::kInvalid) << "it is told";
  }
}

// A rank that had no time for a slow caller: it may call again.
TEST(TcpSocket, WhoLeavesInPlaceOfAnAnswerMayHaveTheSecret) {
  Pair pair;
  std::thread answer([&] {
    std::array<std::byte, 32> nonce = {};
    std::array<std::byte, Relay::kCallBytes> call;
    EXPECT_TRUE(SendAll(pair.answering, nonce, Soon()));
    EXPECT_TRUE(ReceiveAll(pair.answering, call, Soon()));
    pair.answering = Socket();
  });
  const Status introduced = Introduce(pair.calling, "xyzzy", {.rank = 1}, Soon());
  answer.join();
  ASSERT_FALSE(introduced);
  EXPECT_EQ(introduced.error().code, ErrorCode::kUnavailable);
}

TEST(TcpSocket, WhatACallerSaidCannotBeSaidAgain) {
  const Relay heard(-1);
  Pair pair;
  Result<Caller> met = Caller();
  std::thread answer([&] { met = Meet(pair.answering, "xyzzy", Soon()); });
  std::array<std::byte, 32> nonce;
  EXPECT_TRUE(ReceiveAll(pair.calling, nonce, Soon()));
  EXPECT_NE(nonce, heard.nonce) << "every call has a number of its own";
  EXPECT_TRUE(SendAll(pair.calling, heard.call, Soon()));
  answer.join();
  ASSERT_FALSE(met);
  EXPECT_EQ(met.error().code, ErrorCode::kInvalid);
}

// More than the buffers of both sides hold: the sender waits until the other one reads.
TEST(TcpSocket, ALargeMessageArrivesWholeAtASlowReader) {
  const Pair pair;
  std::vector<std::byte> sent(16 << 20), got(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 256);
  Status sending;
  std::thread sender([&] { sending = SendAll(pair.calling, sent, Soon()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Status receiving = ReceiveAll(pair.answering, got, Soon());
  sender.join();
  EXPECT_TRUE(sending) << sending.error().message;
  ASSERT_TRUE(receiving) << receiving.error().message;
  EXPECT_TRUE(got == sent);
}

TEST(TcpSocket, AConnectionThatTakesOrBringsNothingIsGivenUp) {
  const Pair pair;
  std::vector<std::byte> bytes(64 << 20);
  const int64_t begin_us = MonotonicUs();
  const Status sending = SendAll(pair.calling, bytes, begin_us + 30'000);
  ASSERT_FALSE(sending);
  EXPECT_THAT(sending.error().message, HasSubstr("takes nothing"));
  const Status receiving = ReceiveAll(pair.calling, bytes, MonotonicUs() + 30'000);
  ASSERT_FALSE(receiving);
  EXPECT_THAT(receiving.error().message, HasSubstr("brings nothing"));
  EXPECT_GE(MonotonicUs() - begin_us, 60'000);
}

TEST(TcpSocket, AConnectionThatHasEndedIsAnError) {
  Pair pair;
  pair.answering = Socket();
  std::array<std::byte, 4096> bytes = {};
  const Status receiving = ReceiveAll(pair.calling, bytes, Soon());
  ASSERT_FALSE(receiving);
  EXPECT_EQ(receiving.error().message, "a connection has ended");
  Status sending;
  for (int i = 0; i < 1000 && sending; ++i) sending = SendAll(pair.calling, bytes, Soon());
  ASSERT_FALSE(sending);
  EXPECT_THAT(sending.error().message, HasSubstr("a connection has ended"));
}

// The other side may start later; in the end the error names the address and the reason.
TEST(TcpSocket, WhereNobodyListensItIsTriedUntilTheEnd) {
  const uint16_t port = AddressOf(*Listen("127.0.0.1", 0)).port;
  const int64_t end_us = MonotonicUs() + 120'000;
  Result<Socket> socket = Connect("127.0.0.1", port, end_us);
  ASSERT_FALSE(socket);
  EXPECT_GE(MonotonicUs(), end_us);
  EXPECT_EQ(socket.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(socket.error().message,
            fmt::format("cannot connect to 127.0.0.1:{}: Connection refused", port));
  std::optional<Socket> late;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    late = *Listen("127.0.0.1", port);
  });
  EXPECT_TRUE(Connect("127.0.0.1", port, Soon()));
  other.join();
  EXPECT_EQ(Connect("127.0.0.1", port, 0).error().message,
            fmt::format("127.0.0.1:{} does not answer", port));
}

TEST(TcpSocket, ANameWithoutAddressIsLookedUpUntilTheEnd) {
  const std::string name(300, 'a');  // longer than a name can be
  int64_t end_us = MonotonicUs() + 120'000;
  EXPECT_THAT(Connect(name, 1, end_us).error().message, HasSubstr(name));
  EXPECT_GE(MonotonicUs(), end_us);
  end_us = MonotonicUs() + 120'000;
  EXPECT_THAT(Listen(name, 0, end_us).error().message, HasSubstr(name));
  EXPECT_GE(MonotonicUs(), end_us);
}

TEST(TcpSocket, APortThatIsTakenAndACallerThatDoesNotComeAreErrors) {
  const Pair pair;
  const uint16_t port = AddressOf(pair.listening).port;
  EXPECT_THAT(Listen("127.0.0.1", port).error().message,
              HasSubstr(fmt::format("cannot listen at 127.0.0.1:{}: ", port)));
  EXPECT_FALSE(ListenEverywhere(port));
  const int64_t end_us = MonotonicUs() + 50'000;
  EXPECT_EQ(Accept(pair.listening, end_us).error().message, "nobody connects");
  EXPECT_GE(MonotonicUs(), end_us);
}

TEST(TcpSocket, ListensAtEveryAddress) {
  const Socket listening = *ListenEverywhere(0);
  for (const char* host : {"127.0.0.1", "127.0.1.1", "localhost"}) {
    const Result<Socket> calling = Connect(host, AddressOf(listening).port, Soon());
    ASSERT_TRUE(calling) << host;
    const Socket answering = *Accept(listening, Soon());
    EXPECT_TRUE(IsLoopback(PeerOf(answering).host)) << PeerOf(answering).host;
    EXPECT_EQ(PeerOf(answering).host, AddressOf(*calling).host);
  }
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
  EXPECT_FALSE(IsLoopback("::2"));
}

TEST(TcpSocket, ShortMessagesDoNotWaitForMore) {
  const Pair pair;
  EXPECT_NE(OptionOf(pair.calling, IPPROTO_TCP, TCP_NODELAY), 0);
  EXPECT_NE(OptionOf(pair.answering, IPPROTO_TCP, TCP_NODELAY), 0);
}

TEST(TcpSocket, NoSocketBlocksOrIsLeftToOtherPrograms) {
  const Pair pair;
  for (const Socket* socket : {&pair.listening, &pair.calling, &pair.answering}) {
    EXPECT_NE(::fcntl(socket->fd(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(socket->fd(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(TcpSocket, APortCanBeListenedAtAgainAtOnce) {
  const Pair pair;
  EXPECT_NE(OptionOf(pair.listening, SOL_SOCKET, SO_REUSEADDR), 0);
}

}  // namespace
}  // namespace braid
