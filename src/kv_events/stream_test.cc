// Batches in their order, whatever happens to messages. A batch here clears the rank of its number.
#include "kv_events/stream.h"

#include <gtest/gtest.h>

namespace braid::kv {
namespace {

constexpr int64_t kSecond = 1'000'000;

std::string Batch(int32_t number) {
  PrefixChanges changes{.cleared = true, .removed = {}, .stored = {}};
  return EncodeBatch(changes, 0, number);
}

// What was taken, by rank; -1: all is forgotten.
struct Taken {
  std::vector<int32_t> ranks;
  EventStream::Take take() {
    return [this](const EventBatch& batch) { ranks.push_back(batch.dp_rank); };
  }
  std::vector<int32_t> Next() { return std::exchange(ranks, {}); }
};
using Ranks = std::vector<int32_t>;

TEST(EventStream, BeginsWithAllThatIsKept) {
  Taken taken;
  EventStream stream(true, taken.take());
  EXPECT_EQ(stream.Question(1), std::optional<uint64_t>(0));
  EXPECT_EQ(stream.Question(2), std::nullopt) << "once";
  stream.OnLive(2, Batch(2));
  EXPECT_EQ(taken.Next(), Ranks{}) << "it waits for the answer";
  EXPECT_EQ(stream.Question(3), std::nullopt) << "and does not ask for it again";
  for (int32_t i = 0; i < 4; ++i) stream.OnAnswer(static_cast<uint64_t>(i), Batch(i));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{0, 1, 2, 3}));
  stream.OnLive(3, Batch(3));
  EXPECT_EQ(taken.Next(), Ranks{}) << "the answer had it";
  stream.OnLive(4, Batch(4));
  EXPECT_EQ(taken.Next(), (Ranks{4}));
}

// What is published before a subscription has reached the publisher does not come by itself.
TEST(EventStream, AsksAgainUntilSomethingCameByItself) {
  Taken taken;
  EventStream stream(true, taken.take());
  EXPECT_EQ(stream.Question(1), std::optional<uint64_t>(0));
  stream.OnAnswer(0, Batch(0));
  EXPECT_EQ(stream.Question(2 * kSecond), std::nullopt) << "the answer has not ended";
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(stream.Question(kSecond), std::nullopt) << "too soon";
  EXPECT_EQ(stream.Question(kSecond + 1), std::optional<uint64_t>(1));
  EXPECT_EQ(stream.Question(9 * kSecond), std::nullopt) << "not before it was answered";
  EXPECT_EQ(stream.Question(20 * kSecond), std::nullopt) << "nor ever, when it is not";

  EventStream other(true, taken.take());
  (void)other.Question(1);
  other.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(other.Question(kSecond + 1), std::optional<uint64_t>(0));
  other.OnAnswer(0, Batch(0));
  other.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{0, 0}));
  other.OnLive(1, Batch(1));
  EXPECT_EQ(taken.Next(), (Ranks{1}));
  EXPECT_EQ(other.Question(99 * kSecond), std::nullopt) << "it hears the rest";
}

TEST(EventStream, AsksForAGap) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  stream.OnAnswer(~uint64_t{0}, "");
  stream.OnLive(0, Batch(0));
  stream.OnLive(3, Batch(3));
  EXPECT_EQ(taken.Next(), (Ranks{0}));
  EXPECT_EQ(stream.Question(2), std::optional<uint64_t>(1));
  stream.OnLive(4, Batch(4));
  for (const int32_t i : {1, 2, 3}) stream.OnAnswer(static_cast<uint64_t>(i), Batch(i));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{1, 2, 3, 4}));
}

// The answer was on its way when they were sent.
TEST(EventStream, AsksForAGapBehindAnAnswer) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  stream.OnLive(2, Batch(2));
  stream.OnLive(5, Batch(5));
  for (const int32_t i : {0, 1}) stream.OnAnswer(static_cast<uint64_t>(i), Batch(i));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{0, 1, 2}));
  EXPECT_EQ(stream.Question(2), std::optional<uint64_t>(3));
  for (const int32_t i : {3, 4}) stream.OnAnswer(static_cast<uint64_t>(i), Batch(i));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{3, 4, 5}));
}

TEST(EventStream, AnAnswerThatBringsNothingIsNotAskedForAgain) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  stream.OnAnswer(0, Batch(0));
  stream.OnAnswer(~uint64_t{0}, "");
  stream.OnLive(3, Batch(3));
  EXPECT_EQ(taken.Next(), (Ranks{0}));
  EXPECT_EQ(stream.Question(2), std::optional<uint64_t>(1));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{-1, 3}));
  EXPECT_EQ(stream.Question(3), std::nullopt);
}

TEST(EventStream, GivesAnAnswerFiveSecondsToEnd) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(kSecond);
  stream.OnLive(2, Batch(2));
  (void)stream.Question(6 * kSecond - 1);
  EXPECT_EQ(taken.Next(), Ranks{});
  (void)stream.Question(6 * kSecond);
  EXPECT_EQ(taken.Next(), (Ranks{-1, 2}));
  stream.OnAnswer(7, Batch(7));
  EXPECT_EQ(taken.Next(), Ranks{}) << "the question is over";
}

TEST(EventStream, AnAnswerMayTakeLongerWhileItBringsBatches) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(kSecond);
  stream.OnLive(3, Batch(3));
  for (int32_t i = 0; i < 2; ++i) {
    (void)stream.Question((5 + 4 * i) * kSecond);
    stream.OnAnswer(static_cast<uint64_t>(i), Batch(i));
    (void)stream.Question((6 + 4 * i) * kSecond);
    EXPECT_EQ(taken.Next(), Ranks{i});
  }
  (void)stream.Question(15 * kSecond - 1);
  EXPECT_EQ(taken.Next(), Ranks{});
  (void)stream.Question(15 * kSecond);
  EXPECT_EQ(taken.Next(), (Ranks{-1, 3})) << "five seconds after the last one";
}

TEST(EventStream, ForgetsWhatAGapHidesForGood) {
  Taken taken;
  EventStream without(false, taken.take());
  EXPECT_EQ(without.Question(1), std::nullopt);
  without.OnLive(0, Batch(0));
  without.OnLive(2, Batch(2));
  EXPECT_EQ(taken.Next(), (Ranks{0, -1, 2}));
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  stream.OnAnswer(7, Batch(7));  // those before are kept no more
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{-1, 7}));
  // An answer that never comes.
  stream.OnLive(8, Batch(8));
  stream.OnLive(10, Batch(10));
  (void)stream.Question(kSecond);
  EXPECT_EQ(taken.Next(), (Ranks{8}));
  (void)stream.Question(7 * kSecond);
  EXPECT_EQ(taken.Next(), (Ranks{-1, 10}));
}

TEST(EventStream, ForgetsAProcessThatIsGone) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  stream.OnAnswer(~uint64_t{0}, "");
  for (const int32_t i : {0, 1, 2}) stream.OnLive(static_cast<uint64_t>(i), Batch(i));
  EXPECT_EQ(taken.Next(), (Ranks{0, 1, 2}));
  stream.OnLive(0, Batch(0));
  EXPECT_EQ(taken.Next(), (Ranks{-1, 0}));
  EXPECT_EQ(stream.Question(2), std::nullopt) << "nothing is missing";
  stream.OnLive(1, Batch(1));
  stream.OnLive(2, Batch(2));
  (void)taken.Next();
  stream.OnLive(1, Batch(1));  // the first one of the third process did not come
  EXPECT_EQ(stream.Question(2), std::optional<uint64_t>(0));
  stream.OnAnswer(0, Batch(0));
  stream.OnAnswer(1, Batch(1));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{-1, 0, 1}));
}

// Each begins again while something is asked of the one before.
TEST(EventStream, WhatIsHeldOfAProcessGoesWithIt) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  stream.OnLive(5, Batch(5));
  stream.OnLive(0, Batch(0));  // another process
  EXPECT_EQ(taken.Next(), (Ranks{-1, 0}));
  stream.OnAnswer(5, Batch(5));  // of the first one
  EXPECT_EQ(taken.Next(), Ranks{});
  stream.OnLive(1, Batch(1));
  EXPECT_EQ(taken.Next(), (Ranks{1}));
  stream.OnLive(1, Batch(11));  // a third process, whose first one did not come
  EXPECT_EQ(taken.Next(), (Ranks{-1}));
  stream.OnAnswer(5, Batch(5));  // it has not been asked yet
  EXPECT_EQ(taken.Next(), Ranks{});
  EXPECT_EQ(stream.Question(2), std::optional<uint64_t>(0));
  stream.OnAnswer(0, Batch(10));
  stream.OnAnswer(~uint64_t{0}, "");
  EXPECT_EQ(taken.Next(), (Ranks{10, 11}));
}

TEST(EventStream, ForgetsAllAfterWhatItCannotRead) {
  Taken taken;
  EventStream stream(false, taken.take());
  stream.OnLive(0, "x");
  EXPECT_EQ(taken.Next(), (Ranks{-1}));
  EXPECT_EQ(stream.malformed(), 1);
  stream.OnLive(1, Batch(1));
  EXPECT_EQ(taken.Next(), (Ranks{1}));
}

TEST(EventStream, HoldsABoundedNumberOfMessages) {
  Taken taken;
  EventStream stream(true, taken.take());
  (void)stream.Question(1);
  for (int32_t i = 1; i <= 4096; ++i) stream.OnLive(static_cast<uint64_t>(i), Batch(i));
  EXPECT_EQ(taken.Next(), Ranks{});
  for (int32_t i = 4097; i <= 5000; ++i) stream.OnLive(static_cast<uint64_t>(i), Batch(i));
  const Ranks ranks = taken.Next();
  ASSERT_EQ(ranks.size(), 5001u);
  EXPECT_EQ(ranks.front(), -1);
  EXPECT_EQ(ranks.back(), 5000);
  // Of few messages, their bytes.
  EventStream large(true, taken.take());
  (void)large.Question(1);
  const std::string payload(size_t{16} << 20, 'x');
  for (uint64_t i = 1; i <= 4; ++i) large.OnLive(i, payload);
  EXPECT_EQ(taken.Next(), Ranks{});
  large.OnLive(5, payload);
  EXPECT_GE(taken.Next().size(), 5u);
  // Those that were delivered or forgotten count no more.
  large.OnLive(7, payload);
  EXPECT_EQ(large.Question(2), std::optional<uint64_t>(6));
  for (uint64_t i = 8; i <= 10; ++i) large.OnLive(i, payload);
  EXPECT_EQ(taken.Next(), Ranks{});
  large.OnLive(3, payload);  // another process
  for (uint64_t i = 4; i <= 6; ++i) large.OnLive(i, payload);
  EXPECT_EQ(taken.Next(), (Ranks{-1}));
}

}  // namespace
}  // namespace braid::kv
