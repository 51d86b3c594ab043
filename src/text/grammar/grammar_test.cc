// Masks over the shipped vocabulary: what they allow is of the grammar, and wrong ones are errors.
#include "text/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "base/json.h"
#include "text/test_model.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPersonSchema = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "age"],
  "properties": {"name": {"type": "string", "maxLength": 8}, 
                 "age": {"type": "integer", "minimum": 0, "maximum": 150},
                 "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}})";

class GrammarTest : public testing::Test {
 protected:
  GrammarTest() : tokenizer_(LoadBraidTiny()), end_(*tokenizer_.TokenToId("<|im_end|>")) {
    auto grammars = Grammars::Create(tokenizer_, end_);
    CHECK(grammars.ok());
    grammars_ = std::make_unique<Grammars>(*std::move(grammars));
  }

  GrammarMatcher Compile(GrammarKind kind, std::string_view source) {
    auto matcher = grammars_->Compile(kind, source);
    CHECK(matcher.ok());
    return *std::move(matcher);
  }

  std::string CompileError(GrammarKind kind, std::string_view source) {
    auto matcher = grammars_->Compile(kind, source);
    return matcher ? "compiled" : matcher.error().message;
  }

  // The allowed ids; the mask has rows beyond the vocabulary, as a model's logits have.
  std::vector<TokenId> Allowed(GrammarMatcher* matcher) {
    std::vector<uint32_t> words(4096 / 32, 0xFFFFFFFF);
    const Status status = matcher->Mask(words);
    EXPECT_TRUE(status) << status.error().message;
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < 4096; ++id) {
      if (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) ids.push_back(id);
    }
    return ids;
  }

  // Random allowed tokens until the end token or `tokens_max`.
  std::string Sample(GrammarMatcher* matcher, Rng* rng, int tokens_max, bool* ended) {
    std::vector<TokenId> ids;
    *ended = false;
    for (int i = 0; i < tokens_max; ++i) {
      const std::vector<TokenId> allowed = Allowed(matcher);
      if (allowed.empty()) break;
      const TokenId id =
          allowed[static_cast<size_t>(rng->Below(static_cast<int64_t>(allowed.size())))];
      *ended = id == end_;
      if (*ended) break;
      const Status accepted = matcher->Accept(id);
      EXPECT_TRUE(accepted) << accepted.error().message;
      ids.push_back(id);
    }
    return tokenizer_.Decode(ids, false);
  }

  Tokenizer tokenizer_;
  TokenId end_;
  std::unique_ptr<Grammars> grammars_;
};

TEST_F(GrammarTest, RandomTokensUnderASchemaAreJsonOfThatSchema) {
  Rng rng(12);
  int whole = 0;
  for (int i = 0; i < 60; ++i) {
    GrammarMatcher matcher = Compile(GrammarKind::kJsonSchema, kPersonSchema);
    bool ended = false;
    const std::string text = Sample(&matcher, &rng, 200, &ended);
    if (!ended) continue;
    ++whole;
    EXPECT_TRUE(*matcher.Complete());
    auto value = ParseJson(text, "sample");
    ASSERT_TRUE(value) << text;
    const json::object& person = value->get_object();
    EXPECT_TRUE(person.at("name").is_string());
    const int64_t age = person.at("age").get_int64();
    EXPECT_TRUE(age >= 0 && age <= 150) << text;
    for (const auto& [key, unused] : person) {
      EXPECT_THAT(std::string(key), testing::AnyOf("name", "age", "tags"));
    }
  }
  EXPECT_GT(whole, 20);
}

TEST_F(GrammarTest, ARegularExpressionLeavesOneWay) {
  GrammarMatcher matcher = Compile(GrammarKind::kRegex, "(yes|no)!");
  Rng rng(13);
  bool ended = false;
  EXPECT_FALSE(*matcher.Complete());
  EXPECT_THAT(Sample(&matcher, &rng, 10, &ended), testing::AnyOf("yes!", "no!"));
  EXPECT_TRUE(ended);
  EXPECT_THAT(Allowed(&matcher), testing::ElementsAre(end_));
}

TEST_F(GrammarTest, ALarkGrammarCounts) {
  GrammarMatcher matcher = Compile(GrammarKind::kLark, "start: \"(\" start \")\" | \"x\"");
  for (std::string_view token : {"(", "(", "x", ")"}) {
    EXPECT_TRUE(matcher.Accept(*tokenizer_.TokenToId(token)));
    EXPECT_FALSE(*matcher.Complete());
  }
  EXPECT_TRUE(matcher.Accept(*tokenizer_.TokenToId(")")));
  EXPECT_TRUE(*matcher.Complete());
}

TEST_F(GrammarTest, AForbiddenTokenIsAnErrorFromThenOn) {
  GrammarMatcher matcher = Compile(GrammarKind::kRegex, "[0-9]+");
  EXPECT_TRUE(matcher.Accept(*tokenizer_.TokenToId("7")));
  EXPECT_FALSE(matcher.Accept(*tokenizer_.TokenToId("x")));
  EXPECT_FALSE(matcher.Accept(*tokenizer_.TokenToId("7")));
  std::vector<uint32_t> words(128);
  EXPECT_FALSE(matcher.Mask(words));
  for (TokenId id : {-1, 4095, 2147483647}) {
    GrammarMatcher other = Compile(GrammarKind::kRegex, "[0-9]+");
    EXPECT_FALSE(other.Accept(id)) << id;
  }
}

// Walks a random text, and at every token a random detour that is taken back.
TEST_F(GrammarTest, TakingTokensBackLeavesTheMasksThatWereThere) {
  Rng rng(5);
  for (int walk = 0; walk < 20; ++walk) {
    GrammarMatcher plain = Compile(GrammarKind::kJsonSchema, kPersonSchema);
    GrammarMatcher wandering = Compile(GrammarKind::kJsonSchema, kPersonSchema);
    const auto any = [&](const std::vector<TokenId>& of) {
      return of[static_cast<size_t>(rng.Below(static_cast<int64_t>(of.size())))];
    };
    for (int i = 0; i < 60; ++i) {
      size_t detour = 0;
      for (; detour < 7 && rng.Below(4) != 0; ++detour) {
        const TokenId id = any(Allowed(&wandering));
        if (id == end_) break;
        ASSERT_TRUE(wandering.Accept(id).ok());
      }
      std::array<TokenId, 4> forced;
      if (rng.Below(2) == 0) {
        ASSERT_TRUE(wandering.Forced(forced).ok());
      }
      const Status back = wandering.Rewind(detour);
      ASSERT_TRUE(back.ok()) << back.error().message;
      const std::vector<TokenId> allowed = Allowed(&plain);
      ASSERT_EQ(Allowed(&wandering), allowed) << "walk " << walk << ", token " << i;
      const TokenId next = any(allowed);
      if (next == end_) break;
      ASSERT_TRUE(plain.Accept(next).ok() && wandering.Accept(next).ok());
    }
  }
}

TEST_F(GrammarTest, ForcedTokensAreTheTextThatMustComeThenTheEnd) {
  GrammarMatcher matcher = Compile(GrammarKind::kRegex, "yes, of course[.!]");
  std::array<TokenId, 16> tokens;
  const auto forced = [&] {
    const Result<size_t> count = matcher.Forced(tokens);
    EXPECT_TRUE(count.ok());
    return std::vector<TokenId>(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(*count));
  };
  const std::vector<TokenId> start = forced();
  EXPECT_EQ(tokenizer_.Decode(start, false), "yes, of course");
  for (const TokenId id : start) ASSERT_TRUE(matcher.Accept(id).ok());
  EXPECT_THAT(forced(), testing::IsEmpty());
  ASSERT_TRUE(matcher.Accept(*tokenizer_.TokenToId("!")).ok());
  EXPECT_THAT(forced(), testing::ElementsAre(end_));
  EXPECT_EQ(*matcher.Forced(std::span(tokens).first(0)), 0u);
}

TEST_F(GrammarTest, AGrammarThatCountsTokensCannotTakeThemBack) {
  GrammarMatcher matcher =
      Compile(GrammarKind::kLark, "start: words \"!\"\nwords[max_tokens=3]: /[a-z ]*/");
  ASSERT_TRUE(matcher.Accept(*tokenizer_.TokenToId("a")).ok());
  EXPECT_FALSE(matcher.Rewind(1).ok());
}

TEST_F(GrammarTest, WrongOrHugeGrammarsAreErrors) {
  EXPECT_THAT(CompileError(GrammarKind::kJsonSchema, "{\"type\": "), HasSubstr("not valid JSON"));
  EXPECT_THAT(CompileError(GrammarKind::kJsonSchema, "{\"type\": \"nope\"}"), HasSubstr("nope"));
  EXPECT_THAT(CompileError(GrammarKind::kRegex, "(unclosed"), testing::Ne("compiled"));
  EXPECT_THAT(CompileError(GrammarKind::kLark, "start: nothing"), HasSubstr("nothing"));
  EXPECT_THAT(CompileError(GrammarKind::kRegex, std::string((1 << 20) + 1, 'a')),
              HasSubstr("at most 1048576"));
  EXPECT_THAT(CompileError(GrammarKind::kRegex, "\xFF"), HasSubstr("not valid UTF-8"));
  const double start = CpuSeconds();
  GrammarMatcher huge = Compile(GrammarKind::kRegex, "((((a{1000}){1000}){1000}){1000})");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(huge.Accept(Allowed(&huge).front()));
  EXPECT_NE(CompileError(GrammarKind::kRegex, std::string(5'000, '(')), "compiled");
  EXPECT_NE(CompileError(GrammarKind::kJsonSchema, std::string(10'000, '[')), "compiled");
  const double seconds = CpuSeconds() - start;
  EXPECT_LT(seconds, 10);
}

// 300 ways to read each byte are too many to look at for every token.
TEST_F(GrammarTest, AMaskThatNeedsTooMuchWorkIsAnError) {
  std::string rules = "start: x*\nx:";
  for (int i = 0; i < 300; ++i) rules += fmt::format("{} n{}", i > 0 ? " |" : "", i);
  for (int i = 0; i < 300; ++i) rules += fmt::format("\nn{}: /[a-z]/ /[{:c}]/", i, 'a' + i % 26);
  GrammarMatcher matcher = Compile(GrammarKind::kLark, rules);
  std::vector<uint32_t> words(4096 / 32);
  const Status status = matcher.Mask(words);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(status.error().message, HasSubstr("limit 50000"));
}

TEST_F(GrammarTest, TheEndTokenMustExist) {
  for (TokenId end : {-1, 4073}) EXPECT_FALSE(Grammars::Create(tokenizer_, end));
}

}  // namespace
}  // namespace braid
