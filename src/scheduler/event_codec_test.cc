// Every field of a step's results comes back, also the kind of an error; damage is noticed.
#include "scheduler/event_codec.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

StepDone Results() {
  StepDone done{.step = StepId(7), .rows = {}, .duration_us = 12};
  done.rows.push_back({.request = RequestId(3),
                       .accepted = 2,
                       .token = 41,
                       .logprob = {.token = 41, .logprob = -1.5f, .top = {{41, -1.5f}, {2, -2.0f}}},
                       .drafts = {5, 6},
                       .drafts_of = DraftSource::kHead});
  done.rows.push_back({.request = RequestId(4),
                       .error = "the grammar has no token",
                       .error_code = ErrorCode::kInvalid});
  return done;
}

TEST(EventCodec, ResultsComeBackWhole) {
  std::string text;
  AppendRecord(Event(Results()), text);
  AppendRecord(PlanMark{StepId(8), 99}, text);
  RecordReader reader(text);
  const auto first = reader.Next(), second = reader.Next(), end = reader.Next();
  ASSERT_TRUE(first.ok() && first->has_value());
  const auto& got = std::get<StepDone>(std::get<Event>(**first));
  const StepDone want = Results();
  ASSERT_EQ(got.rows.size(), 2u);
  EXPECT_EQ(got.step, want.step);
  EXPECT_EQ(got.rows[0].token, 41);
  EXPECT_EQ(got.rows[0].accepted, 2);
  EXPECT_EQ(got.rows[0].drafts, want.rows[0].drafts);
  EXPECT_EQ(got.rows[0].logprob, want.rows[0].logprob);
  EXPECT_EQ(got.rows[1].error, want.rows[1].error);
  EXPECT_EQ(got.rows[1].error_code, ErrorCode::kInvalid);
  EXPECT_EQ(std::get<PlanMark>(**second).hash, 99u);
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
  EXPECT_FALSE(reader.truncated());
}

TEST(EventCodec, LostArenasComeBackWithTheReason) {
  std::string text;
  AppendRecord(Event(ArenasLost{"the device is lost"}), text);
  RecordReader reader(text);
  const auto record = reader.Next();
  ASSERT_TRUE(record.ok() && record->has_value());
  EXPECT_EQ(std::get<ArenasLost>(std::get<Event>(**record)).error, "the device is lost");
}

TEST(EventCodec, AByteThatChangedIsNoticedAndAMissingEndIsToldFromIt) {
  std::string text;
  AppendRecord(Event(Results()), text);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    RecordReader reader(damaged);
    const auto record = reader.Next();
    EXPECT_TRUE(!record.ok() || !record->has_value()) << "byte " << i;
  }
  RecordReader cut(std::string_view(text).substr(0, text.size() - 1));
  const auto record = cut.Next();
  ASSERT_TRUE(record.ok());
  EXPECT_FALSE(record->has_value());
  EXPECT_TRUE(cut.truncated());
}

}  // namespace
}  // namespace braid
