// What passes through: headers, events, and the breaker in front of an engine.
#include <gtest/gtest.h>

#include "router/breaker.h"
#include "router/event_cutter.h"
#include "router/passed_fields.h"

namespace braid {
namespace {

TEST(PassedFields, HeadersOfOneConnectionStayThere) {
  EXPECT_EQ(FieldsForEngine("Host: a\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n"
                            "Authorization: Bearer k\r\nTransfer-Encoding: chunked\r\n"
                            "content-length: 3\r\nTE: trailers\r\nUpgrade: h2c\r\n"
                            "Expect: 100-continue\r\nX-Other:  two  words \r\n"),
            "Authorization: Bearer k\r\nX-Other:  two  words \r\n");
}

TEST(PassedFields, WhatABrowserSaysAboutItsPageStaysHere) {
  EXPECT_EQ(FieldsForEngine("Origin: https://a\r\nSec-Fetch-Site: cross-site\r\n"
                            "Access-Control-Request-Headers: x\r\nX-Request-Id: 7\r\n"
                            "User-Agent: b\r\n"),
            "User-Agent: b\r\n");
}

TEST(PassedFields, FindsAValueWhateverTheCaseOfItsName) {
  EXPECT_EQ(FieldValue("A: 1\r\nX-Session-ID:  s 1 \r\n", "x-session-id"), "s 1");
  EXPECT_EQ(FieldValue("A: 1\r\nB: 2\r\nA: 3\r\n", "a"), "1") << "the first";
  EXPECT_EQ(FieldValue("A: 1\r\n", "b"), "");
  EXPECT_EQ(FieldValue("no field\r\nB: 2\r\n", "b"), "2");
  EXPECT_EQ(FieldValue("no field\r\n", "no field"), "");
}

TEST(EventCutter, GivesWholeEventsAndKeepsTheRest) {
  EventCutter cutter;
  EXPECT_EQ(cutter.Take("data: 1\n\n"), "data: 1\n\n");
  EXPECT_EQ(cutter.Take("data: 2\n\ndata"), "data: 2\n\n");
  EXPECT_EQ(cutter.Take(": 3\n"), "");
  EXPECT_EQ(cutter.Take("\ndata: 4\r\n\r\nx"), "data: 3\n\ndata: 4\r\n\r\n");
  EXPECT_FALSE(cutter.torn());
  EXPECT_EQ(cutter.Rest(), "x");
  EXPECT_EQ(cutter.Rest(), "");
}

TEST(EventCutter, EveryCutGivesTheSameBytes) {
  const std::string stream = ": ping\n\nevent: a\ndata: 1\n\ndata: [DONE]\n\nrest";
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    EventCutter cutter;
    std::string given(cutter.Take(stream.substr(0, cut)));
    EXPECT_TRUE(given.empty() || given.ends_with("\n\n")) << given;
    given += cutter.Take(stream.substr(cut));
    given += cutter.Rest();
    EXPECT_EQ(given, stream);
  }
}

TEST(EventCutter, AnEventThatIsTooLongToHoldIsTorn) {
  EventCutter cutter;
  const std::string part(EventCutter::kHeldBytesMax / 2 + 1, 'a');
  EXPECT_EQ(cutter.Take(part), "");
  EXPECT_EQ(cutter.Take(part), part + part);
  EXPECT_TRUE(cutter.torn());
  EXPECT_EQ(cutter.Take("a\n\n"), "a\n\n");
  EXPECT_FALSE(cutter.torn());
  EXPECT_EQ(cutter.Take(part + part), part + part);
  EXPECT_TRUE(cutter.torn());
  EXPECT_EQ(cutter.Take("a"), "");
  EXPECT_EQ(cutter.Take("b"), "");
  EXPECT_TRUE(cutter.torn()) << "its end is still to come";
  EXPECT_EQ(cutter.Take("c\n\nd"), "abc\n\n");
  EXPECT_FALSE(cutter.torn());
  // What is just not too long is held.
  EventCutter longest;
  const std::string most(EventCutter::kHeldBytesMax, 'a');
  EXPECT_EQ(longest.Take(most), "");
  EXPECT_EQ(longest.Take("b"), most + "b");
  EventCutter late;
  EXPECT_EQ(late.Take("a"), "");
  EXPECT_EQ(late.Take(most.substr(1)), "");
  EXPECT_FALSE(late.torn());
  EXPECT_EQ(late.Rest(), most);
}

TEST(EventCutter, CommentsAreNoPartOfAnAnswer) {
  EXPECT_TRUE(OnlyComments(": ping\n\n"));
  EXPECT_TRUE(OnlyComments(": a\r\n\r\n: b\n\n"));
  EXPECT_FALSE(OnlyComments(": a\n\ndata: 1\n\n"));
}

constexpr int64_t kSecond = 1'000'000;
constexpr auto kNone = Breaker::kNone;

TEST(Breaker, OpensAfterFailuresInARowAndTriesOneRequest) {
  Breaker breaker;
  breaker.Failed(kNone, 0);
  breaker.Failed(kNone, 0);
  breaker.Succeeded(kNone);
  breaker.Failed(kNone, 0);
  breaker.Failed(kNone, 0);
  EXPECT_TRUE(breaker.Allows(0)) << "not in a row";
  EXPECT_EQ(breaker.Begin(0), kNone);
  breaker.Failed(kNone, 0);
  EXPECT_FALSE(breaker.Allows(kSecond - 1));
  EXPECT_TRUE(breaker.Allows(kSecond));
  Breaker::Trial trial = breaker.Begin(kSecond);
  EXPECT_FALSE(breaker.Allows(kSecond)) << "one trial at a time";
  breaker.Failed(trial, kSecond);
  EXPECT_FALSE(breaker.Allows(3 * kSecond - 1)) << "twice as long";
  EXPECT_TRUE(breaker.Allows(3 * kSecond));
  trial = breaker.Begin(3 * kSecond);
  breaker.Withdraw(trial, 3 * kSecond);
  EXPECT_TRUE(breaker.Allows(3 * kSecond)) << "a trial that said nothing";
  for (int64_t i = 0; i < 10; ++i) breaker.Failed(kNone, 3 * kSecond);
  EXPECT_TRUE(breaker.Allows(3 * kSecond)) << "older ones that fail together";
  for (int64_t i = 0; i < 10; ++i) breaker.Failed(breaker.Begin(0), 0);
  EXPECT_TRUE(breaker.Allows(30 * kSecond)) << "at most 30 s";
  breaker.Succeeded(breaker.Begin(30 * kSecond));
  EXPECT_TRUE(breaker.closed());
  EXPECT_TRUE(breaker.Allows(0));
}

TEST(Breaker, ALongTrialIsFollowedByAnotherAndOnlyTrialsCount) {
  Breaker breaker;
  for (int i = 0; i < 3; ++i) breaker.Failed(kNone, 0);
  const Breaker::Trial first = breaker.Begin(kSecond);
  EXPECT_FALSE(breaker.Allows(2 * kSecond - 1));
  EXPECT_TRUE(breaker.Allows(2 * kSecond)) << "an answer may take minutes";
  const Breaker::Trial second = breaker.Begin(2 * kSecond);
  breaker.Withdraw(kNone, 2 * kSecond);
  breaker.Withdraw(first, 2 * kSecond);
  EXPECT_FALSE(breaker.Allows(2 * kSecond)) << "the second one has not ended";
  breaker.Succeeded(kNone);
  EXPECT_FALSE(breaker.closed()) << "it began before";
  breaker.Succeeded(second);
  EXPECT_TRUE(breaker.closed());
}

}  // namespace
}  // namespace braid
