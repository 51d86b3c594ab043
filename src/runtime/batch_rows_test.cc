// Which tokens of a step are whose, which distributions are wanted of them, and where states are
// looked at.
#include "runtime/batch_rows.h"

#include <gmock/gmock.h>

#include <tuple>

namespace braid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class BatchRowsTest : public ::testing::Test {
 protected:
  void Admit(Plan& plan, SlotId slot, std::vector<TokenId> prompt, std::vector<TokenId> output) {
    Request& request = requests_[static_cast<size_t>(slot.value)];
    request.id = RequestId(10 + slot.value);
    request.prompt = std::move(prompt);
    plan.admissions.push_back({slot, &request, std::move(output)});
  }
  static Row& AddRow(Plan& plan, SlotId slot, int32_t start, const std::vector<TokenId>& tokens) {
    plan.rows.push_back({.slot = slot,
                         .request = RequestId(10 + slot.value),
                         .token_begin = static_cast<int32_t>(plan.tokens.size()),
                         .token_count = static_cast<int32_t>(tokens.size()),
                         .start = start});
    plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
    return plan.rows.back();
  }
  void Lay(const Plan& plan) {
    slots_.Begin(plan);
    rows_.Lay(plan, slots_);
  }
  // Row, token of the batch, position, whether to sample and to describe.
  auto Wanted() const {
    std::vector<std::tuple<int32_t, int32_t, int32_t, bool, bool>> all;
    for (const BatchRows::Wanted& w : rows_.wanted) {
      all.emplace_back(w.row, w.token, w.position, w.sample, w.describe);
    }
    return all;
  }
  const std::vector<TokenId>& TokensOf(int32_t slot) { return slots_[SlotId(slot)].tokens; }

  const CacheGeometry geometry_{
      .groups = {{"full", GroupKind::kFull, 64, 1}}, .page_bytes = 64, .pages = 4};
  std::vector<std::byte> arena_ = std::vector<std::byte>(256);
  Slots slots_{geometry_, arena_.data(), 3, 128};
  std::array<Request, 3> requests_;
  BatchRows rows_;
};

TEST_F(BatchRowsTest, RowsFollowEachOtherAndDraftsFollowWhatIsKnown) {
  Plan plan;
  Admit(plan, SlotId(2), {10, 11, 12, 13}, {});
  Admit(plan, SlotId(0), {20, 21}, {22});
  Admit(plan, SlotId(1), {30, 31, 32}, {33});
  AddRow(plan, SlotId(2), 0, {10, 11, 12});
  AddRow(plan, SlotId(0), 2, {kSampledInFlight}).sample = true;
  Row& drafting = AddRow(plan, SlotId(1), 3, {kSampledInFlight, 40, 41});
  drafting.sample = true;
  drafting.drafts = 2;
  Lay(plan);
  EXPECT_THAT(rows_.tokens, ElementsAre(10, 11, 12, 22, 33, 40, 41));
  EXPECT_THAT(rows_.slot_ids, ElementsAre(SlotId(2), SlotId(0), SlotId(1)));
  EXPECT_EQ(rows_.sequences().count, 3);
  EXPECT_EQ(rows_.sequences().tokens, 7);
  std::vector<std::array<int32_t, 3>> spans;
  for (const ops::SequenceSpan& s : rows_.spans) {
    spans.push_back({s.token_begin, s.token_count, s.start});
  }
  EXPECT_THAT(spans, ElementsAre(ElementsAre(0, 3, 0), ElementsAre(3, 1, 2), ElementsAre(4, 3, 3)));
  EXPECT_THAT(Wanted(),
              ElementsAre(std::tuple(1, 3, 2, true, false), std::tuple(2, 4, 3, true, false),
                          std::tuple(2, 5, 4, true, false), std::tuple(2, 6, 5, true, false)));
  EXPECT_THAT(rows_.first_choices, ElementsAre(0, 0, 1));
  EXPECT_THAT(TokensOf(1), ElementsAre(30, 31, 32, 33, 40, 41));
  // The first row is looked at where it ends, behind all that is wanted.
  EXPECT_THAT(rows_.wanted_tokens, ElementsAre(3, 4, 5, 6, 2));
  EXPECT_THAT(rows_.last_states, ElementsAre(Pair(0, 4)));
}

TEST_F(BatchRowsTest, APromptsDistributionsAreAllDescribedAndTheLastOneIsSampled) {
  Plan plan;
  Admit(plan, SlotId(0), {1, 2, 3, 4, 5}, {});
  Admit(plan, SlotId(1), {6, 7, 8}, {});
  AddRow(plan, SlotId(0), 1, {2, 3}).prompt_logprobs = true;
  Row& last = AddRow(plan, SlotId(1), 0, {6, 7, 8});
  last.sample = last.prompt_logprobs = true;
  Lay(plan);
  EXPECT_THAT(Wanted(),
              ElementsAre(std::tuple(0, 0, 1, false, true), std::tuple(0, 1, 2, false, true),
                          std::tuple(1, 2, 0, false, true), std::tuple(1, 3, 1, false, true),
                          std::tuple(1, 4, 2, true, true)));
  EXPECT_EQ(rows_.first_choices[1], 4u);
  // The state at the first row's end is wanted in any case.
  EXPECT_THAT(rows_.wanted_tokens, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(rows_.last_states, ElementsAre(Pair(0, 1)));
}

TEST_F(BatchRowsTest, AStepForgetsTheOneBefore) {
  Plan first;
  Admit(first, SlotId(0), {1, 2, 3}, {});
  AddRow(first, SlotId(0), 0, {1, 2});
  Lay(first);
  Plan second;
  AddRow(second, SlotId(0), 2, {3}).sample = true;
  Lay(second);
  EXPECT_THAT(rows_.tokens, ElementsAre(3));
  EXPECT_THAT(rows_.slot_ids, ElementsAre(SlotId(0)));
  EXPECT_EQ(rows_.spans.size(), 1u);
  EXPECT_THAT(Wanted(), ElementsAre(std::tuple(0, 0, 2, true, false)));
  EXPECT_THAT(rows_.first_choices, ElementsAre(0));
  EXPECT_THAT(rows_.wanted_tokens, ElementsAre(0));
  EXPECT_THAT(rows_.last_states, IsEmpty());
}

TEST_F(BatchRowsTest, ATokenThatAnotherEngineHasSampledBecomesOutput) {
  Plan plan;
  Admit(plan, SlotId(0), {1, 2, 3}, {});
  AddRow(plan, SlotId(0), 3, {77}).sample = true;
  Lay(plan);
  EXPECT_THAT(rows_.tokens, ElementsAre(77));
  EXPECT_THAT(TokensOf(0), ElementsAre(1, 2, 3, 77));
}

}  // namespace
}  // namespace braid
