// A publisher and its reader, by ZeroMQ.
#include "kv_events/subscriber.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "kv_events/publisher.h"
#include "kv_events/zmq.h"

namespace braid::kv {
namespace {

TEST(Subscriber, ReadsAllThatIsKeptAndEndsWithNothing) {
  if (const auto zmq = Zmq::Load(); !zmq) GTEST_SKIP() << zmq.error().message;
  auto publisher =
      Publisher::Start({.bind = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*", .topic = "t"});
  ASSERT_TRUE(publisher) << publisher.error().message;
  const auto publish = [&](int32_t rank) {
    (*publisher)->OnPrefixes(DpRankId(rank), {.cleared = true, .removed = {}, .stored = {}});
  };
  using Taken = std::pair<int32_t, int32_t>;  // source and rank
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Taken> taken;
  auto subscriber = Subscriber::Start([&](int32_t source, const EventBatch& batch) {
    std::lock_guard lock(mutex);
    taken.emplace_back(source, batch.dp_rank);
    changed.notify_one();
  });
  ASSERT_TRUE(subscriber) << subscriber.error().message;
  const auto wait_for = [&](const std::vector<Taken>& wanted) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return taken.size() >= wanted.size(); });
    EXPECT_EQ(taken, wanted);
    taken.clear();
  };
  const EventSource at{(*publisher)->events_at(), (*publisher)->replay_at()};
  publish(4);
  publish(5);
  (*subscriber)->Add(7, at);
  wait_for({{7, 4}, {7, 5}});
  publish(6);
  wait_for({{7, 6}});
  (*subscriber)->Remove(8);  // there is none
  (*subscriber)->Remove(7);
  wait_for({{7, -1}});
  (*subscriber)->Add(7, at);
  wait_for({{7, 4}, {7, 5}, {7, 6}});
}

}  // namespace
}  // namespace braid::kv
