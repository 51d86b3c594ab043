// Round trips, limits and damaged files of the tokenizer.
#include "text/tokens/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>

#include "base/check.h"
#include "base/json.h"
#include "base/system/file.h"
#include "text/test_model.h"

namespace braid {
namespace {

using testing::HasSubstr;

// A byte-level vocabulary of a, b, ab and one special and one plain added token.
constexpr std::string_view kSmall = R"({
  "added_tokens": [
    {"id": 3, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true},
    {"id": 4, "content": "<call>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": false}],
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
              "use_regex": false},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 6}, "merges": [["a", "b"]]}})";

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text(kSmall);
  const size_t at = text.find(from);
  CHECK(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string LoadError(std::string_view tokenizer_json) {
  auto tokenizer = Tokenizer::FromJson(tokenizer_json);
  return tokenizer ? "loaded" : tokenizer.error().message;
}

// What tests cuts: words, runs, digits, white space, marks, added tokens and parts of them.
std::string TextOfManyKinds(Rng* rng, int pieces) {
  constexpr std::string_view kPieces[] = {"the quick brown fox ",
                                          "a",
                                          "    ",
                                          "\n",
                                          "\r\n\r\n",
                                          "\t \n x",
                                          "1234567",
                                          "it's ",
                                          "WE'LL",
                                          "<|im_start|>",
                                          "<|im_end|>\n",
                                          "<|im_",
                                          "start|>",
                                          "<think>",
                                          "</think>\n\n",
                                          "\u4e2d\u6587",
                                          "\u00e9",
                                          "e\u0301",
                                          "\u0301\u0323",
                                          "\u1100\u1161\u11a8",
                                          "\U0001f600\u200d",
                                          "...!?",
                                          " {\"k\": [1,2]}",
                                          "\u0441\u043b\u043e\u0432\u043e ",
                                          "'",
                                          " ",
                                          "\u00a0",
                                          "\u3000",
                                          "_-_",
                                          "x^2",
                                          "ABCdef",
                                          "\u30a2A",
                                          "0",
                                          "A"};
  std::string text;
  for (int i = 0; i < pieces; ++i) {
    const std::string_view piece = kPieces[rng->Below(std::size(kPieces))];
    for (uint64_t n = 1 + (rng->Below(8) == 0 ? rng->Below(16) : 0); n > 0; --n) text += piece;
  }
  return text;
}

void ExpectEqualSlices(const Tokenizer& tokenizer, uint64_t seed, int texts) {
  Rng rng(seed);
  for (int i = 0; i < texts; ++i) {
    const std::string text = i % 4 == 0 ? WildText(&rng, 150) : TextOfManyKinds(&rng, 60);
    const auto whole = tokenizer.Encode(text, false, {.slice_bytes = 0});
    ASSERT_TRUE(whole) << whole.error().message;
    for (const size_t slice_bytes : {40, 64, 200}) {
      const auto sliced = tokenizer.Encode(text, false, {.slice_bytes = slice_bytes});
      ASSERT_TRUE(sliced) << sliced.error().message;
      ASSERT_EQ(*sliced, *whole) << slice_bytes << " " << text;
    }
  }
}

TEST(TokenizerTest, SlicesGiveTheIdsOfTheWholeText) { ExpectEqualSlices(LoadBraidTiny(), 3, 24); }

TEST(TokenizerTest, SlicesOfTiktokenFilesGiveTheIdsOfTheWholeText) {
  const auto tokenizer = Tokenizer::Load(BRAID_SOURCE_DIR "/tests/golden/tiktoken");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  ExpectEqualSlices(*tokenizer, 4, 24);
}

std::string Repeated(std::string_view text, size_t bytes) {
  std::string all;
  while (all.size() < bytes) all += text;
  return all.substr(0, bytes);
}

TEST(TokenizerTest, ATextThatGrowsIsEncodedFromItsLastSliceOn) {
  const Tokenizer tokenizer = LoadBraidTiny();
  Rng rng(5);
  std::string text;
  uint64_t added = 0;
  for (int turn = 0; turn < 20; ++turn) {
    text += TextOfManyKinds(&rng, 40);
    const auto whole = tokenizer.Encode(text, false, {.slice_bytes = 0});
    const LongTextStats before = tokenizer.long_texts();
    EXPECT_EQ(*tokenizer.Encode(text, false, {.slice_bytes = 200}), *whole);
    EXPECT_EQ(*tokenizer.Encode(text, false, {.slice_bytes = 200}), *whole);
    const LongTextStats after = tokenizer.long_texts();
    added = after.added - before.added;
    EXPECT_GE(after.found - before.found, text.size() / 200 - 1) << turn;
  }
  EXPECT_LE(added, 12) << "of " << text.size() / 200 << " slices";
}

// Where a slice ends the text its last words are certain, elsewhere they are not.
TEST(TokenizerTest, ASliceInTheMiddleIsNotTheSameOneAtTheEnd) {
  const Tokenizer tokenizer = LoadBraidTiny();
  for (const std::string_view word : {"ab ", "x1\n", "it's "}) {
    for (size_t bytes = 43; bytes < 160; ++bytes) {
      const std::string text = Repeated(word, bytes);
      EXPECT_EQ(*tokenizer.Encode(text, false, {.slice_bytes = 42}),
                *tokenizer.Encode(text, false, {.slice_bytes = 0}))
          << bytes;
    }
  }
  EXPECT_GT(tokenizer.long_texts().found, 0u);
}

TEST(TokenizerTest, SlicesOfAnotherTenantOrSaltAreNotFound) {
  const Tokenizer tokenizer = LoadBraidTiny();
  const std::string text = Repeated("the quick brown fox 123 ", 1000);
  const auto found = [&](std::string_view tenant, std::string_view salt) {
    const uint64_t before = tokenizer.long_texts().found;
    CHECK(tokenizer.Encode(text, false, {.tenant = tenant, .salt = salt, .slice_bytes = 600}));
    return tokenizer.long_texts().found > before;
  };
  for (const auto& [tenant, salt] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"ann", ""}, {"", "ann"}, {"an", "n"}, {"ann", "n"}, {"1", "2"}, {"12", ""}}) {
    EXPECT_FALSE(found(tenant, salt)) << tenant << " " << salt;
    EXPECT_TRUE(found(tenant, salt)) << tenant << " " << salt;
  }
}

TEST(TokenizerTest, SlicesAreKeptUpToALimitAndThoseInUseStay) {
  const Tokenizer tokenizer = LoadBraidTiny();
  constexpr size_t kKept = 40'000;
  const auto encode = [&](std::string_view word) {
    const std::string text = Repeated(word, 1000);
    const LongTexts long_texts{.slice_bytes = 600, .kept_bytes = kKept};
    const uint64_t before = tokenizer.long_texts().added;
    EXPECT_EQ(*tokenizer.Encode(text, false, long_texts),
              *tokenizer.Encode(text, false, {.slice_bytes = 0}));
    EXPECT_LE(tokenizer.long_texts().kept_bytes, kKept);
    return tokenizer.long_texts().added - before;
  };
  EXPECT_EQ(encode("in use "), 2u);
  EXPECT_EQ(encode("not in use "), 2u);
  size_t most = 0;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(encode(fmt::format("another {} ", i)), 2u);
    EXPECT_EQ(encode("in use "), 0u) << i;
    most = std::max(most, tokenizer.long_texts().kept_bytes);
  }
  EXPECT_GT(most, kKept / 2);
  EXPECT_EQ(encode("not in use "), 2u) << "40 other texts are more than is kept";
}

// braid-tiny's tokenizer.json with another way to split words.
json::object BraidTinySplitBy(std::string_view pattern) {
  const auto text = ReadFile(BRAID_SOURCE_DIR "/models/braid-tiny/tokenizer.json", 1 << 24);
  CHECK(text, "{}", text.error().message);
  json::object file = json::parse(*text).as_object();
  json::object& splitter = file.at("pre_tokenizer").as_object();
  splitter.at("pretokenizers").as_array()[0].as_object()["pattern"] = {{"Regex", pattern}};
  return file;
}

// The slices know the first patterns; the last look far ahead or back, so their texts stay whole.
TEST(TokenizerTest, SlicesOfEveryPatternGiveTheIdsOfTheWholeText) {
  constexpr std::string_view kPatterns[] = {
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\p{L}+|[^\p{L}\p{N}]+)",
      R"((?<=\n)\p{L}|\p{L}+|\p{N}+|[^\p{L}\p{N}])"};
  for (const std::string_view pattern : kPatterns) {
    SCOPED_TRACE(pattern);
    json::object file = BraidTinySplitBy(pattern);
    for (const json::value& normalizer : {json::value(nullptr), json::value{{"type", "NFC"}}}) {
      file["normalizer"] = normalizer;
      const auto tokenizer = Tokenizer::FromJson(json::serialize(file));
      ASSERT_TRUE(tokenizer) << tokenizer.error().message;
      ExpectEqualSlices(*tokenizer, 5, 8);
    }
  }
}

// The splitter itself gives up at a million.
TEST(TokenizerTest, AMillionBlanksAreOneWordBeforeTheNext) {
  const Tokenizer tokenizer = LoadBraidTiny();
  const std::string_view rest = "x,,name foo()bar";  // ",name" is a token, but not of two words
  const auto few = tokenizer.Encode(std::string(4, ' ') + std::string(rest), false);
  ASSERT_TRUE(few) << few.error().message;
  size_t same = few->size();  // from the blank before `rest` on, which begins its word
  while (tokenizer.Decode(std::span(*few).last(same), false).size() > rest.size() + 1) --same;
  for (const std::string_view begin : {"", "a", "\n"}) {
    const std::string text = std::string(begin) + std::string(1'000'001, ' ') + std::string(rest);
    const auto ids = tokenizer.Encode(text, false);
    ASSERT_TRUE(ids) << ids.error().message;
    ASSERT_GT(ids->size(), same);
    EXPECT_TRUE(std::ranges::equal(std::span(*ids).last(same), std::span(*few).last(same)));
    EXPECT_EQ(tokenizer.Decode(*ids, false), text);
  }
}

TEST(TokenizerTest, SlicesOfOtherFilesGiveTheIdsOfTheWholeText) {
  json::object gpt2 = BraidTinySplitBy("");
  gpt2["pre_tokenizer"] = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  json::object prefixed = gpt2;
  prefixed["pre_tokenizer"].as_object()["add_prefix_space"] = true;
  json::object stripped = gpt2;
  stripped["added_tokens"].as_array()[1].as_object()["lstrip"] = true;
  json::object lower = gpt2;
  lower["normalizer"] = {{"type", "Lowercase"}};
  for (const json::object& file : {gpt2, prefixed, stripped, lower}) {
    const auto tokenizer = Tokenizer::FromJson(json::serialize(file));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    ExpectEqualSlices(*tokenizer, 6, 8);
  }
}

TEST(TokenizerTest, EncodesBackToTheSameText) {
  const Tokenizer tokenizer = LoadBraidTiny();
  Rng rng(2);
  for (int i = 0; i < 200; ++i) {
    const std::string text = WildText(&rng, rng.Below(60));
    auto ids = tokenizer.Encode(text, false);
    ASSERT_TRUE(ids) << ids.error().message;
    auto again = tokenizer.Encode(tokenizer.Decode(*ids, false), false);
    ASSERT_TRUE(again);  // the normaliser (NFC) may change the text once, not twice
    EXPECT_EQ(*ids, *again);
  }
}

TEST(TokenizerTest, KeepsAddedTokensThatAreNotSpecial) {
  const Tokenizer tokenizer = LoadBraidTiny();
  const std::string text =
      "<think>\nx\n</think>\n\n<tool_call>y</tool_call><|im_end|><|endoftext|>";
  auto ids = tokenizer.Encode(text, false);
  ASSERT_TRUE(ids);
  EXPECT_EQ(tokenizer.Decode(*ids, false), text);
  EXPECT_EQ(tokenizer.Decode(*ids, true), "<think>\nx\n</think>\n\n<tool_call>y</tool_call>");
  EXPECT_EQ(ids->back(), *tokenizer.TokenToId("<|endoftext|>"));
  EXPECT_TRUE(tokenizer.IsSpecial(*tokenizer.TokenToId("<|im_end|>")));
  EXPECT_FALSE(tokenizer.IsSpecial(*tokenizer.TokenToId("<think>")));
}

TEST(TokenizerTest, TokensAreFoundByTheirTextFromTheFirstIdOn) {
  auto tokenizer = Tokenizer::FromJson(kSmall);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->TokenToId("a"), 0);
  EXPECT_EQ(tokenizer->TokenToId("ab"), 6);
  EXPECT_EQ(tokenizer->TokenToId("<end>"), 3);
  EXPECT_EQ(tokenizer->TokenToId("none"), std::nullopt);
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreEmpty) {
  const Tokenizer tokenizer = LoadBraidTiny();
  EXPECT_EQ(tokenizer.vocabulary_size(), 4073);
  for (TokenId id : {-1, -2147483647, 4073, 4095, 2147483647}) {
    EXPECT_EQ(tokenizer.TokenBytes(id), "");
    EXPECT_FALSE(tokenizer.IsSpecial(id));
    EXPECT_EQ(tokenizer.Decode(std::vector<TokenId>{0, id, 1}, false), "!\"");
  }
  EXPECT_EQ(tokenizer.TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.TokenToId("\xFF"), std::nullopt);
}

TEST(TokenizerTest, ReportsTheLongestToken) {
  const Tokenizer tokenizer = LoadBraidTiny();
  size_t longest = 0;
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(id).size());
  }
  EXPECT_EQ(static_cast<size_t>(tokenizer.longest_token_bytes()), longest);
  EXPECT_GE(longest, std::string_view("</tool_response>").size());
}

TEST(TokenizerTest, ServesSeveralThreadsAtOnce) {
  const Tokenizer tokenizer = LoadBraidTiny();
  Rng rng(3);
  const std::string text = WildText(&rng, 2'000);
  const std::vector<TokenId> expected = *tokenizer.Encode(text, false);
  std::vector<std::thread> threads;
  std::array<bool, 4> same = {};
  for (bool& ok : same) {
    threads.emplace_back([&] {
      ok = true;
      for (int i = 0; i < 20; ++i) ok = ok && *tokenizer.Encode(text, false) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(same, testing::Each(true));
}

TEST(TokenizerTest, GapsBetweenIdsAreEmptyTokens) {
  auto tokenizer = Tokenizer::FromJson(kSmall);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocabulary_size(), 7);
  EXPECT_EQ(tokenizer->TokenBytes(6), "ab");
  EXPECT_EQ(tokenizer->TokenBytes(5), "");
  EXPECT_EQ(tokenizer->TokenBytes(4), "<call>");
  EXPECT_EQ(*tokenizer->Encode("ab<call>ba<end>", false), (std::vector<TokenId>{6, 4, 1, 0, 3}));
}

TEST(TokenizerTest, ReadsByteFallbackDecoders) {
  const std::string json = R"({
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "merges": [],
              "vocab": {"▁": 0, "x": 1, "<0xC3>": 2, "<0xA9>": 3, "▁x▁": 4, "<0xZ1>": 5}}})";
  auto tokenizer = Tokenizer::FromJson(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->TokenBytes(2), "\xC3");
  EXPECT_EQ(tokenizer->TokenBytes(5), "<0xZ1>");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{4, 2, 3, 0, 1}, false), "x é x");
}

TEST(TokenizerTest, RefusesWhatItCannotTrust) {
  EXPECT_EQ(LoadError(kSmall), "loaded");
  EXPECT_THAT(LoadError(Replaced(R"("type": "BPE")", R"("type": "WordPiece")")),
              HasSubstr("model.type is \"WordPiece\", expected \"BPE\""));
  EXPECT_THAT(LoadError(Replaced(R"([["a", "b"]])", R"([["a", "c"]])")),
              HasSubstr("model.merges[0] names \"c\", which is not in model.vocab"));
  EXPECT_THAT(LoadError(Replaced(R"([["a", "b"]])", R"(["b a"])")),
              HasSubstr("model.merges[0] names \"ba\""));
  EXPECT_THAT(LoadError(Replaced(R"([["a", "b"]])", R"([["a"]])")),
              HasSubstr("model.merges[0] is not a pair"));
  EXPECT_THAT(LoadError(Replaced(R"("b": 1)", R"("b": 0)")), HasSubstr("share id 0"));
  EXPECT_THAT(LoadError(Replaced(R"("b": 1)", R"("b": -1)")), HasSubstr("token \"b\" has id -1"));
  EXPECT_THAT(LoadError(Replaced(R"("b": 1)", R"("b": 1099511627776)")),
              HasSubstr("token \"b\" has id 1099511627776"));
  EXPECT_THAT(LoadError(Replaced(R"("id": 3)", R"("id": 6)")), HasSubstr("share id 6"));
  EXPECT_THAT(LoadError(Replaced(R"("id": 4)", R"("id": 9)")),
              HasSubstr("\"<call>\" has id 9, expected 4"));
  EXPECT_THAT(LoadError(Replaced(R"({"type": "ByteLevel", )", R"({"type": "Metaspace", )")),
              HasSubstr("decoder: step \"Metaspace\" is not supported"));
  EXPECT_THAT(LoadError(Replaced("<end>", std::string(1'025, 'x'))), HasSubstr("at most 1024"));
  EXPECT_THAT(LoadError("[]"), HasSubstr("model.type is missing"));
  EXPECT_THAT(LoadError(std::string(100'000, '[')), HasSubstr("not valid JSON"));
}

// `count` times what `item` makes of a number, with commas between.
template <class Item>
std::string List(int64_t count, const Item& item) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + item(i);
  return text;
}

TEST(TokenizerTest, L62_ATokenizerHasBounds) {
  const auto with_vocabulary = [](int64_t count) {
    const auto token = [](int64_t i) { return fmt::format("\"t{}\":{}", i, i); };
    return fmt::format(R"({{"decoder": {{"type": "ByteLevel"}}, "model": {{"type": "BPE",
        "merges": [], "vocab": {{{}}}}}}})",
                       List(count, token));
  };
  EXPECT_THAT(LoadError(with_vocabulary((1 << 20) + 1)), HasSubstr("1048576"));
  const std::string merges = List((1 << 22) + 1, [](int64_t) { return std::string(R"("a b")"); });
  EXPECT_THAT(LoadError(Replaced(R"(["a", "b"])", merges)), HasSubstr("4194304"));
  const auto added = [](int64_t i) {
    return fmt::format(R"({{"id": {}, "content": "<{}>", "special": true}})", i, i);
  };
  const std::string many = fmt::format(
      R"({{"added_tokens": [{}], "decoder": {{"type": "ByteLevel"}},
         "model": {{"type": "BPE", "merges": [], "vocab": {{"a": 65537}}}}}})",
      List(65537, added));
  EXPECT_THAT(LoadError(many), HasSubstr("65536"));
  ModelFolder folder;
  folder.Write("tokenizer.json", std::string((size_t{64} << 20) + 1, ' '));
  EXPECT_THAT(Tokenizer::Load(folder.path()).error().message, HasSubstr("67108864"));
}

TEST(TokenizerTest, ACutFileIsAnError) {
  for (size_t size = 0; size + 1 < kSmall.size(); ++size) {
    EXPECT_THAT(LoadError(kSmall.substr(0, size)), HasSubstr("not valid JSON"));
  }
  const std::string whole = *ReadFile(kBraidTiny + "/tokenizer.json", size_t{1} << 20);
  ModelFolder folder;
  for (size_t size : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 3}) {
    folder.Write("tokenizer.json", std::string_view(whole).substr(0, size));
    auto tokenizer = Tokenizer::Load(folder.path());
    ASSERT_FALSE(tokenizer);
    EXPECT_THAT(tokenizer.error().message, HasSubstr("/tokenizer.json: not valid JSON"));
  }
}

TEST(TokenizerTest, RandomDamageNeverCrashes) {
  Rng rng(5);
  int loaded = 0;
  for (int i = 0; i < 3'000; ++i) {
    std::string json(kSmall);
    for (int64_t n = 1 + rng.Below(4); n > 0; --n) {
      const auto at = static_cast<size_t>(rng.Below(static_cast<int64_t>(json.size())));
      if (rng.Below(3) == 0) {
        json.erase(at, static_cast<size_t>(rng.Below(30)));
      } else {
        json[at] = "{}[]\",:0123456789abnull-e"[rng.Below(24)];
      }
    }
    auto tokenizer = Tokenizer::FromJson(json);
    if (!tokenizer) continue;
    ++loaded;
    auto ids = tokenizer->Encode("abba<end>b\n\xC3\xA9", true);
    EXPECT_TRUE(!ids || tokenizer->Decode(*ids, false).size() <= 100);
  }
  EXPECT_GT(loaded, 0);
}

TEST(TokenizerTest, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = LoadBraidTiny();
  auto ids = tokenizer.Encode("abc\xFFxyz", false);
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("not valid UTF-8 (byte 3)"));
}

TEST(TokenizerTest, AMebibyteOfOneCharacterTakesSeconds) {
  const Tokenizer tokenizer = LoadBraidTiny();
  for (std::string_view unit : {"a", " ", "\n", "1", "\xCC\x81", "!", "<", "\xF0\x9F\x8C\x8D"}) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += unit;
    const double start = CpuSeconds();
    auto ids = tokenizer.Encode(text, false);
    const double seconds = CpuSeconds() - start;
    ASSERT_TRUE(ids);
    EXPECT_EQ(tokenizer.Decode(*ids, false), text);
    EXPECT_LT(seconds, 20) << unit;  // about 1 in a release build; quadratic would be hours
  }
}

}  // namespace
}  // namespace braid
