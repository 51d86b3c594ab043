// Streams of tokens give the same text as decoding at once, always in whole characters.
#include "text/tokens/detokenizer.h"

#include <gtest/gtest.h>

#include "text/test_model.h"
#include "text/tokens/utf8.h"

namespace braid {
namespace {

// All pieces of a stream; every one must be UTF-8 by itself.
std::string StreamedText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  Detokenizer detokenizer(tokenizer, skip);
  std::string text;
  for (TokenId id : ids) {
    const std::string piece = detokenizer.Push(id);
    EXPECT_TRUE(IsValidUtf8(piece));
    text += piece;
  }
  return text + detokenizer.Flush();
}

TEST(DetokenizerTest, EqualsDecodeForRandomIds) {
  const Tokenizer tokenizer = LoadBraidTiny();
  Rng rng(6);
  for (int i = 0; i < 3'000; ++i) {
    // Half of the streams are of single bytes only: mostly broken UTF-8.
    const int64_t limit = i % 2 == 0 ? tokenizer.vocabulary_size() + 10 : 256;
    std::vector<TokenId> ids(static_cast<size_t>(rng.Below(50)));
    for (TokenId& id : ids) id = static_cast<TokenId>(rng.Below(limit));
    for (bool skip : {false, true}) {
      EXPECT_EQ(StreamedText(tokenizer, ids, skip), tokenizer.Decode(ids, skip));
    }
  }
}

TEST(DetokenizerTest, EqualsDecodeForManyScripts) {
  const Tokenizer tokenizer = LoadBraidTiny();
  Rng rng(7);
  for (int i = 0; i < 200; ++i) {
    const std::vector<TokenId> ids = *tokenizer.Encode(WildText(&rng, 100), false);
    const std::string text = tokenizer.Decode(ids, false);
    EXPECT_EQ(text.find(kReplacementCharacter), std::string::npos) << text;
    EXPECT_EQ(StreamedText(tokenizer, ids, false), text);
  }
}

TEST(DetokenizerTest, AnswersAsSoonAsItIsCertain) {
  const Tokenizer tokenizer = LoadBraidTiny();
  std::vector<TokenId> globe;  // the tokens of its single bytes
  for (char byte : std::string_view("\U0001F30D")) {
    TokenId id = 0;
    while (tokenizer.TokenBytes(id) != std::string_view(&byte, 1)) ++id;
    globe.push_back(id);
  }
  Detokenizer detokenizer(tokenizer, false);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(detokenizer.Push(globe[i]), "");
  EXPECT_EQ(detokenizer.Push(globe[3]), "\U0001F30D");
  EXPECT_EQ(detokenizer.Push(globe[3]), "\uFFFD");  // a continuation byte that continues nothing
  EXPECT_EQ(detokenizer.Push(globe[0]), "");
  EXPECT_EQ(detokenizer.Push(*tokenizer.TokenToId("A")),
            "\uFFFD"
            "A");
  EXPECT_EQ(detokenizer.Push(globe[0]), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(DetokenizerTest, DropsTheFirstSpaceOnlyWhereTheDecoderDoes) {
  const std::string json = R"({
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "merges": [],
              "vocab": {"_": 0, "x": 1, "_y": 2, "<0xE4>": 3}}})";
  auto tokenizer = Tokenizer::FromJson(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  Rng rng(8);
  for (int i = 0; i < 300; ++i) {
    std::vector<TokenId> ids(static_cast<size_t>(rng.Below(6)));
    for (TokenId& id : ids) id = static_cast<TokenId>(rng.Below(5));
    EXPECT_EQ(StreamedText(*tokenizer, ids, false), tokenizer->Decode(ids, false));
  }
  EXPECT_EQ(StreamedText(*tokenizer, {2, 2}, false), "y y");
}

}  // namespace
}  // namespace braid
