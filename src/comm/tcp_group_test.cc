// Ranks that connect by TCP, here as threads, each with a group of its own.
#include "comm/tcp_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "comm/tcp_socket.h"
#include "comm/test_collectives.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

uint16_t FreePort() { return AddressOf(*Listen("127.0.0.1", 0)).port; }

// Runs `body` on every rank of a group of all; the errors of its calls, in order of rank.
std::vector<std::string> OnTcp(int32_t size, milliseconds deadline,
                               const std::function<Status(Communicator&)>& body,
                               const std::function<std::string(int32_t)>& secret_of,
                               uint16_t port = FreePort()) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  std::vector<int32_t> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  for (int32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      std::string& error = errors[static_cast<size_t>(r)];
      const auto group = TcpGroup::Join({.rank = r,
                                         .size = size,
                                         .host = "127.0.0.1",
                                         .port = port,
                                         .secret = secret_of(r),
                                         .deadline = deadline,
                                         .join_deadline = deadline});
      if (!group) {
        error = group.error().message;
        return;
      }
      const std::unique_ptr<Communicator> all = (*group)->GroupOf(members, 0);
      const Status status = body(*all);
      if (!status) error = status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}
std::string SameSecret(int32_t) { return "xyzzy"; }

TEST(TcpGroup, CollectivesGiveEveryRankTheSame) {
  for (const int32_t size : {1, 2, 4}) {
    EXPECT_EQ(OnTcp(size, kLong, CheckAll, SameSecret), std::vector<std::string>(size_t(size)));
  }
}

// As where a machine's own table has its name at an address that no other machine reaches.
TEST(TcpGroup, RanksMeetThatKnowTheFirstByDifferentAddresses) {
  const std::vector<int32_t> members{0, 1, 2};
  const char* const hosts[] = {"127.0.1.1", "127.0.0.1", "127.0.0.3"};
  const uint16_t port = FreePort();
  std::vector<std::string> errors(members.size());
  std::vector<std::thread> threads;
  for (const int32_t r : members) {
    threads.emplace_back([&, r] {
      const auto group = TcpGroup::Join({.rank = r,
                                         .size = 3,
                                         .host = hosts[r],
                                         .port = port,
                                         .elsewhere = true,
                                         .secret = SameSecret(r),
                                         .deadline = kLong,
                                         .join_deadline = kLong});
      const Status status = group ? CheckAll(*(*group)->GroupOf(members, 0)) : group.error();
      if (!status) errors[static_cast<size_t>(r)] = status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(TcpGroup, ARankThatDoesNotComeIsNamedToAllAndEndsTheGroup) {
  std::latch over(2);
  const auto errors = OnTcp(
      3, kShort,
      [&](Communicator& comm) -> Status {
        RETURN_IF_ERROR(comm.Barrier());
        if (comm.rank() == 1) {
          over.wait();
          return Error{ErrorCode::kInternal, "slept"};
        }
        const Status first = comm.Barrier();
        const Status second = comm.Barrier();
        over.count_down();
        if (first || second) return Differs("no error");
        return first.error().message == second.error().message ? first : Differs("another error");
      },
      SameSecret);
  EXPECT_EQ(errors[0], "no word from rank 1 within 1000 ms");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(TcpGroup, ARankThatLeavesIsNamedAtOnce) {
  const auto errors = OnTcp(
      3, kLong,
      [&](Communicator& comm) -> Status {
        RETURN_IF_ERROR(comm.Barrier());
        return comm.rank() == 1 ? Status() : comm.Barrier();
      },
      SameSecret);
  for (const size_t rank : {0, 2}) EXPECT_THAT(errors[rank], HasSubstr("no word from rank 1"));
}

// Whoever comes late meets the closed connections of all others, and still names the right one.
TEST(TcpGroup, ARankThatLeavesIsNamedWhoeverNoticesFirst) {
  using Delays = std::array<milliseconds, 4>;
  constexpr milliseconds kSoon{30}, kLate{80}, kLast{150};
  for (const Delays& delays : {Delays{kSoon, {}, kLate, kLast}, Delays{kLast, {}, kSoon, kLate},
                               Delays{kLate, {}, kLast, kSoon}}) {
    const auto errors = OnTcp(
        4, kLong,
        [&](Communicator& comm) -> Status {
          RETURN_IF_ERROR(comm.Barrier());
          if (comm.rank() == 1) return {};
          std::this_thread::sleep_for(delays[static_cast<size_t>(comm.rank())]);
          return comm.Barrier();
        },
        SameSecret);
    for (const size_t rank : {0, 2, 3}) EXPECT_THAT(errors[rank], HasSubstr("no word from rank 1"));
  }
}

// So is a rank that is in the middle of a long message.
TEST(TcpGroup, ARankThatLeavesInTheMiddleOfAMessageIsNamed) {
  const auto errors = OnTcp(
      3, kLong,
      [&](Communicator& comm) -> Status {
        std::vector<std::byte> data(4'000'000);
        RETURN_IF_ERROR(comm.Barrier());
        if (comm.rank() == 1) return {};
        if (comm.rank() == 2) std::this_thread::sleep_for(milliseconds(100));
        std::vector<std::byte> all(3 * data.size());
        return comm.AllGather(data, all);
      },
      SameSecret);
  for (const size_t rank : {0, 2}) EXPECT_THAT(errors[rank], HasSubstr("no word from rank 1"));
}

TEST(TcpGroup, AStrangerWhoSaysNothingKeepsNobodyOut) {
  const uint16_t port = FreePort();
  std::optional<Socket> stranger;
  const auto errors = OnTcp(
      2, kLong, [](Communicator& comm) { return comm.Barrier(); },
      [&](int32_t rank) {
        if (rank == 1) stranger = *Connect("127.0.0.1", port, MonotonicUs() + 10'000'000);
        return SameSecret(rank);
      },
      port);
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

std::unique_ptr<TcpGroup> JoinHere(int32_t rank, int32_t size, uint16_t port,
                                   milliseconds deadline) {
  auto group = TcpGroup::Join({.rank = rank,
                               .size = size,
                               .host = "127.0.0.1",
                               .port = port,
                               .secret = SameSecret(rank),
                               .deadline = deadline,
                               .join_deadline = kLong});
  CHECK(group, "{}", group.error().message);
  return std::move(*group);
}

// What ends one group of a process ends its others, although the other rank is still there.
TEST(TcpGroup, WhoWaitsInAnotherGroupHearsThatTheProcessHasEnded) {
  constexpr milliseconds kForever{600'000};
  const uint16_t port = FreePort();
  const std::vector<int32_t> members{0, 1};
  std::string error;
  std::latch joined(2), ended(1);
  const int64_t start_us = MonotonicUs();
  const auto play = [&](int32_t rank) {
    const auto group = JoinHere(rank, 2, port, kForever);
    const auto first = group->GroupOf(members, 0), second = group->GroupOf(members, 1);
    joined.arrive_and_wait();
    std::thread waits([&] {
      if (rank == 1) {
        error = first->Barrier().error().message;
        ended.count_down();
      }
    });
    std::this_thread::sleep_for(milliseconds(50));
    std::vector<std::byte> data(rank == 0 ? 8 : 9);
    EXPECT_EQ(second->Broadcast(0, data).ok(), rank == 0);
    ended.wait();
    waits.join();
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_LT(MonotonicUs() - start_us, std::chrono::microseconds(kForever).count() / 4);
  EXPECT_EQ(error, "rank 0 sent 8 bytes to rank 1, which expected 9");
}

// So does a rank that is in the other group alone, and it names the one that is missing.
TEST(TcpGroup, WhoIsInAnotherGroupHearsWhoIsMissing) {
  constexpr milliseconds kForever{600'000};
  const uint16_t port = FreePort();
  std::string error;
  std::latch over(2);
  const auto play = [&](int32_t rank) {
    const auto group = JoinHere(rank, 3, port, kForever);
    if (rank == 1) return;
    const auto without_it = group->GroupOf({0, 2}, 1);
    if (rank == 0) {
      EXPECT_FALSE(group->GroupOf({0, 1}, 0)->Barrier());
      EXPECT_FALSE(without_it->Barrier());
    } else {
      error = without_it->Barrier().error().message;
    }
    over.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (const int32_t rank : {0, 1, 2}) threads.emplace_back([&, rank] { play(rank); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(error, HasSubstr("no word from rank 1"));
}

// A process that ends where rank 0 is about to listen, at once or when it has heard who calls.
TEST(TcpGroup, ARankCallsAgainWhenTheFirstOneGoes) {
  for (const bool hears : {false, true}) {
    auto leaving = std::make_unique<Socket>(*Listen("127.0.0.1", 0));
    const uint16_t port = AddressOf(*leaving).port;
    const auto errors = OnTcp(
        2, kLong, [](Communicator& comm) { return comm.Barrier(); },
        [&](int32_t rank) {
          if (rank == 0) {
            const int64_t end_us = MonotonicUs() + 10'000'000;
            const Result<Socket> caller = Accept(*leaving, end_us);
            std::array<std::byte, 32> nonce = {};
            std::array<std::byte, sizeof(Caller) + 64> call;
            if (hears && caller) {
              EXPECT_TRUE(SendAll(*caller, nonce, end_us));
              EXPECT_TRUE(ReceiveAll(*caller, call, end_us));
            }
            leaving.reset();
          }
          return SameSecret(rank);
        },
        port);
    EXPECT_EQ(errors, std::vector<std::string>(2)) << hears;
  }
}

// One that knows the secret and was started for another group, or twice.
TEST(TcpGroup, ACallerOfAnotherGroupKeepsNobodyOut) {
  constexpr Caller kStrangers[] = {{0, 0, 1},  {-1, 0, 1}, {2, 0, 1},
                                   {99, 0, 1}, {1, -1, 1}, {1, TcpGroup::kChannels, 1}};
  for (const Caller& claims : kStrangers) {
    const uint16_t port = FreePort();
    Status introduced;
    const auto errors = OnTcp(
        2, kLong, [](Communicator& comm) { return comm.Barrier(); },
        [&](int32_t rank) {
          if (rank == 1) {
            const int64_t end_us = MonotonicUs() + 10'000'000;
            const Socket stranger = *Connect("127.0.0.1", port, end_us);
            introduced = Introduce(stranger, SameSecret(0), claims, end_us);
          }
          return SameSecret(rank);
        },
        port);
    EXPECT_TRUE(introduced);
    EXPECT_EQ(errors, std::vector<std::string>(2)) << claims.rank << ' ' << claims.channel;
  }
}

TEST(TcpGroup, SizesThatDisagreeAreAnErrorThatNamesThem) {
  const auto errors = OnTcp(
      2, kLong,
      [](Communicator& comm) {
        std::vector<std::byte> data(comm.rank() == 0 ? 8 : 9);
        const Status status = comm.Broadcast(0, data);
        if (comm.rank() == 0) return comm.Barrier();  // it hears that the other has given up
        EXPECT_EQ(status.error().code, ErrorCode::kInternal);
        return comm.Barrier();
      },
      SameSecret);
  EXPECT_EQ(errors[1], "rank 0 sent 8 bytes to rank 1, which expected 9");
  EXPECT_THAT(errors[0], HasSubstr("no word from rank"));
}

TEST(TcpGroup, RanksOfAGroupOfSomeHaveNumbersOfTheirOwn) {
  const uint16_t port = FreePort();
  std::string errors[3];
  std::latch over(3);
  const auto play = [&](int32_t rank) {
    const auto group = JoinHere(rank, 3, port, kLong);
    if (rank > 0) {
      const auto pair = group->GroupOf({1, 2}, 4);
      EXPECT_EQ(pair->rank(), rank - 1);
      EXPECT_TRUE(CheckAllToAll(*pair));
      EXPECT_TRUE(CheckSums(*pair, 5));
      std::vector<std::byte> data(rank == 1 ? 8 : 9);
      const Status status = pair->Broadcast(0, data);
      if (!status) errors[rank] = status.error().message;
    }
    over.arrive_and_wait();
  };
  std::vector<std::thread> threads;
  for (const int32_t rank : {0, 1, 2}) threads.emplace_back([&, rank] { play(rank); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors[2], "rank 1 sent 8 bytes to rank 2, which expected 9");
}

TEST(TcpGroup, WhoStartsAloneNamesTheOthersAndHasASecret) {
  TcpOptions options{.rank = 0,
                     .size = 4,
                     .host = "127.0.0.1",
                     .port = FreePort(),
                     .secret = "xyzzy",
                     .join_deadline = milliseconds(50)};
  Result<std::unique_ptr<TcpGroup>> group = TcpGroup::Join(options);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(group.error().message, "no word from rank 1, 2, 3 within 50 ms of the start");
  options.rank = 2;
  group = TcpGroup::Join(options);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kUnavailable);
  options.secret.clear();
  group = TcpGroup::Join(options);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kInvalid);
}

// A first rank of two that does `body` with its group, and the connections of the other, which the
// test plays.
class FirstOfTwo {
 public:
  explicit FirstOfTwo(const std::function<Status(Communicator&)>& body)
      : thread_([this, body] {
          const auto group = TcpGroup::Join({.rank = 0,
                                             .size = 2,
                                             .host = "127.0.0.1",
                                             .port = port_,
                                             .secret = "xyzzy",
                                             .deadline = kLong,
                                             .join_deadline = kLong});
          const Status status = group ? body(*(*group)->GroupOf({0, 1}, 0)) : group.error();
          if (!status) error_ = status.error().message;
        }) {}
  ~FirstOfTwo() {
    if (thread_.joinable()) thread_.join();
  }
  // Calls it for a channel.
  Socket Call(int32_t channel) const {
    Socket socket = *Connect("127.0.0.1", port_, EndUs());
    const Status met = Introduce(socket, "xyzzy", {1, channel, 9}, EndUs());
    EXPECT_TRUE(met) << "channel " << channel << ": " << met.error().message;
    return socket;
  }
  std::string Join() {
    thread_.join();
    return error_;
  }
  static int64_t EndUs() { return MonotonicUs() + std::chrono::microseconds(kLong).count(); }

 private:
  const uint16_t port_ = FreePort();
  std::string error_;
  std::thread thread_;
};

TEST(TcpGroup, ARankThatCallsTwiceIsCountedOnce) {
  FirstOfTwo first([](Communicator&) { return Status(); });
  std::vector<Socket> sockets;
  for (const int32_t channel : {0, 0, 3, 3, 1, 2, 4, 5}) sockets.push_back(first.Call(channel));
  EXPECT_EQ(first.Join(), "");
}

// It waits until a message that it has begun is taken, and what is on its way to it is no reason
// that its last word does not arrive.
TEST(TcpGroup, WhoGivesUpTellsARankThatReadsSlowly) {
  constexpr size_t kBytes = 10'000'000, kAtOnce = 1 << 16;
  FirstOfTwo first([](Communicator& comm) {
    std::vector<std::byte> mine(kBytes), all(2 * kBytes);
    return comm.AllGather(mine, all);
  });
  Socket socket = first.Call(0);
  const int at_once = kAtOnce;
  ASSERT_EQ(::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &at_once, sizeof(at_once)), 0);
  std::vector<Socket> others;
  for (const int32_t channel : {1, 2, 3, 4, 5}) others.push_back(first.Call(channel));
  std::vector<std::byte> addresses(2 * 66);
  ASSERT_TRUE(ReceiveAll(socket, addresses, first.EndUs()));
  // The header of a message of another size, and more of it than is looked at.
  std::vector<uint64_t> wrong(10'000);
  wrong[0] = 1;
  wrong[1] = 7;
  ASSERT_TRUE(SendAll(socket, std::as_bytes(std::span(std::as_const(wrong))), first.EndUs()));
  std::this_thread::sleep_for(milliseconds(20));
  std::vector<std::byte> frame(16 + kBytes);
  const MutableBytes all(frame);
  ASSERT_TRUE(ReceiveAll(socket, all.first(kBytes - 1'000'000), first.EndUs()));
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(ReceiveAll(socket, all.subspan(kBytes - 1'000'000), first.EndUs()));
  uint64_t farewell[2] = {};
  const Status heard =
      ReceiveAll(socket, std::as_writable_bytes(std::span(farewell)), first.EndUs());
  EXPECT_TRUE(heard) << heard.error().message;
  EXPECT_EQ(farewell[0], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(farewell[1], 1u) << "whom it misses";
  socket = Socket();
  others.clear();
  EXPECT_EQ(first.Join(), "rank 1 sent 7 bytes to rank 0, which expected 10000000");
}

TEST(TcpGroup, AHeaderOfZerosEndsTheGroupAtOnce) {
  FirstOfTwo first([](Communicator& comm) { return comm.Barrier(); });
  std::vector<Socket> sockets;
  for (const int32_t channel : {0, 1, 2, 3, 4, 5}) sockets.push_back(first.Call(channel));
  const std::array<std::byte, 16> zeros = {};
  ASSERT_TRUE(SendAll(sockets[0], zeros, first.EndUs()));
  std::vector<std::byte> all(2 * 66 + 2 * zeros.size());  // addresses, its message, its last word
  EXPECT_TRUE(ReceiveAll(sockets[0], all, first.EndUs()));
  sockets.clear();
  EXPECT_EQ(first.Join(),
            "rank 1 sent 0 bytes in message 0 instead of 1 to rank 0, which expected 0");
}

TEST(TcpGroup, ARankWithAnotherSecretStaysOut) {
  const auto errors = OnTcp(
      3, kShort, [](Communicator& comm) { return comm.Barrier(); },
      [](int32_t rank) { return rank == 2 ? "guessed" : "xyzzy"; });
  EXPECT_EQ(errors[2], "the other ranks have another secret than this one");
  EXPECT_EQ(errors[0], "no word from rank 2 within 1000 ms of the start");
}

}  // namespace
}  // namespace braid
