// One set of claims for every backend: threads of this process, TCP, and processes of this program
// that mpirun starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <numeric>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "comm/mpi_group.h"
#include "comm/tcp_group.h"
#include "comm/tcp_socket.h"
#include "comm/thread_group.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A rank of a busy machine may not run for some hundred ms: that is not its absence.
constexpr milliseconds kLong{30'000}, kShort{1000};

// Runs `body` on every rank of a group of threads; the errors of its calls, in order of rank.
std::vector<std::string> OnThreads(int32_t size, milliseconds deadline,
                                   const std::function<Status(Communicator&)>& body,
                                   Spin spin = Spin::kBrief) {
  ThreadGroup group(size, deadline, spin);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  std::latch running(size);  // starting a thread is not part of any deadline
  for (int32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      running.arrive_and_wait();
      const Status status = body(group.rank(r));
      if (!status) errors[static_cast<size_t>(r)] = status.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Values that depend on who has them, so that no two messages are alike.
float ValueOf(int32_t rank, size_t i) {
  return static_cast<float>(Rng(static_cast<uint64_t>(rank) * 1'000'003 + i).Normal());
}

Status Differs(const char* call) { return Error{ErrorCode::kInternal, call}; }

Status CheckGather(Communicator& comm, size_t bytes) {
  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<std::byte> mine(bytes, std::byte(comm.rank() + 1)), all(bytes * ranks);
  RETURN_IF_ERROR(comm.AllGather(mine, all));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != std::byte(i / bytes + 1)) return Differs("AllGather");
  }
  return {};
}

// Rank a sends rank b a text of a + 3 b bytes.
Status CheckAllToAll(Communicator& comm) {
  const auto text = [&](int32_t from, int32_t to) {
    return std::vector(static_cast<size_t>(from + 3 * to), std::byte(from * 16 + to));
  };
  std::vector<std::vector<std::byte>> out, in;
  std::vector<Bytes> send;
  std::vector<MutableBytes> receive;
  for (int32_t r = 0; r < comm.size(); ++r) {
    out.push_back(text(comm.rank(), r));
    in.emplace_back(text(r, comm.rank()).size());
  }
  for (size_t r = 0; r < out.size(); ++r) {
    send.emplace_back(out[r]);
    receive.emplace_back(in[r]);
  }
  RETURN_IF_ERROR(comm.AllToAllV(send, receive));
  for (int32_t r = 0; r < comm.size(); ++r) {
    if (in[static_cast<size_t>(r)] != text(r, comm.rank())) return Differs("AllToAllV");
  }
  return {};
}

Status CheckSums(Communicator& comm, size_t count) {
  std::vector<float> values(count), expected(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = ValueOf(comm.rank(), i);
    expected[i] = ValueOf(0, i);
    for (int32_t r = 1; r < comm.size(); ++r) expected[i] += ValueOf(r, i);
  }
  const size_t begin = count * static_cast<size_t>(comm.rank()) / static_cast<size_t>(comm.size());
  const size_t end =
      count * static_cast<size_t>(comm.rank() + 1) / static_cast<size_t>(comm.size());
  std::vector<float> share(end - begin);
  RETURN_IF_ERROR(comm.ReduceScatter(values, share));
  if (!std::equal(share.begin(), share.end(), expected.begin() + static_cast<ptrdiff_t>(begin))) {
    return Differs("ReduceScatter");
  }
  RETURN_IF_ERROR(comm.AllReduce(values));
  return values == expected ? Status() : Differs("AllReduce");
}

Status CheckBroadcast(Communicator& comm, int32_t root) {
  std::vector<std::byte> data(777, std::byte(comm.rank()));
  RETURN_IF_ERROR(comm.Broadcast(root, data));
  const bool same = data == std::vector(777, std::byte(root));
  return same ? Status() : Differs("Broadcast");
}

// Every collective, again and again, in sizes from nothing to more than a backend buffers.
Status CheckAll(Communicator& comm) {
  for (int round = 0; round < 50; ++round) {
    for (const size_t bytes : {1, 64, 4096, 300'000}) RETURN_IF_ERROR(CheckGather(comm, bytes));
    for (const size_t count : {0, 1, 2, 3, 1000}) RETURN_IF_ERROR(CheckSums(comm, count));
    RETURN_IF_ERROR(CheckAllToAll(comm));
    for (int32_t root = 0; root < comm.size(); ++root) RETURN_IF_ERROR(CheckBroadcast(comm, root));
    RETURN_IF_ERROR(comm.Barrier());
  }
  return {};
}

TEST(ThreadGroup, CollectivesGiveEveryRankTheSame) {
  for (const int32_t size : {1, 2, 3, 4, 7}) {
    EXPECT_EQ(OnThreads(size, kLong, CheckAll), std::vector<std::string>(size_t(size))) << size;
  }
  EXPECT_EQ(OnThreads(2, kLong, CheckAll, Spin::kLong), std::vector<std::string>(2));
}

// The parts may change as soon as a call returns, short ones and long ones, by turns.
TEST(ThreadGroup, PartsMayChangeWhenACallReturns) {
  const auto errors = OnThreads(4, kLong, [](Communicator& comm) -> Status {
    for (int32_t round = 0; round < 2000; ++round) {
      // Ranks reach the same call at different times, with short parts after long ones and others.
      const size_t size = round % 7 == 3 ? 20'000 : 1 + static_cast<size_t>(round % 300);
      std::vector<int32_t> mine(size, round), all(4 * size);
      if (round % 4 == comm.rank()) std::this_thread::yield();
      RETURN_IF_ERROR(comm.AllGather(std::as_bytes(std::span<const int32_t>(mine)),
                                     std::as_writable_bytes(std::span(all))));
      std::fill(mine.begin(), mine.end(), -1);
      if (all != std::vector<int32_t>(4 * size, round)) return Differs("stale");
    }
    return {};
  });
  EXPECT_EQ(errors, std::vector<std::string>(4));
}

// A rank that another one does not wait for may be a call behind, and finds what it was sent.
TEST(ThreadGroup, ALateRankGetsThePartsOfItsOwnCall) {
  const auto errors = OnThreads(3, kLong, [](Communicator& comm) -> Status {
    for (int32_t round = 0; round < 300; ++round) {
      std::vector<int32_t> parts[3], got[3];
      std::vector<Bytes> send;
      std::vector<MutableBytes> receive;
      for (int32_t r = 0; r < 3; ++r) {
        parts[r] = {round, 10 * comm.rank() + r};
        got[r].resize(2);
        send.push_back(std::as_bytes(std::span<const int32_t>(parts[r])));
        receive.push_back(std::as_writable_bytes(std::span(got[r])));
      }
      if (round % 50 == 0 && comm.rank() == 2) std::this_thread::sleep_for(milliseconds(2));
      RETURN_IF_ERROR(comm.AllToAllV(send, receive));
      for (int32_t r = 0; r < 3; ++r) {
        if (got[r] != std::vector<int32_t>{round, 10 * r + comm.rank()}) return Differs("stale");
      }
    }
    return {};
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(ThreadGroup, ARankThatSpinsLongWaitsUntilTheDeadlineToo) {
  const auto errors = OnThreads(
      2, kShort,
      [](Communicator& comm) -> Status {
        RETURN_IF_ERROR(comm.Barrier());
        return comm.rank() == 1 ? Status() : comm.Barrier();
      },
      Spin::kLong);
  EXPECT_EQ(errors, (std::vector<std::string>{"no word from rank 1 within 1000 ms", ""}));
}

TEST(ThreadGroup, ARankThatDoesNotComeIsNamedToAllAndEndsTheGroup) {
  const auto errors = OnThreads(3, kShort, [](Communicator& comm) -> Status {
    RETURN_IF_ERROR(comm.Barrier());
    if (comm.rank() == 1) return Error{ErrorCode::kInternal, "left"};
    const Status first = comm.Barrier();
    const Status second = comm.Barrier();
    if (first || second) return Differs("no error");
    return first.error().message == second.error().message ? first : Differs("another error");
  });
  EXPECT_EQ(errors[0], "no word from rank 1 within 1000 ms");
  EXPECT_EQ(errors[1], "left");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(ThreadGroup, ARankThatComesLateGetsTheErrorOfTheOthers) {
  std::latch over(2);
  const auto errors = OnThreads(3, kShort, [&](Communicator& comm) -> Status {
    if (comm.rank() == 2) over.wait();
    Status status = comm.Barrier();
    if (comm.rank() != 2) over.count_down();
    return status;
  });
  EXPECT_EQ(errors, std::vector<std::string>(3, "no word from rank 2 within 1000 ms"));
}

// Nobody waits for the deadline after the group has ended.
TEST(ThreadGroup, WhoWaitsForTheOthersHearsAtOnceThatTheGroupHasEnded) {
  const int64_t start_us = MonotonicUs();
  const auto errors = OnThreads(3, 4 * kLong, [](Communicator& comm) {
    std::vector<std::byte> data(comm.rank() == 1 ? 9 : 8);
    const Status status = comm.Broadcast(0, data);
    return status ? comm.Barrier() : status;  // the sender need not wait for who copies
  });
  EXPECT_LT(MonotonicUs() - start_us, std::chrono::microseconds(kLong).count());
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("expected 9"));
}

// Nobody waits in one group for a rank that another group has given up.
TEST(ThreadGroup, GroupsThatShareTheirEndEndTogether) {
  GroupEnd end;
  ThreadGroup pair(2, kShort, Spin::kBrief, {4, &end});
  ThreadGroup other(2, 4 * kLong, Spin::kBrief, {0, &end});
  const int64_t start_us = MonotonicUs();
  Status waits;
  std::thread waiting([&] { waits = other.rank(0).Barrier(); });
  const Status ended = pair.rank(0).Barrier();
  waiting.join();
  const Status later = other.rank(1).Barrier();
  EXPECT_LT(MonotonicUs() - start_us, std::chrono::microseconds(kLong).count());
  for (const Status& status : {ended, waits, later}) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(status.error().message, "no word from rank 5 within 1000 ms");
  }
}

TEST(ThreadGroup, SizesThatDisagreeAreAnErrorOfAll) {
  const auto errors = OnThreads(2, kLong, [](Communicator& comm) {
    std::vector<std::byte> data(comm.rank() == 0 ? 8 : 9);
    const Status status = comm.Broadcast(0, data);
    return status ? comm.Barrier() : status;  // the sender need not wait for who copies
  });
  EXPECT_EQ(errors, std::vector<std::string>(2, "rank 0 sent 8 bytes to rank 1, which expected 9"));
}

// ---------------------------------------------------------------- TCP

uint16_t FreePort() { return AddressOf(*Listen("127.0.0.1", 0)).port; }

// Ranks that connect by TCP, here as threads, each with a group of its own.
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

// What ends one group of a process ends its others, although the other rank is still there.
TEST(TcpGroup, WhoWaitsInAnotherGroupHearsThatTheProcessHasEnded) {
  constexpr milliseconds kForever{600'000};
  const uint16_t port = FreePort();
  const std::vector<int32_t> members{0, 1};
  std::string error;
  std::latch joined(2), ended(1);
  const int64_t start_us = MonotonicUs();
  const auto play = [&](int32_t rank) {
    const auto group = TcpGroup::Join({.rank = rank,
                                       .size = 2,
                                       .host = "127.0.0.1",
                                       .port = port,
                                       .secret = SameSecret(rank),
                                       .deadline = kForever,
                                       .join_deadline = kLong});
    CHECK(group, "{}", group.error().message);
    const auto first = (*group)->GroupOf(members, 0), second = (*group)->GroupOf(members, 1);
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
    auto group = TcpGroup::Join({.rank = rank,
                                 .size = 3,
                                 .host = "127.0.0.1",
                                 .port = port,
                                 .secret = SameSecret(rank),
                                 .deadline = kForever,
                                 .join_deadline = kLong});
    CHECK(group, "{}", group.error().message);
    if (rank == 1) return;
    const auto without_it = (*group)->GroupOf({0, 2}, 1);
    if (rank == 0) {
      EXPECT_FALSE((*group)->GroupOf({0, 1}, 0)->Barrier());
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

// A process that ends where rank 0 is about to listen.
TEST(TcpGroup, ARankCallsAgainWhenTheFirstOneGoes) {
  auto leaving = std::make_unique<Socket>(*Listen("127.0.0.1", 0));
  const uint16_t port = AddressOf(*leaving).port;
  const auto errors = OnTcp(
      2, kLong, [](Communicator& comm) { return comm.Barrier(); },
      [&](int32_t rank) {
        if (rank == 0) {
          (void)Accept(*leaving, MonotonicUs() + 10'000'000);  // and ends
          leaving.reset();
        }
        return SameSecret(rank);
      },
      port);
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// One that knows the secret and was started for another group, or twice.
TEST(TcpGroup, ACallerOfAnotherGroupKeepsNobodyOut) {
  for (const int32_t claims : {0, 1, 2, 99}) {
    const uint16_t port = FreePort();
    Status introduced;
    const auto errors = OnTcp(
        2, kLong, [](Communicator& comm) { return comm.Barrier(); },
        [&](int32_t rank) {
          if (rank == 1) {
            const int64_t end_us = MonotonicUs() + 10'000'000;
            const Socket stranger = *Connect("127.0.0.1", port, end_us);
            introduced = Introduce(stranger, SameSecret(0), {claims, 9, 1}, end_us);
          }
          return SameSecret(rank);
        },
        port);
    EXPECT_TRUE(introduced);
    EXPECT_EQ(errors, std::vector<std::string>(2)) << claims;
  }
}

TEST(TcpGroup, SizesThatDisagreeAreAnErrorThatNamesThem) {
  const auto errors = OnTcp(
      2, kShort,
      [](Communicator& comm) {
        std::vector<std::byte> data(comm.rank() == 0 ? 8 : 9);
        return comm.Broadcast(0, data);
      },
      SameSecret);
  EXPECT_EQ(errors[1], "rank 0 sent 8 bytes to rank 1, which expected 9");
}

TEST(TcpGroup, ARankWithAnotherSecretStaysOut) {
  const auto errors = OnTcp(
      3, kShort, [](Communicator& comm) { return comm.Barrier(); },
      [](int32_t rank) { return rank == 2 ? "guessed" : "xyzzy"; });
  EXPECT_EQ(errors[2], "the other ranks have another secret than this one");
  EXPECT_EQ(errors[0], "no word from rank 2 within 1000 ms of the start");
}

// ---------------------------------------------------------------- processes

// What a rank that mpirun started does: a role, by name.
Status PlayRole(Communicator& comm, std::string_view role) {
  if (role == "all") return CheckAll(comm);
  RETURN_IF_ERROR(comm.Barrier());
  if (role == "leaves") {
    if (comm.rank() == 1) std::this_thread::sleep_for(3 * kShort);
    const Status status = comm.Barrier();
    const bool named = !status && status.error().message == "no word from rank 1 within 1000 ms";
    return comm.rank() == 1 || named ? Status() : Differs("not named");
  }
  std::vector<std::byte> data(comm.rank() == 0 ? 8 : 9);
  const Status status = comm.Broadcast(0, data);
  const bool told =
      comm.rank() != 1 ||
      (!status && status.error().message == "rank 0 sent 8 bytes to rank 1, which expected 9");
  return told ? Status() : Differs("not told");
}

// Runs in the processes that mpirun starts (module.cmake).
TEST(MpiRank, PlaysItsRole) {
  const char* role = std::getenv("BRAID_TEST_MPI_ROLE");
  if (role == nullptr) GTEST_SKIP() << "only under mpirun";
  const bool waits = std::string_view(role) == "leaves";
  auto comm = JoinMpiGroup(waits ? kShort : kLong);
  ASSERT_TRUE(comm) << comm.error().message;
  EXPECT_EQ((*comm)->size(), 3);
  const Status status = PlayRole(**comm, role);
  EXPECT_TRUE(status) << status.error().message;
  if (status) std::puts("as it should be");
  if (std::string_view(role) == "all") return;
  // A group that has ended is left without ceremony: mpirun then ends every rank. So this one waits
  // until the others have spoken.
  std::fflush(stdout);
  std::this_thread::sleep_for(5 * kShort);
  std::_Exit(0);
}

}  // namespace
}  // namespace braid
