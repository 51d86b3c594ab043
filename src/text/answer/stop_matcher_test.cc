// Stop strings against a brute-force search, and in linear time.
#include "text/answer/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/test_model.h"

namespace braid {
namespace {

using Stops = std::vector<std::string>;

struct Outcome {
  std::string text;
  bool stopped = false;
  size_t which = 0;
  bool operator==(const Outcome&) const = default;
};

// What the whole text gives, by trying every end.
Outcome Expected(const Stops& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Outcome best{.text = text};
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (best.stopped && stops[i].size() <= stops[best.which].size()) continue;
      best = {text.substr(0, end - stops[i].size()), true, i};
    }
    if (best.stopped) return best;
  }
  return {.text = text};
}

Outcome StreamedUntilStop(const Stops& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome out;
  const auto add = [&out](const StopMatcher::Piece& piece) {
    out.text += piece.text;
    out.stopped = piece.stopped;
    out.which = piece.which;
  };
  for (const std::string& piece : pieces) add(matcher.Push(piece));
  add(matcher.Flush());
  return out;
}

TEST(StopMatcherTest, AgreesWithTryingEveryEnd) {
  Rng rng(9);
  int stopped = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto random = [&rng](int64_t size) {
      std::string text;
      while (size-- > 0) text += static_cast<char>('a' + rng.Below(2 + size % 2));
      return text;
    };
    Stops stops(static_cast<size_t>(rng.Below(4)));
    for (std::string& stop : stops) stop = random(2 + rng.Below(7));
    std::vector<std::string> pieces;
    std::string text;
    while (text.size() < 30) {
      pieces.push_back(random(rng.Below(5)));
      text += pieces.back().empty() ? "" : pieces.back();
    }
    const Outcome expected = Expected(stops, text);
    stopped += expected.stopped;
    EXPECT_EQ(StreamedUntilStop(stops, pieces), expected) << text;
  }
  EXPECT_GT(stopped, 1'000);
}

TEST(StopMatcherTest, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"</end>", "\n\nUser:"});
  EXPECT_EQ(matcher.Push("text <").text, "text ");
  EXPECT_EQ(matcher.Push("/e").text, "");
  EXPECT_EQ(matcher.Push("x").text, "</ex");
  EXPECT_EQ(matcher.Push("\n\n\nUs").text, "\n");
  const StopMatcher::Piece last = matcher.Push("er: never seen");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.which, 1u);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(matcher.Push("nor this").text, "");
}

TEST(StopMatcherTest, FlushReleasesWhatWasHeld) {
  StopMatcher matcher({"abc"});
  EXPECT_EQ(matcher.Push("xab").text, "x");
  const StopMatcher::Piece last = matcher.Flush();
  EXPECT_EQ(last.text, "ab");
  EXPECT_FALSE(last.stopped);
}

TEST(StopMatcherTest, WhatEndsTooEarlyIsText) {
  StopMatcher matcher({"aba", "x"});
  EXPECT_EQ(matcher.Push("xaba", false).text, "xab");  // "a" may begin another
  EXPECT_EQ(matcher.Push("b", false).text, "");
  const StopMatcher::Piece last = matcher.Push("a and more");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.which, 0u);
  EXPECT_EQ(last.text, "");
}

TEST(StopMatcherTest, NeverCutsACharacter) {
  StopMatcher matcher({"\u00e9\u00e8"});  // c3 a9 c3 a8
  EXPECT_EQ(matcher.Push("a\u00e9").text, "a");
  EXPECT_EQ(matcher.Push("\u00e9").text, "\u00e9");
  EXPECT_EQ(matcher.Push("\u00ea").text, "\u00e9\u00ea");
}

TEST(StopMatcherTest, WorstCasesAreLinear) {
  const auto ending = [](size_t count, char last) {
    std::string text(count, 'a');
    text.push_back(last);
    return text;
  };
  const std::string nearly = ending(255, 'b');
  StopMatcher matcher({nearly, ending(254, 'c'), ending(200, 'd')});
  const double start = CpuSeconds();
  size_t released = 0;
  for (int i = 0; i < (1 << 20); ++i) released += matcher.Push("a").text.size();
  released += matcher.Flush().text.size();
  const double seconds = CpuSeconds() - start;
  EXPECT_EQ(released, size_t{1} << 20);
  EXPECT_LT(seconds, 10);
}

}  // namespace
}  // namespace braid
