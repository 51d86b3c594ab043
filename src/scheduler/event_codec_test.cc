// Every field of a step's results comes back, also the kind of an error; damage is noticed.
#include "scheduler/event_codec.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "scheduler/testing/built_record.h"

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

template <class T>
T Again(const T& event) {
  std::string text;
  AppendRecord(Event(event), text);
  RecordReader reader(text);
  const auto record = reader.Next();
  EXPECT_TRUE(record.ok() && record->has_value());
  return std::get<T>(std::get<Event>(**record));
}

TEST(EventCodec, ARequestComesBackWhole) {
  Request want;
  want.id = RequestId(5);
  want.prompt = {3, 0, 4999};
  want.sampling = {.temperature = 0.5f,
                   .top_k = 3,
                   .top_p = 0.9f,
                   .min_p = 0.1f,
                   .repetition_penalty = 1.25f,
                   .presence_penalty = 0.75f,
                   .frequency_penalty = -0.5f,
                   .seed = 0xfedcba9876543210ull,
                   .logit_bias = {{7, -1.0f}, {9, 2.0f}}};
  want.stop = {.stop_tokens = {1, 2}, .new_tokens_max = 77, .new_tokens_min = 5};
  want.logprobs = 2;
  want.prompt_logprobs = 1;
  want.draft_tokens = 4;
  want.priority = -3;
  want.tenant = "tenant";
  want.cache_salt = std::string("s\0t", 3);
  want.dp_rank = 1;
  want.role = RequestRole::kDecode;
  want.grammar = "{}";
  want.grammar_after = 12;
  want.thinking = {.tokens_max = 100, .open = 13, .close = 14};
  const Request got = Again(Submit{want}).request;
  EXPECT_EQ(got.id, want.id);
  EXPECT_EQ(got.prompt, want.prompt);
  EXPECT_EQ(got.sampling, want.sampling);
  EXPECT_EQ(got.stop, want.stop);
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.prompt_logprobs, want.prompt_logprobs);
  EXPECT_EQ(got.draft_tokens, want.draft_tokens);
  EXPECT_EQ(got.priority, want.priority);
  EXPECT_EQ(got.tenant, want.tenant);
  EXPECT_EQ(got.cache_salt, want.cache_salt);
  EXPECT_EQ(got.dp_rank, want.dp_rank);
  EXPECT_EQ(got.role, want.role);
  EXPECT_EQ(got.grammar, want.grammar);
  EXPECT_EQ(got.grammar_after, want.grammar_after);
  EXPECT_EQ(got.thinking, want.thinking);
}

TEST(EventCodec, EveryOtherEventComesBackWhole) {
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kSent}) {
    EXPECT_EQ(Again(Abort{RequestId(3), reason}).reason, reason);
    EXPECT_EQ(Again(Abort{RequestId(3), reason}).id, RequestId(3));
  }
  const PagesMoved moved = Again(PagesMoved{.move = MoveId(4),
                                            .error = "late",
                                            .lost = {1, 3},
                                            .in_memory = {2},
                                            .token = 0,
                                            .logprob = {.token = 9, .logprob = -2.0f, .top = {}},
                                            .duration_us = 1234567890123,
                                            .disk_bytes = int64_t{1} << 40,
                                            .memory_bytes = 5});
  EXPECT_EQ(moved.move, MoveId(4));
  EXPECT_EQ(moved.error, "late");
  EXPECT_EQ(moved.lost, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(moved.in_memory, (std::vector<int32_t>{2}));
  EXPECT_EQ(moved.token, 0);
  EXPECT_EQ(moved.logprob.logprob, -2.0f);
  EXPECT_EQ(moved.duration_us, 1234567890123);
  EXPECT_EQ(moved.disk_bytes, int64_t{1} << 40);
  EXPECT_EQ(moved.memory_bytes, 5);
  EXPECT_EQ(Again(Tick{-5}).now_us, -5);
  const PagesKnown known =
      Again(PagesKnown{.added = {{{1, 2}, GroupKind::kState}}, .dropped = {{{3, 4}, {}}, {}}});
  ASSERT_EQ(known.added.size(), 1u);
  EXPECT_EQ(known.added[0].key.low, 1u);
  EXPECT_EQ(known.added[0].key.high, 2u);
  EXPECT_EQ(known.added[0].kind, GroupKind::kState);
  EXPECT_EQ(known.dropped.size(), 2u);
  EXPECT_TRUE(Again(FlushCache{true}).tiers);
  EXPECT_TRUE(Again(PauseRequested{true}).paused);
  EXPECT_TRUE(Again(StopRequested{true}).now);
  EXPECT_EQ(Again(MoveExperts{{{1, 0}, {2}}}).slots,
            (std::vector<std::vector<int32_t>>{{1, 0}, {2}}));
  const GrammarReady ready = Again(GrammarReady{RequestId(6), "large", ErrorCode::kExhausted});
  EXPECT_EQ(ready.request, RequestId(6));
  EXPECT_EQ(ready.error, "large");
  EXPECT_EQ(ready.error_code, ErrorCode::kExhausted);
  EXPECT_EQ(Again(Results()).duration_us, 12);
  EXPECT_EQ(Again(Results()).rows[0].drafts_of, DraftSource::kHead);
}

TEST(EventCodec, AValueThatNoProgramHasWrittenIsRefused) {
  std::string text;
  AppendRecord(Event(Abort{RequestId(3), static_cast<FinishReason>(99)}), text);
  RecordReader reader(text);
  EXPECT_FALSE(reader.Next().ok());
}

// "VmHWM" is the most that the process ever held, or has held since it was reset.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// Of rows of results, which take more than a hundred bytes each.
TEST(EventCodec, AListHasNoRoomForMoreItemsThanCome) {
  std::string payload = "\x02\x80\x80\x80\x02";  // step 1, and the number of rows
  payload.append(4 << 20, '\xff');               // which is no request's
  const std::string record = RecordOf(kStepDoneRecord, payload);
  std::ofstream("/proc/self/clear_refs") << "5";
  const int64_t before = PeakResidentBytes();
  EXPECT_FALSE(EventIn<StepDone>(record));
  EXPECT_LT(PeakResidentBytes() - before, 64 << 20);
}

TEST(EventCodec, LostArenasComeBackWithTheReason) {
  std::string text;
  AppendRecord(Event(ArenasLost{"the device is lost"}), text);
  RecordReader reader(text);
  const auto record = reader.Next();
  ASSERT_TRUE(record.ok() && record->has_value());
  EXPECT_EQ(std::get<ArenasLost>(std::get<Event>(**record)).error, "the device is lost");
}

TEST(EventCodec, ATimeComesBackAndIsNoEvent) {
  std::string text;
  AppendRecord(TimeMark{int64_t{1} << 50}, text);
  RecordReader reader(text);
  const auto record = reader.Next();
  ASSERT_TRUE(record.ok() && record->has_value());
  EXPECT_EQ(std::get<TimeMark>(**record).at_us, int64_t{1} << 50);
  EXPECT_FALSE(EventIn<Tick>(text));
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
