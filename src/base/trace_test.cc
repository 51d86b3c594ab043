// The timeline as Chrome's trace viewer reads it.
#include "base/trace.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace braid {
namespace {

json::array EventsOf(const Trace& trace) {
  const json::value value = json::parse(trace.ToJson());
  return value.at("traceEvents").as_array();
}

TEST(Trace, NamesEachThreadAndShowsSpansFromTheFirstStartOn) {
  Trace trace(2, 8);
  const int64_t start = MonotonicNs() - 3'000'000;
  trace.Record(1, "late", start + 2000, 7);
  trace.Record(0, "early", start, 3);
  const json::array events = EventsOf(trace);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].at("ph"), "M");
  EXPECT_EQ(events[0].at("args").at("name"), "engine");
  EXPECT_EQ(events[1].at("name"), "early");
  EXPECT_EQ(events[1].at("ph"), "X");
  EXPECT_EQ(events[1].at("tid"), 0);
  EXPECT_EQ(events[1].at("ts").to_number<double>(), 0);
  EXPECT_GE(events[1].at("dur").to_number<double>(), 3000);
  EXPECT_LT(events[1].at("dur").to_number<double>(), 60'000'000);
  EXPECT_EQ(events[1].at("args").at("count"), 3);
  EXPECT_EQ(events[2].at("args").at("name"), "compute 1");
  EXPECT_EQ(events[3].at("tid"), 1);
  EXPECT_EQ(events[3].at("ts").to_number<double>(), 2);
}

TEST(Trace, KeepsTheFirstEventsOfEachThread) {
  Trace trace(2, 2);
  for (const char* name : {"a", "b", "c"}) trace.Record(1, name, MonotonicNs(), 0);
  const json::array events = EventsOf(trace);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].at("name"), "a");
  EXPECT_EQ(events[3].at("name"), "b");
}

TEST(TraceSpan, RecordsItsTimeAndLabelsWhatRunsInside) {
  Trace trace(1, 8);
  {
    TraceSpan outer(&trace, "outer", 2);
    EXPECT_EQ(trace.label(), "outer");
    {
      TraceSpan inner(&trace, "inner");
      EXPECT_EQ(trace.label(), "inner");
    }
    EXPECT_EQ(trace.label(), "outer");
  }
  EXPECT_EQ(trace.label(), "loop");
  const json::array events = EventsOf(trace);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].at("name"), "inner");
  EXPECT_EQ(events[2].at("name"), "outer");
  EXPECT_EQ(events[2].at("args").at("count"), 2);
  EXPECT_GE(events[1].at("ts").to_number<double>(), events[2].at("ts").to_number<double>());
  const TraceSpan none(nullptr, "nothing");
}

}  // namespace
}  // namespace braid
