// The JSON forms of ids and log-probabilities.
#include "cli/terminal/token_output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/rng.h"

namespace braid {
namespace {

TEST(TokenOutput, EveryFloatCanBeReadBack) {
  Rng rng(7);
  for (int i = 0; i < 2000; ++i) {
    const float value = static_cast<float>(-std::exp(30 * (rng.Uniform() - 0.6)));
    std::string text;
    AppendLogprob(text, value);
    EXPECT_EQ(std::strtof(text.c_str(), nullptr), value) << text;
  }
}

TEST(TokenOutput, TopEntriesAreObjects) {
  std::string text;
  AppendTop(text, {.token = 3, .logprob = -1, .top = {{3, -0.5f}, {1, -2.0f}}});
  EXPECT_EQ(text, R"([{"id":3,"logprob":-0.5},{"id":1,"logprob":-2}])");
}

TEST(TokenOutput, ReadsIdsAndNamesTheWrongOne) {
  const auto ids = TokenIdsOf(*ParseJson("[0, 9, 3]", "test"), "token_ids", 10);
  ASSERT_TRUE(ids);
  EXPECT_EQ(*ids, (std::vector<TokenId>{0, 9, 3}));
  for (const char* text : {"[]", "3", "\"1\"", "[1, 10]", "[-1]", "[1.5]", "[null]", "[1e3]"}) {
    EXPECT_FALSE(TokenIdsOf(*ParseJson(text, "test"), "token_ids", 10)) << text;
  }
  const auto wrong = TokenIdsOf(*ParseJson("[1, 2, 10]", "test"), "token_ids", 10);
  EXPECT_NE(wrong.error().message.find("token_ids[2] is 10"), std::string::npos);
}

}  // namespace
}  // namespace braid
