// Which token a row's logits give under a request's sampling and stop rules.
#include "runtime/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "ops/testing/test_context.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 6;
// Token 4 is the most likely, then 2, then 5.
const std::vector<float> kLogits = {0.0f, 0.5f, 3.0f, 1.0f, 4.0f, 2.0f};

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() {
    slot_.prompt_count = 2;
    slot_.tokens = {0, 1};
    slot_.sampling.temperature = 0;
  }
  Choice Choose(const std::vector<float>& logits = kLogits) {
    Choice result;
    const Sampler::Place place{.slot = slot_,
                               .position = static_cast<int32_t>(slot_.tokens.size()),
                               .forced = forced_,
                               .allowed = allowed_ ? &*allowed_ : nullptr};
    sampler_.Choose(test_.context, place, logits, result);
    return result;
  }
  // Greedy, or with a seed: the token, or -1 with an error.
  TokenId Token() {
    const Choice result = Choose();
    EXPECT_EQ(result.error, "");
    return result.token;
  }

  ops::TestContext test_{Isa::kBase};
  Sampler sampler_{kVocabulary, 0, 1};
  Slot slot_;
  TokenId forced_ = -1;
  std::optional<uint32_t> allowed_;  // bit i: token i may come
};

TEST_F(SamplerTest, TemperatureZeroTakesTheLargestLogit) { EXPECT_EQ(Token(), 4); }

TEST_F(SamplerTest, StopTokensCannotComeBeforeTheLeastNumberOfTokens) {
  slot_.stop.stop_tokens = {4, 2};
  slot_.stop.new_tokens_min = 2;
  EXPECT_EQ(Token(), 5) << "no output yet";
  slot_.tokens.push_back(5);
  EXPECT_EQ(Token(), 5) << "one token of two";
  slot_.tokens.push_back(5);
  EXPECT_EQ(Token(), 4) << "two of two";
  slot_.tokens.resize(2);
  slot_.stop.new_tokens_min = 0;
  EXPECT_EQ(Token(), 4);
}

TEST_F(SamplerTest, TheLeastNumberOfTokensCountsOutputAndNotThePrompt) {
  slot_.prompt_count = 4;
  slot_.tokens = {0, 1, 2, 3};
  slot_.stop.stop_tokens = {4};
  slot_.stop.new_tokens_min = 1;
  EXPECT_EQ(Token(), 2);
}

TEST_F(SamplerTest, BiasIsAddedToItsTokenOnly) {
  slot_.sampling.logit_bias = {{1, 3.75f}};
  EXPECT_EQ(Token(), 1);
  slot_.sampling.logit_bias = {{1, 3.25f}};
  EXPECT_EQ(Token(), 4);
  slot_.sampling.logit_bias = {{4, -100.0f}, {2, -100.0f}};
  EXPECT_EQ(Token(), 5);
}

TEST_F(SamplerTest, EachPenaltyAloneChangesTheChoice) {
  slot_.tokens = {0, 4, 4, 4};  // the prompt has the 4 once, the output twice
  slot_.sampling.repetition_penalty = 2;
  EXPECT_EQ(Token(), 2);
  slot_.sampling.repetition_penalty = 1;
  slot_.sampling.presence_penalty = 1.5f;
  EXPECT_EQ(Token(), 2);
  slot_.sampling.presence_penalty = 0.75f;
  EXPECT_EQ(Token(), 4);
  slot_.sampling.presence_penalty = 0;
  slot_.sampling.frequency_penalty = 0.75f;
  EXPECT_EQ(Token(), 2);
  slot_.tokens.pop_back();
  EXPECT_EQ(Token(), 4);
}

TEST_F(SamplerTest, OnlyAllowedTokensCome) {
  allowed_ = 0b001010;
  EXPECT_EQ(Token(), 3);
  allowed_ = 0b000001;
  EXPECT_EQ(Token(), 0);
  allowed_ = 0;
  const Choice none = Choose();
  EXPECT_THAT(none.error, HasSubstr("no token may come next"));
  EXPECT_EQ(none.error_code, ErrorCode::kInvalid);
}

TEST_F(SamplerTest, WhereEveryTokenIsMaskedThereIsAnError) {
  slot_.stop.stop_tokens = {0, 1, 2, 3, 4, 5};
  slot_.stop.new_tokens_min = 1;
  for (const float temperature : {0.0f, 1.0f}) {
    slot_.sampling.temperature = temperature;
    EXPECT_THAT(Choose().error, HasSubstr("no token may come next"));
  }
}

TEST_F(SamplerTest, APenaltyThatLeavesNoFiniteLogitIsAnError) {
  slot_.tokens = {4, 4};
  slot_.sampling.repetition_penalty = 1e-38f;
  slot_.sampling.temperature = 1;
  EXPECT_THAT(Choose({0.0f, 0.0f, 0.0f, 0.0f, 1e3f, 0.0f}).error, HasSubstr("no token"));
}

TEST_F(SamplerTest, AConstraintAndTheLeastNumberOfTokensHoldTogether) {
  allowed_ = 0b010100;
  slot_.stop.stop_tokens = {4};
  slot_.stop.new_tokens_min = 1;
  EXPECT_EQ(Token(), 2);
  allowed_ = 0b010000;
  EXPECT_THAT(Choose().error, HasSubstr("other limits"));
}

TEST_F(SamplerTest, TokensPastTheSampledVocabularyNeverCome) {
  Sampler fewer(kVocabulary, 4, 1);
  Choice result;
  fewer.Choose(test_.context, {.slot = slot_, .position = 2}, kLogits, result);
  EXPECT_EQ(result.token, 2);
  slot_.sampling.temperature = 5;
  for (int32_t position = 2; position < 200; ++position) {
    fewer.Choose(test_.context, {.slot = slot_, .position = position}, kLogits, result);
    ASSERT_LT(result.token, 4);
  }
}

TEST_F(SamplerTest, AForcedTokenComesWhateverTheLogitsSay) {
  forced_ = 0;
  EXPECT_EQ(Token(), 0);
  allowed_ = 0b010000;
  EXPECT_EQ(Token(), 0);
}

TEST_F(SamplerTest, ADrawIsAFunctionOfTheSeedAndThePosition) {
  slot_.sampling.temperature = 2;
  const auto draws = [&](uint64_t seed) {
    slot_.sampling.seed = seed;
    slot_.tokens.resize(2);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 40; ++i) {
      tokens.push_back(Token());
      slot_.tokens.push_back(tokens.back());
    }
    return tokens;
  };
  const std::vector<TokenId> first = draws(7);
  EXPECT_EQ(draws(7), first);
  EXPECT_NE(draws(8), first);
  EXPECT_GT(std::set<TokenId>(first.begin(), first.end()).size(), 1u) << "the position counts";
}

TEST_F(SamplerTest, FiltersOfTheRequestReachTheDraw) {
  slot_.sampling.temperature = 100;
  slot_.sampling.top_k = 1;
  EXPECT_EQ(Token(), 4);
  slot_.sampling.top_k = 0;
  slot_.sampling.top_p = 1e-6f;
  EXPECT_EQ(Token(), 4);
  slot_.sampling.top_p = 1;
  slot_.sampling.min_p = 1;
  EXPECT_EQ(Token(), 4);
}

// While a step runs, drafts stand behind the tokens that count.
TEST_F(SamplerTest, TokensFromThePositionOnHaveNoSay) {
  slot_.tokens = {0, 1, 4, 4};
  const auto at = [&](int32_t position) {
    return sampler_.Draw(test_.context, {.slot = slot_, .position = position}, kLogits);
  };
  slot_.sampling.presence_penalty = 10;
  EXPECT_EQ(at(2), 4);
  EXPECT_EQ(at(3), 2);
  slot_.sampling.presence_penalty = 0;
  slot_.sampling.frequency_penalty = 0.75f;
  EXPECT_EQ(at(3), 4);
  EXPECT_EQ(at(4), 2);
  slot_.sampling.frequency_penalty = 0;
  slot_.stop = {.stop_tokens = {4}, .new_tokens_min = 2};
  EXPECT_EQ(at(3), 2);
  EXPECT_EQ(at(4), 4);
}

TEST_F(SamplerTest, ADrawIsTheTokenThatAChoiceWouldTake) {
  slot_.sampling = {.temperature = 2, .top_p = 0.9f, .seed = 11};
  std::set<TokenId> seen;
  for (int32_t position = 2; position < 60; ++position) {
    const Sampler::Place place{.slot = slot_, .position = position};
    Choice choice;
    sampler_.Choose(test_.context, place, kLogits, choice);
    EXPECT_EQ(sampler_.Draw(test_.context, place, kLogits), choice.token);
    seen.insert(choice.token);
  }
  EXPECT_GT(seen.size(), 2u);
  const auto draw = [&](const std::vector<float>& logits, TokenId forced, const uint32_t* allowed) {
    const Sampler::Place place{.slot = slot_, .position = 2, .forced = forced, .allowed = allowed};
    return sampler_.Draw(test_.context, place, logits);
  };
  EXPECT_EQ(draw(kLogits, 0, nullptr), 0) << "a token that is forced";
  const uint32_t none = 0;
  EXPECT_EQ(draw(kLogits, -1, &none), -1);
  std::vector<float> bad = kLogits;
  bad[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(draw(bad, -1, nullptr), -1);
  EXPECT_EQ(draw(bad, 0, nullptr), -1) << "a forced token too";
}

TEST_F(SamplerTest, EveryRuleThatChangesLogitsIsKnown) {
  const auto adjusts = [&](auto change) {
    Slot slot = slot_;
    change(slot);
    return Sampler::Adjusts(slot, 3);  // after one token of output
  };
  EXPECT_FALSE(adjusts([](Slot&) {}));
  EXPECT_TRUE(adjusts([](Slot& s) { s.sampling.logit_bias = {{1, 0.5f}}; }));
  EXPECT_TRUE(adjusts([](Slot& s) { s.sampling.repetition_penalty = 1.5f; }));
  EXPECT_TRUE(adjusts([](Slot& s) { s.sampling.presence_penalty = -1; }));
  EXPECT_TRUE(adjusts([](Slot& s) { s.sampling.frequency_penalty = 1; }));
  EXPECT_TRUE(adjusts([](Slot& s) { s.stop = {.stop_tokens = {4}, .new_tokens_min = 2}; }));
  EXPECT_FALSE(adjusts([](Slot& s) { s.stop = {.stop_tokens = {4}, .new_tokens_min = 1}; }));
  EXPECT_FALSE(adjusts([](Slot& s) { s.stop.new_tokens_min = 2; })) << "nothing is masked";
  EXPECT_FALSE(adjusts([](Slot& s) { s.sampling.temperature = 2; }));
}

// Each member of the pool has memory of its own, and what one request masks is another's no more.
TEST_F(SamplerTest, RequestsDoNotSeeEachOther) {
  Sampler two(kVocabulary, 0, 2);
  EXPECT_EQ(two.sampled_vocabulary(), kVocabulary);
  EXPECT_EQ(Sampler(kVocabulary, 4, 2).sampled_vocabulary(), 4);
  Slot biased = slot_;
  biased.sampling.logit_bias = {{0, 100.0f}};
  Slot scaled = slot_;
  scaled.sampling.repetition_penalty = 1.01f;
  for (const int member : {0, 1, 0}) {
    const auto draw = [&](const Slot& slot) {
      return two.Draw(test_.context, {.slot = slot, .position = 2, .member = member}, kLogits);
    };
    EXPECT_EQ(draw(biased), 0);
    EXPECT_EQ(draw(scaled), 4);
    EXPECT_EQ(draw(slot_), 4);
  }
}

TEST_F(SamplerTest, LogitsThatAreNotFiniteAreAnErrorOfTheRow) {
  std::vector<float> logits = kLogits;
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  const Choice result = Choose(logits);
  EXPECT_THAT(result.error, HasSubstr("not finite"));
  EXPECT_EQ(result.error_code, ErrorCode::kInternal);
}

TEST_F(SamplerTest, LogprobsAreThoseOfTheModelAndOnlyWhenAskedFor) {
  EXPECT_EQ(Choose().logprob.token, -1);
  slot_.logprobs = 2;
  slot_.sampling.logit_bias = {{1, 100.0f}};
  const Choice result = Choose();
  EXPECT_EQ(result.token, 1);
  EXPECT_EQ(result.logprob.token, 1);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(double{logit});
  EXPECT_NEAR(result.logprob.logprob, 0.5 - std::log(sum), 1e-5) << "without the bias";
  ASSERT_EQ(result.logprob.top.size(), 2u);
  EXPECT_EQ(result.logprob.top[0].first, 4);
  EXPECT_EQ(result.logprob.top[1].first, 2);
  slot_.logprobs = 0;
  EXPECT_EQ(Choose().logprob.token, 1);
}

TEST_F(SamplerTest, DescribeTellsTheTokenThatFollowsOrNone) {
  const TokenLogprob next = Sampler::Describe(test_.context, kLogits, 1, 3);
  EXPECT_EQ(next.token, 3);
  EXPECT_NEAR(next.logprob - next.top[0].second, 1.0 - 4.0, 1e-5);
  const TokenLogprob none = Sampler::Describe(test_.context, kLogits, 3, -1);
  EXPECT_EQ(none.token, -1);
  EXPECT_EQ(none.top.size(), 3u);
}

}  // namespace
}  // namespace braid
