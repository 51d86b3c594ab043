// The model made of hashes, and the answers that requests must get from it.
#include "sim/hash_lm.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

using ::testing::ElementsAre;

constexpr HashLm kLm{50};

Request Make(int32_t new_tokens) {
  Request r;
  r.prompt = {1, 2, 3};
  r.stop.new_tokens_max = new_tokens;
  return r;
}

TEST(HashLm, ATokenDependsOnAllTokensBeforeItAndOnTheirOrder) {
  const auto state = [](std::vector<TokenId> tokens) {
    uint64_t prefix = kEmptyPrefix;
    for (TokenId token : tokens) prefix = AppendToken(prefix, token);
    return prefix;
  };
  EXPECT_NE(state({1, 2, 3}), state({2, 1, 3}));
  EXPECT_NE(state({1, 2, 3}), state({0, 2, 3}));
  EXPECT_NE(state({0}), state({}));
  EXPECT_NE(state({0, 0}), state({0}));
}

TEST(HashLm, GreedyTokensIgnoreTheSeedAndDrawnOnesDependOnSeedAndPosition) {
  Request a = Make(1), b = Make(1);
  b.sampling.seed = 9;
  int differ_by_seed = 0, differ_by_position = 0;
  for (uint64_t prefix = 1; prefix <= 100; ++prefix) {
    a.sampling.temperature = b.sampling.temperature = 0;
    EXPECT_EQ(kLm.Next(a, prefix, 5, 0), kLm.Greedy(prefix));
    EXPECT_EQ(kLm.Next(b, prefix, 6, 0), kLm.Greedy(prefix));
    a.sampling.temperature = b.sampling.temperature = 1;
    differ_by_seed += kLm.Next(a, prefix, 5, 0) != kLm.Next(b, prefix, 5, 0);
    differ_by_position += kLm.Next(a, prefix, 5, 0) != kLm.Next(a, prefix, 6, 0);
  }
  EXPECT_GT(differ_by_seed, 80);
  EXPECT_GT(differ_by_position, 80);
}

TEST(HashLm, StopTokensDoNotComeBeforeTheLeastLength) {
  Request r = Make(5);
  r.stop.new_tokens_min = 3;
  const TokenId greedy = kLm.Greedy(77);
  r.stop.stop_tokens = {greedy, (greedy + 1) % 50};
  std::sort(r.stop.stop_tokens.begin(), r.stop.stop_tokens.end());
  EXPECT_EQ(kLm.Next(r, 77, 5, 2), (greedy + 2) % 50);
  EXPECT_EQ(kLm.Next(r, 77, 5, 3), greedy);
  // Where every token stops there is no other to take.
  for (TokenId t = 0; t < 50; ++t) r.stop.stop_tokens.push_back(t);
  std::sort(r.stop.stop_tokens.begin(), r.stop.stop_tokens.end());
  EXPECT_EQ(kLm.Next(r, 77, 5, 2), greedy);
}

TEST(HashLm, ADistributionFallsFromTheGreedyTokenAndSumsToOne) {
  constexpr HashLm kWide{2000};
  const TokenLogprob all = kWide.Distribution(5, -1, 2000);
  EXPECT_EQ(all.token, -1);
  EXPECT_EQ(all.logprob, 0.0f);
  ASSERT_EQ(all.top.size(), 2000u);
  EXPECT_EQ(all.top[0].first, kWide.Greedy(5));
  EXPECT_EQ(all.top[1].first, (kWide.Greedy(5) + 1) % 2000);
  EXPECT_FLOAT_EQ(all.top[0].second - all.top[1].second, 0.5f);
  double sum = 0;
  for (const auto& [token, logprob] : all.top) sum += std::exp(double{logprob});
  EXPECT_NEAR(sum, 1, 1e-5);
  const TokenLogprob third = kWide.Distribution(5, all.top[2].first, 1);
  EXPECT_EQ(third.logprob, all.top[2].second);
  EXPECT_EQ(third.top.size(), 1u);
  EXPECT_EQ(kLm.Distribution(5, 3, 1000).top.size(), 50u);
}

TEST(Oracle, AnAnswerEndsAtItsLengthOrTheContextOrAStopToken) {
  const OracleAnswer whole = AskOracle(kLm, Make(20), 100);
  EXPECT_EQ(whole.tokens.size(), 20u);
  EXPECT_EQ(whole.finish, FinishReason::kLength);
  const OracleAnswer cut = AskOracle(kLm, Make(20), 10);
  EXPECT_EQ(cut.tokens.size(), 7u);
  EXPECT_EQ(cut.finish, FinishReason::kLength);
  EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), whole.tokens.begin()));
  Request stops = Make(20);
  stops.stop.stop_tokens = {whole.tokens[4]};
  const OracleAnswer stopped = AskOracle(kLm, stops, 100);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.tokens.back(), whole.tokens[4]);
  EXPECT_LE(stopped.tokens.size(), 5u);
  EXPECT_THAT(AskOracle(kLm, Make(0), 100).tokens, ElementsAre());
}

TEST(Oracle, AnAnswerIsAsLongAsItMustBeBeforeItMayStop) {
  Request r = Make(20);
  r.stop.new_tokens_min = 6;
  for (TokenId t = 0; t < 49; ++t) r.stop.stop_tokens.push_back(t);
  const OracleAnswer answer = AskOracle(kLm, r, 100);
  ASSERT_GE(answer.tokens.size(), 7u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(answer.tokens[i], 49);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
}

}  // namespace
}  // namespace braid
