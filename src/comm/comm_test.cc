// Groups of threads of this process, and what groups of every kind count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <thread>

#include "base/clock.h"
#include "comm/test_collectives.h"
#include "comm/thread_group.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

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

TEST(ThreadGroup, ErrorsNameRanksByTheirNumbersAmongAll) {
  ThreadGroup pair(2, kLong, Spin::kBrief, {4});
  std::vector<std::byte> sent(8), expected(9);
  std::thread other([&] { (void)pair.rank(0).Broadcast(0, sent); });
  const Status status = pair.rank(1).Broadcast(0, expected);
  other.join();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
  EXPECT_EQ(status.error().message, "rank 4 sent 8 bytes to rank 5, which expected 9");
}

// It sleeps, and does not only look again after a while whether the others have come.
TEST(ThreadGroup, WhoWaitsWakesWhenTheLastOneComes) {
  for (const size_t bytes : {0, 200'000}) {  // the sender of a long part waits for its readers
    int64_t least_us = INT64_MAX;
    const auto errors = OnThreads(2, kLong, [&](Communicator& comm) -> Status {
      std::vector<std::byte> mine(bytes), all(2 * bytes);
      for (int round = 0; round < 10; ++round) {
        if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(10));
        const int64_t start_us = MonotonicUs();
        RETURN_IF_ERROR(comm.AllGather(mine, all));
        if (comm.rank() == 0) least_us = std::min(least_us, MonotonicUs() - start_us);
      }
      return {};
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
    EXPECT_LT(least_us, 70'000) << bytes;
  }
}

TEST(Communicator, CountsItsCallsAndWhatGoesToOthers) {
  Traffic traffic[3];
  const int64_t start_ns = MonotonicNs();
  const auto errors = OnThreads(3, kLong, [&](Communicator& comm) -> Status {
    std::vector<float> values(7);
    std::vector<std::byte> mine(5), all(15);
    RETURN_IF_ERROR(comm.AllGather(mine, all));
    RETURN_IF_ERROR(comm.Broadcast(1, mine));
    RETURN_IF_ERROR(comm.AllReduce(values));
    RETURN_IF_ERROR(comm.Barrier());
    traffic[comm.rank()] = comm.traffic();
    return {};
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  const int64_t took_ns = MonotonicNs() - start_ns;
  for (int32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(traffic[r].calls, 5) << "a sum that all get is two";
    // Of seven values ranks sum 2, 2 and 3: they send the others' and then their own to each.
    const int64_t own = r == 2 ? 3 : 2, values = (7 - own) + 2 * own;
    EXPECT_EQ(traffic[r].bytes, 2 * 5 + (r == 1 ? 2 * 5 : 0) + 4 * values) << r;
    EXPECT_GT(traffic[r].wait_ns, 0);
    EXPECT_LE(traffic[r].wait_ns, took_ns);
  }
  OnThreads(1, kLong, [&](Communicator& comm) {
    const Status status = CheckAll(comm);
    traffic[0] = comm.traffic();
    return status;
  });
  EXPECT_EQ(traffic[0].bytes, 0);
  EXPECT_EQ(traffic[0].wait_ns, 0) << "it waits for nobody";
}

}  // namespace
}  // namespace braid
