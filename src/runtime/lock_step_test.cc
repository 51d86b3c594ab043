// What the first rank says to a rank that the test plays. That whole groups follow, and what ends
// them, tests/equality shows.
#include "runtime/lock_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <optional>
#include <variant>

#include "scheduler/event_codec.h"
#include "scheduler/inbox.h"

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The first of two ranks. The other one reports `says` with the next message, and notes all that it
// gets: sizes, then the bytes of those that have some.
class PlayedFollower final : public Communicator {
 public:
  PlayedFollower() : Communicator(0, 2) {}

  std::string says;
  std::optional<uint64_t> claims;  // another size than that of `says`
  Status ends;                     // each message
  std::vector<uint64_t> sizes;     // of the leader's messages
  std::string records;             // of all of them

 private:
  Status Exchange(std::span<const Bytes> send, std::span<const MutableBytes> receive) override {
    RETURN_IF_ERROR(ends);
    if (!sized_) {
      uint64_t size = 0;
      std::memcpy(&size, send[1].data(), sizeof(size));
      sizes.push_back(size);
      const uint64_t own = claims.value_or(says.size());
      std::memcpy(receive[1].data(), &own, sizeof(own));
      sized_ = (size > 0 && size != UINT64_MAX) || own > 0;
      return {};
    }
    sized_ = false;
    records.append(reinterpret_cast<const char*>(send[1].data()), send[1].size());
    EXPECT_EQ(receive[1].size(), says.size());
    std::memcpy(receive[1].data(), says.data(), says.size());
    says.clear();
    return {};
  }
  bool sized_ = false;  // the bytes come next
};

std::vector<AnyRecord> RecordsOf(const std::string& text) {
  std::vector<AnyRecord> all;
  RecordReader reader(text);
  while (true) {
    Result<std::optional<AnyRecord>> record = reader.Next();
    EXPECT_TRUE(record) << record.error().message;
    if (!record || !*record) return all;
    all.push_back(**std::move(record));
  }
}

const LogStart kStart{.config = {.vocabulary = 9}, .model = "m"};

TEST(RankLeader, TellsTheStartEventsPlansAndTheEnd) {
  PlayedFollower other;
  {
    RankLeader leader(other, kStart, [](const Error&) { ADD_FAILURE() << "nothing is lost"; });
    ASSERT_EQ(other.sizes.size(), 1u);
    EXPECT_EQ(other.sizes[0], other.records.size());
    leader.Add(Event(Tick{.now_us = 5}));
    EXPECT_EQ(other.sizes.size(), 1u) << "events wait for a plan";
    Plan plan;
    plan.step = StepId(3);
    leader.Add(plan);
    EXPECT_EQ(other.sizes.size(), 2u);
    leader.Idle();
    EXPECT_EQ(other.sizes.back(), 0u) << "that it is there";
    leader.Add(Event(Abort{.id = RequestId(7)}));
    EXPECT_TRUE(leader.status());
  }
  ASSERT_EQ(other.sizes.size(), 5u) << "what was left, and the end";
  EXPECT_GT(other.sizes[3], 0u);
  EXPECT_EQ(other.sizes[4], UINT64_MAX);
  const std::vector<AnyRecord> records = RecordsOf(other.records);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(std::get<LogStart>(records[0]).model, "m");
  EXPECT_EQ(std::get<Tick>(std::get<Event>(records[1])).now_us, 5);
  EXPECT_EQ(std::get<PlanMark>(records[2]).step, StepId(3));
  EXPECT_EQ(std::get<Abort>(std::get<Event>(records[3])).id, RequestId(7));
}

TEST(RankLeader, HandsOnWhatTheOthersReport) {
  PlayedFollower other;
  Inbox reports;
  RankLeader leader(other, kStart, [](const Error&) {}, &reports);
  for (const int64_t id : {4, 5}) {
    AppendRecord(Event(PagesMoved{.move = MoveId(id), .error = {}, .lost = {}, .logprob = {}}),
                 other.says);
  }
  leader.Idle();
  const std::vector<Event> events = reports.Take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<PagesMoved>(events[0]).move, MoveId(4));
  EXPECT_EQ(std::get<PagesMoved>(events[1]).move, MoveId(5));
  leader.Idle();
  EXPECT_TRUE(reports.Take().empty()) << "each once";
}

TEST(RankLeader, EndsOnceAndSaysNothingAfterwards) {
  PlayedFollower other;
  std::vector<std::string> lost;
  {
    RankLeader leader(other, kStart, [&](const Error& error) { lost.push_back(error.message); });
    other.ends = Error{ErrorCode::kUnavailable, "no word from rank 1"};
    leader.Idle();
    EXPECT_EQ(leader.status().error().message, "the group of ranks has ended: no word from rank 1");
    EXPECT_EQ(leader.status().error().code, ErrorCode::kUnavailable);
    other.ends = {};
    leader.Add(Event(Tick{}));
    leader.Add(Plan());
    leader.Idle();
  }
  EXPECT_EQ(other.sizes.size(), 1u) << "the start";
  EXPECT_THAT(lost, ElementsAre("the group of ranks has ended: no word from rank 1"));
}

// No room is made for them.
TEST(RankLeader, RefusesRecordsThatAreTooLarge) {
  for (const uint64_t size : {(uint64_t{1} << 30) + 1, UINT64_MAX}) {
    PlayedFollower other;
    std::string lost;
    RankLeader leader(other, kStart, [&](const Error& error) { lost = error.message; });
    other.claims = size;
    leader.Idle();
    EXPECT_THAT(lost, HasSubstr("rank 1 has records of " + std::to_string(size) + " bytes"));
  }
}

}  // namespace
}  // namespace braid
