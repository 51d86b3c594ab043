// The figures of a simulated cluster where a reader looks for them.
#include "cli/cluster_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Of two moments of 5 s.
ClusterRun RunAt(double rate, double first_seconds) {
  ClusterRun run{.rate = rate};
  ClusterReport& r = run.report;
  r.finished = 21;
  r.seconds = 10;
  r.output_tokens = 30'000;
  r.input_tokens = 80'000;
  r.reused_tokens = 20'000;
  r.busy = 0.625;
  for (int i = 0; i < 100; ++i) {
    r.first_token.Add(first_seconds);
    r.inter_token.Add(0.02);
  }
  r.moment_seconds = 5;
  r.moments = {{.input_tokens = 1000, .output_tokens = 250, .running = 4, .waiting = 1},
               {.input_tokens = 500, .output_tokens = 500, .running = 8, .waiting = 0}};
  return run;
}

// How often a text occurs.
int64_t CountOf(const std::string& page, const std::string& text) {
  int64_t count = 0;
  for (size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++count;
  return count;
}

TEST(ClusterPage, ARunIsARow) {
  const std::string page = ClusterPage("a < b & c", {RunAt(2.5, 1.5)});
  EXPECT_THAT(page, HasSubstr("<p>a &lt; b &amp; c</p>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>2.5</td><td>21</td><td>3000</td><td>8000</td>"
                              "<td>25.0 %</td><td>1.5"));
  EXPECT_THAT(page, HasSubstr("<td>62 %</td></tr>"));
  EXPECT_EQ(CountOf(page, "<svg"), 4) << "tokens, requests and two distributions";
  EXPECT_THAT(page, Not(HasSubstr("by throughput")));
  EXPECT_THAT(page, Not(HasSubstr("Balance of experts")));
  EXPECT_THAT(page, HasSubstr("at 2.5 requests/s"));
}

TEST(ClusterPage, SeveralRunsAreComparedByThroughput) {
  std::vector<ClusterRun> runs = {RunAt(1, 0.5), RunAt(4, 2)};
  runs[1].report.moments[1].steps = 3;
  runs[1].report.moments[1].balance = 0.75;
  const std::string page = ClusterPage("t", runs);
  EXPECT_EQ(CountOf(page, "<tr><td>"), 2);
  EXPECT_EQ(CountOf(page, "<svg"), 7);
  EXPECT_THAT(page, HasSubstr("Time to first token by throughput"));
  EXPECT_THAT(page, HasSubstr("Inter-token latency by throughput"));
  EXPECT_THAT(page, HasSubstr("Balance of experts over time"));
  EXPECT_THAT(page, HasSubstr("at 4 requests/s"));
  runs[1].report.input_tokens = 0;
  EXPECT_THAT(ClusterPage("t", runs), HasSubstr("<td>0.0 %</td>"));
}

// 58 of 560 pixels are left of a plot, 14 right of it; 12 of 250 above it, 40 below.
TEST(ClusterPage, PointsStandWhereTheirNumbersAre) {
  const std::string page = ClusterPage("t", {RunAt(1, 0.5)});
  // Tokens over time: moments at 2.5 s and 7.5 s, of 200 and 100, 50 and 100 tokens/s.
  EXPECT_THAT(page, HasSubstr("<polyline class=\"c0\" points=\"220.7,12.0 546.0,111.0 \"/>"));
  EXPECT_THAT(page, HasSubstr("<polyline class=\"c1\" points=\"220.7,160.5 546.0,111.0 \"/>"));
  // Lines at 0, 50, ... 200 tokens/s, and marks at 0, 2, 4, 6 s.
  EXPECT_THAT(page, HasSubstr("<line class=\"g\" x1=\"58\" x2=\"546\" y1=\"160.5\" "
                              "y2=\"160.5\"/><text x=\"52\" y=\"164.5\" "
                              "text-anchor=\"end\">50</text>"));
  EXPECT_THAT(page, HasSubstr("<text x=\"448.4\" y=\"226\" text-anchor=\"middle\">6</text>"));
  EXPECT_THAT(page, HasSubstr("<circle class=\"c1\" cx=\"220.7\" cy=\"160.5\" r=\"3\"/>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"c1\">&#9632; output tokens</span>"));
  // Requests: 8 running at most, in steps of 2; 1 waiting.
  EXPECT_THAT(page, HasSubstr("points=\"220.7,111.0 546.0,12.0 \"/>"));
  EXPECT_THAT(page, HasSubstr("points=\"220.7,185.2 546.0,210.0 \"/>"));
  // All times to first token are alike: a level line without circles, for it has 100 points.
  EXPECT_THAT(page, HasSubstr(">% of requests</text>"));
  EXPECT_EQ(CountOf(page, "<circle"), 8);
}

}  // namespace
}  // namespace braid
