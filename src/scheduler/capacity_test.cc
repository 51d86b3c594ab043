// The start-up plan's promise, kept: so many conversations taking turns are never computed again,
// whether they go on or their answers are regenerated. The arena is filled with them, in several
// geometries, and each is resumed in several orders.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "scheduler/scheduler.h"

namespace braid {
namespace {

struct Case {
  const char* name;
  int32_t full_per_page;
  int32_t state_per_page;  // 0: no recurrent state
  int32_t pages;
  int32_t tokens;  // of a conversation that are stored: its prompt and all but one of its answer
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr int32_t kVocabulary = 50000;

class CapacityTest : public ::testing::TestWithParam<Case> {
 protected:
  CapacityTest() : scheduler_(*Scheduler::Create(Config())) {}

  static SchedulerConfig Config() {
    const Case& c = GetParam();
    SchedulerConfig config{.cache = {.groups = {{"full", GroupKind::kFull, 64, c.full_per_page}},
                                     .page_bytes = int64_t{64} * 64,
                                     .pages = c.pages},
                           .context_tokens_max = 4096,
                           .step_tokens_max = 256,  // several chunks: states that nobody needs
                           .running_max = 4,
                           .vocabulary = kVocabulary};
    if (c.state_per_page > 0) {
      config.cache.groups.push_back({"state", GroupKind::kState, 64, c.state_per_page});
    }
    return config;
  }

  // An answer goes over several blocks where the conversation has them.
  static int32_t AnswerTokens() { return std::min(200, GetParam().tokens / 2); }
  static int32_t PromptTokens() { return GetParam().tokens - AnswerTokens() + 1; }

  // The conversation's prompt, perhaps with its answer and a few tokens more; tokens reused.
  int32_t TakeTurn(int64_t conversation, bool goes_on, int32_t new_tokens) {
    Request request;
    request.id = RequestId(next_id_++);
    request.prompt.resize(static_cast<size_t>(PromptTokens()));
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      request.prompt[i] =
          static_cast<TokenId>((conversation * 7919 + static_cast<int64_t>(i)) % kVocabulary);
    }
    if (goes_on) {
      request.prompt.resize(request.prompt.size() + static_cast<size_t>(AnswerTokens()), 7);
      request.prompt.resize(request.prompt.size() + 5, 8);
    }
    request.stop.new_tokens_max = new_tokens;
    scheduler_.Apply(Submit{request});
    int32_t reused = -1;
    while (!scheduler_.idle()) {
      const Plan plan = scheduler_.NextPlan();
      StepDone done{plan.step, {}};
      for (const Row& row : plan.rows) {
        done.rows.emplace_back();
        done.rows.back().request = row.request;
        done.rows.back().token = row.sample ? 7 : -1;
      }
      scheduler_.Apply(std::move(done));
      for (const Output& output : scheduler_.TakeOutputs()) {
        EXPECT_EQ(output.error, "");
        if (output.finish) reused = output.cached_tokens;
      }
    }
    return reused;
  }

  // All of them, one after the other, in an empty arena.
  std::vector<int64_t> Fill(int64_t count) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t c : order) EXPECT_EQ(TakeTurn(c, false, AnswerTokens()), 0);
    return order;
  }
  // How many of them resume where they ended.
  int64_t CountResumed(const std::vector<int64_t>& order) {
    return std::count_if(order.begin(), order.end(), [&](int64_t c) {
      return TakeTurn(c, true, 1) == GetParam().tokens / kBlockTokens * kBlockTokens;
    });
  }
  // How many resume at the end of the prompt, or a few tokens before it, when it is asked again.
  int64_t CountRegenerated(const std::vector<int64_t>& order) {
    return std::count_if(order.begin(), order.end(), [&](int64_t c) {
      return TakeTurn(c, false, 1) >= (PromptTokens() - 8) / kBlockTokens * kBlockTokens;
    });
  }

  Scheduler scheduler_;
  int64_t next_id_ = 0;
};

TEST_P(CapacityTest, SoManyConversationsStayResumable) {
  const int64_t promised = ResumableConversations(Config().cache, GetParam().tokens);
  ASSERT_GE(promised, 2);
  std::vector<int64_t> order = Fill(promised);
  EXPECT_EQ(CountResumed(order), promised);
  std::reverse(order.begin(), order.end());
  EXPECT_EQ(CountResumed(order), promised);
  for (size_t i = 0; i < order.size(); ++i) std::swap(order[i], order[i * 37 % order.size()]);
  EXPECT_EQ(CountResumed(order), promised);
  const Status audit = scheduler_.Audit();
  EXPECT_TRUE(audit.ok()) << audit.error().message;
}

TEST_P(CapacityTest, AndTheirAnswersCanBeRegenerated) {
  const int64_t promised = ResumableConversations(Config().cache, GetParam().tokens);
  std::vector<int64_t> order = Fill(promised);
  EXPECT_EQ(CountRegenerated(order), promised);
  std::reverse(order.begin(), order.end());
  EXPECT_EQ(CountRegenerated(order), promised);
  for (size_t i = 0; i < order.size(); ++i) std::swap(order[i], order[i * 37 % order.size()]);
  EXPECT_EQ(CountResumed(order), promised);
}

TEST_P(CapacityTest, AndNotManyMore) {
  const int64_t promised = ResumableConversations(Config().cache, GetParam().tokens);
  // What was kept free for the one that runs holds a few; the rest is for places that packing
  // cannot fill.
  const int64_t more = promised + std::max<int64_t>(6, promised / 4);
  EXPECT_LT(CountResumed(Fill(more)), more);
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, CapacityTest,
    ::testing::Values(Case{"one_block_each", 1, 1, 200, 330}, Case{"short", 1, 1, 100, 70},
                      Case{"large_states", 12, 1, 120, 1042}, Case{"short_large", 12, 1, 60, 150},
                      Case{"small_states", 1, 8, 150, 530}, Case{"no_state", 4, 0, 80, 650},
                      Case{"few_long", 12, 1, 30, 3000}),
    [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace braid
