// A publisher and its reader, by ZeroMQ.
#include "kv_events/subscriber.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <semaphore>
#include <utility>
#include <vector>

#include "kv_events/publisher.h"
#include "kv_events/zmq.h"

namespace braid::kv {
namespace {

class SubscriberTest : public ::testing::Test {
 protected:
  using Taken = std::pair<int32_t, int32_t>;  // source and rank
  void SetUp() override {
    if (const auto zmq = Zmq::Load(); !zmq) GTEST_SKIP() << zmq.error().message;
    auto publisher = Publisher::Start(
        {.bind = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*", .topic = "t"});
    ASSERT_TRUE(publisher) << publisher.error().message;
    publisher_ = *std::move(publisher);
    at_ = {publisher_->events_at(), publisher_->replay_at()};
    auto subscriber = Subscriber::Start([this](int32_t source, const EventBatch& batch) {
      std::lock_guard lock(mutex_);
      taken_.emplace_back(source, batch.dp_rank);
      changed_.notify_one();
    });
    ASSERT_TRUE(subscriber) << subscriber.error().message;
    subscriber_ = *std::move(subscriber);
  }
  void Publish() {
    publisher_->OnPrefixes(DpRankId(++last_), {.cleared = true, .removed = {}, .stored = {}});
  }
  // Batches that are published before the subscription has reached the publisher do not come:
  // publishes until one does.
  void PublishUntilHeard() {
    for (const int32_t most = last_ + 3000; last_ < most;) {
      Publish();
      if (Wait(std::chrono::milliseconds(10), [this] { return !taken_.empty(); })) return;
    }
  }
  template <class F>
  bool Wait(std::chrono::milliseconds most, F holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, holds);
  }
  void Expect(const std::vector<Taken>& wanted) {
    Wait(std::chrono::seconds(60), [&] { return taken_.size() >= wanted.size(); });
    std::lock_guard lock(mutex_);
    EXPECT_EQ(std::exchange(taken_, {}), wanted);
  }
  // The batches from a rank on, of source 7.
  std::vector<Taken> From(int32_t first) const {
    std::vector<Taken> all;
    for (int32_t rank = first; rank <= last_; ++rank) all.emplace_back(7, rank);
    return all;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Taken> taken_;
  int32_t last_ = 3;  // rank that was published
  EventSource at_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Subscriber> subscriber_;
};

TEST_F(SubscriberTest, ReadsAllThatIsKeptAndEndsWithNothing) {
  Publish();
  Publish();
  {
    std::counting_semaphore<> sent(0);  // both have been, when somebody has read the second
    const auto other = *Subscriber::Start([&](int32_t, const EventBatch& batch) {
      if (batch.dp_rank == 5) sent.release();
    });
    other->Add(1, at_);
    sent.acquire();
  }
  subscriber_->Add(9, {.events = "no address", .replay = at_.replay});
  subscriber_->Remove(9);  // which was left out
  subscriber_->Add(7, at_);
  Expect({{7, 4}, {7, 5}});
  Publish();  // though the subscription may not have reached the publisher
  Expect({{7, 6}});
  subscriber_->Remove(8);  // there is none
  subscriber_->Remove(7);
  Expect({{7, -1}});
  subscriber_->Add(7, at_);
  Expect(From(4));
}

TEST_F(SubscriberTest, WithoutAPlaceToAskAtItHearsFromSomeBatchOn) {
  for (int i = 0; i < 3; ++i) Publish();
  subscriber_->Add(3, {.events = at_.events, .replay = ""});
  PublishUntilHeard();
  Publish();
  const Taken newest(3, last_);
  EXPECT_TRUE(Wait(std::chrono::seconds(60),
                   [&] { return !taken_.empty() && taken_.back() == newest; }));
  std::lock_guard lock(mutex_);
  if (taken_.front() != Taken(3, 4)) {  // it has heard the first
    EXPECT_EQ(taken_.front(), Taken(3, -1)) << "what was said before is unknown";
  }
}

// Its questions have not left, and it leaves no file open.
TEST(Subscriber, EndsWhileNobodyAnswers) {
  if (const auto zmq = Zmq::Load(); !zmq) GTEST_SKIP() << zmq.error().message;
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const int64_t before = open();
  {
    std::counting_semaphore<> removed(0);
    auto subscriber = Subscriber::Start([&](int32_t, const EventBatch&) { removed.release(); });
    ASSERT_TRUE(subscriber) << subscriber.error().message;
    const EventSource nobody{.events = "tcp://127.0.0.1:1", .replay = "tcp://127.0.0.1:1"};
    (*subscriber)->Add(1, nobody);
    for (int turn = 0; turn < 2; ++turn) {  // between these it asks
      (*subscriber)->Add(2, nobody);
      (*subscriber)->Remove(2);
      removed.acquire();
    }
  }
  EXPECT_EQ(open(), before);
}

}  // namespace
}  // namespace braid::kv
