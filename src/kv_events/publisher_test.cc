// What gateways get, by ZeroMQ: each batch once and in order, and again what is kept of them.
#include "kv_events/publisher.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kv_events/batch.h"
#include "kv_events/frames.h"
#include "kv_events/msgpack.h"
#include "kv_events/zmq.h"

namespace braid::kv {
namespace {

constexpr uint64_t kEnd = ~uint64_t{0};  // the number that ends an answer

// A gateway's sockets.
class Gateway {
 public:
  Gateway(const Zmq& zmq, const Publisher& publisher)
      : zmq_(zmq), context_(zmq.ctx_new()), buffer_(size_t{32} << 20) {
    events_ = Connect(Zmq::kSub, publisher.events_at());
    asks_ = Connect(Zmq::kDealer, publisher.replay_at());
  }
  ~Gateway() {
    zmq_.close(events_);
    zmq_.close(asks_);
    zmq_.ctx_term(context_);
  }
  // The numbers of an answer to a question for batches from one on, without its end.
  std::vector<uint64_t> Ask(uint64_t from) {
    const NumberFrame number = EncodeNumber(from);
    Send({"", {number.data(), number.size()}});
    std::vector<uint64_t> numbers;
    while (true) {
      const std::vector<std::string> frames = Receive(asks_, 30'000);
      if (frames.size() != 3 || !frames[0].empty()) return {kEnd};
      const uint64_t got = DecodeNumber(frames[1]);
      EXPECT_EQ(got == kEnd, frames[2].empty());
      if (got == kEnd) return numbers;
      numbers.push_back(got);
      if (frames[2].size() < 1024) ranks.push_back(DecodeBatch(frames[2])->dp_rank);
    }
  }
  void Send(const std::vector<std::string>& frames) {
    for (const std::string& frame : frames) {
      const bool more = &frame != &frames.back();
      zmq_.send(asks_, frame.data(), frame.size(), more ? Zmq::kSendMore : 0);
    }
  }
  // The next message that comes by itself; none in time: empty.
  std::vector<std::string> Next(long most_ms) { return Receive(events_, most_ms); }

  std::vector<int32_t> ranks;  // of the small batches of answers

 private:
  void* Connect(int kind, const std::string& address) {
    void* socket = zmq_.socket(context_, kind);
    const int no_linger = 0;
    zmq_.setsockopt(socket, Zmq::kLinger, &no_linger, sizeof(no_linger));
    if (kind == Zmq::kSub) zmq_.setsockopt(socket, Zmq::kSubscribe, "", 0);
    EXPECT_EQ(zmq_.connect(socket, address.c_str()), 0) << address;
    return socket;
  }
  std::vector<std::string> Receive(void* socket, long most_ms) {
    Zmq::PollItem item{socket, -1, Zmq::kPollIn, 0};
    std::vector<std::string> frames;
    if (zmq_.poll(&item, 1, most_ms) == 1) ReceiveFrames(zmq_, socket, buffer_, &frames);
    return frames;
  }

  const Zmq& zmq_;
  void* const context_;
  std::vector<char> buffer_;
  void *events_ = nullptr, *asks_ = nullptr;
};

class PublisherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Zmq> zmq = Zmq::Load();
    if (!zmq) GTEST_SKIP() << zmq.error().message;
    zmq_ = *std::move(zmq);
    auto made = Publisher::Start(
        {.bind = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*", .topic = "topic"});
    ASSERT_TRUE(made) << made.error().message;
    publisher_ = *std::move(made);
    gateway_ = std::make_unique<Gateway>(zmq_, *publisher_);
  }
  void Publish(int32_t rank, size_t hashes = 0) {
    PrefixChanges changes;
    changes.removed.assign(hashes, kEnd);
    changes.cleared = hashes == 0;
    publisher_->OnPrefixes(DpRankId(rank), std::move(changes));
  }
  // Whoever subscribes hears from some batch on: the first one. They have the ranks 0, 1, …
  std::vector<std::string> PublishUntilHeard(int32_t* published) {
    std::vector<std::string> frames;
    while (frames.empty() && *published < 3000) {
      Publish((*published)++);
      frames = gateway_->Next(10);
    }
    return frames;
  }

  Zmq zmq_{};
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(PublisherTest, EachBatchComesOnceWithItsTopicAndNumber) {
  int32_t published = 0;
  std::vector<std::string> frames = PublishUntilHeard(&published);
  for (int i = 0; i < 3; ++i) Publish(published++);
  ASSERT_EQ(frames.size(), 3u);
  for (uint64_t number = DecodeNumber(frames[1]); number < static_cast<uint64_t>(published);) {
    ASSERT_EQ(frames.size(), 3u) << number;
    EXPECT_EQ(frames[0], "topic");
    EXPECT_EQ(DecodeNumber(frames[1]), number);
    EXPECT_EQ(DecodeBatch(frames[2])->dp_rank, static_cast<int32_t>(number));
    MsgpackReader reader(frames[2]);
    (void)reader.Next();  // the list's head
    EXPECT_NEAR(reader.Next()->real, static_cast<double>(UnixSeconds()), 100);
    if (++number < static_cast<uint64_t>(published)) frames = gateway_->Next(30'000);
  }
}

TEST_F(PublisherTest, AnAnswerHasWhatIsKeptFromANumberOn) {
  ::testing::internal::CaptureStdout();  // the log
  for (int32_t rank = 10; rank < 14; ++rank) Publish(rank);
  EXPECT_EQ(gateway_->Ask(0), (std::vector<uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(gateway_->Ask(2), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(gateway_->Ask(4), std::vector<uint64_t>());
  EXPECT_EQ(gateway_->ranks, (std::vector<int32_t>{10, 11, 12, 13, 12, 13}));
  // Nobody gets an answer to these.
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {""}, {"", "1"}, {"x", "12345678"}, {"", "12345678", ""}, {"", std::string(9, 0)}}) {
    gateway_->Send(wrong);
  }
  EXPECT_EQ(gateway_->Ask(3), std::vector<uint64_t>{3});
  publisher_.reset();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << "no batch was left out";
}

// 10,000 of them, and 64 MiB.
TEST_F(PublisherTest, TheOldestAreKeptNoMore) {
  for (int32_t rank = 0; rank < 10'003; ++rank) Publish(rank);
  const std::vector<uint64_t> numbers = gateway_->Ask(0);
  ASSERT_EQ(numbers.size(), 10'000u);
  EXPECT_EQ(numbers.front(), 3u);
  EXPECT_EQ(numbers.back(), 10'002u);
  constexpr size_t kHashes = (size_t{20} << 20) / 9;  // of which three have room, and small ones
  for (int i = 0; i < 4; ++i) Publish(0, kHashes);
  Publish(0);
  EXPECT_EQ(gateway_->Ask(0), (std::vector<uint64_t>{10'004, 10'005, 10'006, 10'007}));
}

// While the thread is at a large batch, more come than may wait. Whatever was left out, the numbers
// of those that come later tell.
TEST_F(PublisherTest, BatchesThatFindNoRoomLeaveOutTheirNumbers) {
  constexpr int32_t kMany = 100'050;
  Publish(0, 5'000'000);
  for (int32_t rank = 1; rank <= kMany; ++rank) Publish(rank);
  (void)gateway_->Ask(kEnd - 1);  // it is answered when nothing waits any more
  gateway_->ranks.clear();
  Publish(kMany + 1);
  EXPECT_EQ(gateway_->Ask(kMany + 1), std::vector<uint64_t>{kMany + 1});
  EXPECT_EQ(gateway_->ranks, std::vector<int32_t>{kMany + 1});
}

// So that it takes no more of the engine's memory.
TEST_F(PublisherTest, AGatewayThatDoesNotReadMissesBatches) {
  constexpr int32_t kMany = 30'000, kLarge = 5000, kLast = 5001;  // the others are their ranks
  int32_t published = 0;
  ASSERT_FALSE(PublishUntilHeard(&published).empty());
  for (int32_t i = 0; i < kMany; ++i) Publish(kLarge, 450);
  (void)gateway_->Ask(kEnd - 1);  // it is answered when nothing waits any more
  int32_t heard = 0;
  for (int32_t rank = 0; rank != kLast;) {
    const std::vector<std::string> frames = gateway_->Next(100);
    if (frames.empty()) Publish(kLast);
    if (frames.size() == 3) rank = DecodeBatch(frames[2])->dp_rank;
    heard += !frames.empty() && rank == kLarge;
  }
  EXPECT_GT(heard, 10'000);
  EXPECT_LT(heard, kMany);
}

// A router's first frame names the sender.
TEST(Frames, FourOfAMessageAreReadAndThoseThatDoNotFitAreEmpty) {
  const Result<Zmq> zmq = Zmq::Load();
  if (!zmq) GTEST_SKIP() << zmq.error().message;
  void* const context = zmq->ctx_new();
  void* const to = zmq->socket(context, Zmq::kRouter);
  void* const from = zmq->socket(context, Zmq::kDealer);
  ASSERT_EQ(zmq->bind(to, "inproc://frames"), 0);
  ASSERT_EQ(zmq->connect(from, "inproc://frames"), 0);
  const std::vector<std::string> sent = {"12345678", "123456789", "", "late", "later"};
  for (int message = 0; message < 2; ++message) {
    for (const std::string& frame : sent) {
      const int more = &frame == &sent.back() ? 0 : Zmq::kSendMore;
      zmq->send(from, frame.data(), frame.size(), more);
    }
  }
  std::vector<char> buffer(8);
  std::vector<std::string> frames;
  for (int message = 0; message < 2; ++message) {
    ASSERT_TRUE(ReceiveFrames(*zmq, to, buffer, &frames));
    ASSERT_EQ(frames.size(), 4u);
    frames.erase(frames.begin());
    EXPECT_EQ(frames, (std::vector<std::string>{"12345678", "", ""}));
  }
  EXPECT_FALSE(ReceiveFrames(*zmq, to, buffer, &frames));
  zmq->close(to);
  zmq->close(from);
  zmq->ctx_term(context);
}

TEST(PublisherOptions, SayWhichFlagDoesNotFit) {
  struct Case {
    PublisherOptions options;
    std::string field;  // empty: they fit
  };
  const std::string at = "tcp://127.0.0.1:";
  const std::vector<Case> cases = {
      {{}, ""},
      {{.bind = at + "1"}, ""},
      {{.bind = at + "65535", .replay = at + "*", .topic = "t"}, ""},
      {{.connect = "tcp://[::1]:5557", .replay = "ipc:///tmp/x"}, ""},
      {{.bind = "ipc:///tmp/x:0"}, ""},
      {{.bind = at + "0"}, "kv_events"},
      {{.bind = at + "65536"}, "kv_events"},
      {{.bind = at}, "kv_events"},
      {{.bind = at + "1x"}, "kv_events"},
      {{.bind = at + "99999999999"}, "kv_events"},
      {{.bind = "tcp://127.0.0.1"}, "kv_events"},
      {{.connect = at + "0"}, "kv_events_connect"},
      {{.bind = at + "1", .replay = at + "0"}, "kv_events_replay"},
      {{.bind = at + "1", .connect = at + "2"}, "kv_events"},
      {{.replay = at + "1"}, "kv_events_replay"},
      {{.topic = "t"}, "kv_events_topic"},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Status status = cases[i].options.Check();
    EXPECT_EQ(status ? "" : status.error().field, cases[i].field) << i;
  }
}

// The flag that has the address is named.
TEST(Publisher, AnAddressThatCannotBeUsedIsRefused) {
  if (const auto zmq = Zmq::Load(); !zmq) GTEST_SKIP() << zmq.error().message;
  const std::string good = "tcp://127.0.0.1:*";
  const auto field = [](const PublisherOptions& options) -> std::string {
    const auto publisher = Publisher::Start(options);
    return publisher ? "" : publisher.error().field;
  };
  EXPECT_EQ(field({.bind = good}), "");
  EXPECT_EQ(field({.bind = "5557"}), "kv_events");
  EXPECT_EQ(field({.connect = "5557"}), "kv_events_connect");
  EXPECT_EQ(field({.bind = good, .replay = "5557"}), "kv_events_replay");
}

}  // namespace
}  // namespace braid::kv
