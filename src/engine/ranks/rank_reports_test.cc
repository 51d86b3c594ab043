// What a rank that follows says of grammars, with a trial that the test lets go on, and who on
// rank 0 gets it.
#include "engine/ranks/rank_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/clock.h"
#include "engine/partners/test_held_grammars.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of two groups of two ranks.
class FollowerReportsTest : public HeldGrammarsTest {
 protected:
  static Event Asks(int64_t id, const std::string& grammar) {
    Request request;
    request.id = RequestId(id);
    request.grammar = grammar;
    return Submit{request};
  }
  // The next report, which must be of that request.
  GrammarReady Next(const FollowerParts& parts, int64_t id) {
    const int64_t end_us = MonotonicUs() + 30'000'000;
    std::vector<Event> events;
    while (events.empty() && MonotonicUs() < end_us) {
      events = parts.reports();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(events.size(), 1u);
    if (events.size() != 1 || !std::holds_alternative<GrammarReady>(events[0])) return {};
    EXPECT_EQ(std::get<GrammarReady>(events[0]).request, RequestId(id));
    return std::get<GrammarReady>(events[0]);
  }

  const Mesh mesh_{.dp = 2, .tp = 2};
};

TEST_F(FollowerReportsTest, ARankThatSamplesSaysWhenAGrammarIsCompiledAndKeepsIt) {
  FollowerReports follower(mesh_, 2, nullptr, library_.get());
  const FollowerParts parts = follower.parts();
  parts.watch(Asks(1, Regex("a+")));
  parts.watch(Asks(2, ""));
  EXPECT_THAT(parts.reports(), IsEmpty());
  trial_.open = true;
  EXPECT_EQ(Next(parts, 1).error, "");
  EXPECT_THAT(parts.reports(), IsEmpty()) << "once";
  parts.watch(Asks(3, Regex("b+")));
  const GrammarReady none = Next(parts, 3);
  EXPECT_THAT(none.error, HasSubstr("rank 2 cannot use the request's grammar: "));
  EXPECT_EQ(none.error_code, ErrorCode::kUnavailable);
  EXPECT_TRUE(library_->Known(Regex("a+"))) << "a request runs by it";
  parts.ended(RequestId(1));
  parts.ended(RequestId(3));
  parts.watch(Asks(4, Regex("b+")));
  EXPECT_EQ(Next(parts, 4).error, "");
}

TEST_F(FollowerReportsTest, ARefusalIsToldWithItsReason) {
  trial_.open = true;
  FollowerReports follower(mesh_, 2, nullptr, library_.get());
  const FollowerParts parts = follower.parts();
  for (const int64_t id : {1, 2}) {  // the second time it is known
    parts.watch(Asks(id, Regex("x+")));
    const GrammarReady refused = Next(parts, id);
    EXPECT_THAT(refused.error, HasSubstr("it takes too much"));
    EXPECT_EQ(refused.error_code, ErrorCode::kInvalid);
    parts.ended(RequestId(id));
  }
}

TEST_F(FollowerReportsTest, OfARequestThatHasEndedNothingIsSaid) {
  FollowerReports follower(mesh_, 2, nullptr, library_.get());
  const FollowerParts parts = follower.parts();
  parts.watch(Asks(1, Regex("a+")));
  parts.ended(RequestId(1));
  parts.ended(RequestId(7));  // unknown
  EXPECT_THAT(parts.reports(), IsEmpty());
  trial_.open = true;
  parts.watch(Asks(2, Regex("a+")));
  EXPECT_EQ(Next(parts, 2).error, "");
}

TEST_F(FollowerReportsTest, RanksThatSampleNothingSayNothing) {
  trial_.open = true;
  for (const int32_t rank : {1, 3}) {
    FollowerReports follower(mesh_, rank, nullptr, library_.get());
    const FollowerParts parts = follower.parts();
    parts.watch(Asks(1, Regex("a+")));
    EXPECT_FALSE(library_->Known(Regex("a+")));
    EXPECT_THAT(parts.reports(), IsEmpty());
    parts.ended(RequestId(1));
  }
  FollowerReports without(mesh_, 2, nullptr, nullptr);
  without.parts().watch(Asks(1, Regex("a+")));
  EXPECT_THAT(without.parts().reports(), IsEmpty());
}

TEST(RankReports, TheDriverHearsOfGrammars) {
  Inbox driver;
  RankReports reports;
  reports.Serve(nullptr, driver);
  reports.Post(GrammarReady{RequestId(5), "none", ErrorCode::kExhausted});
  const std::vector<Event> events = driver.Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<GrammarReady>(events[0]).request, RequestId(5));
}

// As of parts that its tier lost while the model was loaded.
TEST(RankReports, WhatARankReportsAtOnceWaitsForTheDriver) {
  Inbox driver;
  RankReports reports;
  for (const int64_t id : {5, 6}) {
    reports.Post(GrammarReady{RequestId(id), "", ErrorCode::kInternal});
  }
  reports.Serve(nullptr, driver);
  const std::vector<Event> events = driver.Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<GrammarReady>(events[0]).request, RequestId(5));
  EXPECT_EQ(std::get<GrammarReady>(events[1]).request, RequestId(6));
}

}  // namespace
}  // namespace braid
