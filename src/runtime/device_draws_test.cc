// What is asked of a device for each distribution, and what its answers mean.
#include "runtime/device_draws.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

namespace braid {
namespace {

using ops::gpu::DeviceDraw;
using ops::gpu::DeviceDrawn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr TokenId kEndOfThought = 99;

// Two tokens of a prompt, one of the answer.
Slot SlotOf(const std::function<void(Slot&)>& change = [](Slot&) {}) {
  Slot slot;
  slot.prompt_count = 2;
  slot.tokens = {5, 6, 7};
  slot.sampling = {.temperature = 2, .top_k = 3, .top_p = 0.5f, .min_p = 0.25f, .seed = 9};
  change(slot);
  return slot;
}

constexpr BatchRows::Wanted kSample{.position = 2, .sample = true};
constexpr BatchRows::Wanted kDescribe{.position = 0, .describe = true};
constexpr BatchRows::Wanted kLast{.position = 1, .sample = true, .describe = true};
constexpr int32_t kChooses = DeviceDraw::kChoose, kDescribes = DeviceDraw::kDescribe;

TEST(DeviceDraws, AskForWhatTheRequestWants) {
  const auto logprobs = [](int32_t of_answer, int32_t of_prompt) {
    return [=](Slot& s) {
      s.logprobs = of_answer;
      s.prompt_logprobs = of_prompt;
    };
  };
  const struct {
    const char* what;
    Slot slot;
    BatchRows::Wanted wanted;
    int32_t flags, next;
  } cases[] = {
      {"a token", SlotOf(), kSample, kChooses, -1},
      {"its log-probability", SlotOf(logprobs(0, -1)), kSample, kChooses | kDescribes, -1},
      {"and others", SlotOf(logprobs(3, 7)), kSample, kChooses | kDescribes | 3, -1},
      {"a prompt's", SlotOf(logprobs(7, 0)), kDescribe, kDescribes, 6},
      {"and others of a prompt", SlotOf(logprobs(7, 4)), kDescribe, kDescribes | 4, 6},
      {"both", SlotOf(logprobs(2, 4)), kLast, kChooses | kDescribes | 4, -1},
      {"both, the other more", SlotOf(logprobs(5, 4)), kLast, kChooses | kDescribes | 5, -1},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    const DeviceDraw draw = DrawOf(c.slot, c.wanted);
    EXPECT_EQ(draw.flags, c.flags);
    EXPECT_EQ(draw.next, c.next);
    EXPECT_EQ(draw.position, c.wanted.position + 1);
    EXPECT_EQ(draw.seed, 9u);
    EXPECT_EQ(draw.scale, 0.5f);
    EXPECT_EQ(draw.top_k, 3);
    EXPECT_EQ(draw.top_p, 0.5f);
    EXPECT_EQ(draw.min_p, 0.25f);
  }
  EXPECT_EQ(DrawOf(SlotOf([](Slot& s) { s.sampling.temperature = 0; }), kSample).scale, 0.0f);
}

TEST(DeviceDraws, AForcedTokenIsDescribedAndNotChosen) {
  const Slot forced =
      SlotOf([](Slot& s) { s.thinking = {.tokens_max = 1, .open = -1, .close = kEndOfThought}; });
  EXPECT_EQ(DrawOf(forced, kSample).next, kEndOfThought);
  EXPECT_EQ(DrawOf(forced, kSample).flags, kDescribes);
  EXPECT_EQ(DraftDrawOf(forced, 3).next, kEndOfThought);
  EXPECT_EQ(DraftDrawOf(forced, 3).flags, 0);
  EXPECT_EQ(DraftDrawOf(forced, 2).next, -1);
  EXPECT_EQ(DraftDrawOf(forced, 2).flags, kChooses);
  EXPECT_EQ(DraftDrawOf(forced, 2).position, 2);
  DeviceDrawn drawn{.sum = uint64_t{1} << 40, .token = 4, .finite = 1, .next_logit = -1};
  Choice choice;
  TakeChoice(drawn, forced, kSample, choice);
  EXPECT_EQ(choice.token, kEndOfThought);
  const Slot told = SlotOf([&](Slot& s) {
    s.thinking = forced.thinking;
    s.logprobs = 0;
  });
  TakeChoice(drawn, told, kSample, choice);
  EXPECT_EQ(choice.logprob.token, kEndOfThought);
  EXPECT_FLOAT_EQ(choice.logprob.logprob, -1) << "of the forced token's logit";
}

TEST(DeviceDraws, TheHostDrawsWhatADeviceCannot) {
  const struct {
    const char* what;
    std::function<void(Slot&)> change;
    bool sampled, described;  // there
  } cases[] = {
      {"nothing special", [](Slot&) {}, true, true},
      {"as many as fit", [](Slot& s) { s.logprobs = s.prompt_logprobs = 20; }, true, true},
      {"more of the answer", [](Slot& s) { s.logprobs = 21; }, false, true},
      {"more of the prompt", [](Slot& s) { s.prompt_logprobs = 21; }, true, false},
      {"a grammar", [](Slot& s) { s.grammar = "g"; }, false, true},
      {"a penalty", [](Slot& s) { s.sampling.presence_penalty = 1; }, false, true},
      {"stops that may not come",
       [](Slot& s) { s.stop = {.stop_tokens = {4}, .new_tokens_min = 2}; }, false, true},
      {"stops that may come", [](Slot& s) { s.stop = {.stop_tokens = {4}, .new_tokens_min = 1}; },
       true, true},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    const Slot slot = SlotOf(c.change);
    EXPECT_EQ(DeviceDraws(slot, kSample), c.sampled);
    EXPECT_EQ(DeviceDraws(slot, kDescribe), c.described);
    EXPECT_EQ(DrawOf(slot, kSample).flags == 0, !c.sampled) << "nothing is asked for then";
  }
  // A token that follows and one that is chosen are both the draw's `next`.
  const BatchRows::Wanted both{.position = 0, .sample = true, .describe = true};
  EXPECT_FALSE(DeviceDraws(SlotOf(), both));
  EXPECT_TRUE(DeviceDraws(SlotOf(), kLast));
}

TEST(DeviceDraws, OnlyThePromptFollows) {
  EXPECT_EQ(FollowingToken(SlotOf(), 0), 6);
  EXPECT_EQ(FollowingToken(SlotOf(), 1), -1) << "what comes then is output";
}

TEST(DeviceDraws, AnswersBecomeLogProbabilities) {
  // exp(logit - 1) sums to 4.
  DeviceDrawn drawn{.sum = uint64_t{4} << 40,
                    .token = 3,
                    .finite = 1,
                    .most = 1,
                    .token_logit = 0.5f,
                    .next_logit = -2,
                    .best_count = 4,
                    .best = {{8, 0.5f}, {2, 1.0f}, {3, 0.5f}, {1, 0.25f}}};
  const float log_four = std::log(4.0f);
  const TokenLogprob three = DescriptionOf(drawn, 3, 0.5f, 3);
  EXPECT_EQ(three.token, 3);
  EXPECT_FLOAT_EQ(three.logprob, 0.5f - 1 - log_four);
  ASSERT_THAT(three.top,
              ElementsAre(Pair(2, ::testing::_), Pair(3, ::testing::_), Pair(8, ::testing::_)))
      << "ties by the smaller id";
  EXPECT_FLOAT_EQ(three.top[0].second, -log_four);
  EXPECT_FLOAT_EQ(three.top[2].second, 0.5f - 1 - log_four);
  EXPECT_EQ(DescriptionOf(drawn, 3, 0.5f, 9).top.size(), 4u);
  EXPECT_TRUE(DescriptionOf(drawn, 3, 0.5f, -1).top.empty());
  EXPECT_EQ(DescriptionOf(drawn, -1, 0.5f, 1).logprob, 0) << "nothing follows";

  Choice choice;
  TakeChoice(drawn, SlotOf(), kSample, choice);
  EXPECT_EQ(choice.token, 3);
  EXPECT_EQ(choice.logprob, TokenLogprob()) << "not asked for";
  TakeChoice(drawn, SlotOf([](Slot& s) { s.logprobs = 1; }), kSample, choice);
  EXPECT_EQ(choice.logprob.token, 3);
  EXPECT_FLOAT_EQ(choice.logprob.logprob, 0.5f - 1 - log_four);
  EXPECT_EQ(choice.logprob.top.size(), 1u);
  drawn.finite = 0;
  EXPECT_TRUE(std::isnan(DescriptionOf(drawn, 3, 0.5f, 1).logprob));
  Choice failed;
  TakeChoice(drawn, SlotOf(), kSample, failed);
  EXPECT_THAT(failed.error, HasSubstr("not finite"));
  EXPECT_EQ(failed.token, -1);
}

}  // namespace
}  // namespace braid
