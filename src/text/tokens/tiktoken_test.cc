// tiktoken.model files: ids as the package tiktoken makes them (tests/golden/tiktoken), and files
// that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/system/file.h"
#include "text/tokens/eos.h"
#include "text/tokens/tokenizer.h"

namespace braid {
namespace {

using testing::HasSubstr;

const std::string kDirectory = BRAID_SOURCE_DIR "/tests/golden/tiktoken";

Tokenizer Loaded() {
  Result<Tokenizer> tokenizer = Tokenizer::Load(kDirectory);
  CHECK(tokenizer, "{}", tokenizer.error().message);
  return *std::move(tokenizer);
}

std::string Content(const std::string& name) {
  Result<std::string> text = ReadFile(kDirectory + "/" + name, size_t{1} << 20);
  CHECK(text, "{}", name);
  return *std::move(text);
}

TEST(Tiktoken, EncodesAsThePackageDoesAndDecodesToTheText) {
  const Tokenizer tokenizer = Loaded();
  std::istringstream lines(Content("encode.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json::object golden = json::parse(line).as_object();
    std::string text;
    std::vector<TokenId> want;
    if (golden.contains("text")) {
      text = std::string(golden.at("text").as_string());
      want = json::value_to<std::vector<TokenId>>(golden.at("ids"));
    } else {
      for (const json::value& run : golden.at("runs").as_array()) {
        for (int64_t i = 0; i < run.at(1).as_int64(); ++i) text += run.at(0).as_string();
      }
      for (const json::value& run : golden.at("id_runs").as_array()) {
        want.insert(want.end(), static_cast<size_t>(run.at(1).as_int64()),
                    static_cast<TokenId>(run.at(0).as_int64()));
      }
    }
    const Result<std::vector<TokenId>> ids = tokenizer.Encode(text, true);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, want) << text.substr(0, 200);
    EXPECT_EQ(tokenizer.Decode(*ids, false), text);
  }
  EXPECT_GT(count, 120);
}

TEST(Tiktoken, TakesSpecialTokensFromTheConfig) {
  const Tokenizer tokenizer = Loaded();
  EXPECT_EQ(tokenizer.vocabulary_size(), 700 + 256);
  EXPECT_EQ(tokenizer.TokenToId("[PAD]"), 955);
  EXPECT_EQ(tokenizer.TokenToId("<|reserved_token_705|>"), 705);
  EXPECT_TRUE(tokenizer.IsSpecial(702));
  EXPECT_FALSE(tokenizer.IsSpecial(711)) << "a tool call's tag stays in the text";
  const Result<std::vector<TokenId>> eos = EosTokens(kDirectory, &tokenizer);
  ASSERT_TRUE(eos) << eos.error().message;
  EXPECT_EQ(*eos, std::vector<TokenId>{701});
}

// The message for the stored files with one change.
std::string Refused(const std::string& from, const std::string& to, bool in_config = false) {
  std::string model = Content("tiktoken.model"), config = Content("tokenizer_config.json");
  std::string& changed = in_config ? config : model;
  const size_t at = changed.find(from);
  CHECK(at != std::string::npos, "{}", from);
  changed.replace(at, from.size(), to);
  const Result<Tokenizer> tokenizer = Tokenizer::FromTiktoken(model, config);
  return tokenizer ? "accepted" : tokenizer.error().message;
}

TEST(Tiktoken, RefusesWhatIsNotWhatItSeems) {
  EXPECT_THAT(Refused("AA== 0\n", ""), HasSubstr("must have the ranks 0 to 698, each once"));
  EXPECT_THAT(Refused("AA== 0\n", "AAE= 0\n"), HasSubstr("no token for the byte 0x00"));
  EXPECT_THAT(Refused("AA== 0\n", "AQ== 0\n"), HasSubstr("line 2: the token stands"));
  EXPECT_THAT(Refused("AA== 0\n", "AA==0\n"), HasSubstr("line 1: expected a token in base64"));
  EXPECT_THAT(Refused("AA== 0\n", "A*== 0\n"), HasSubstr("line 1: not base64"));
  EXPECT_THAT(Refused("AA== 0\n", "AA== -1\n"), HasSubstr("line 1: the rank is not a number"));
  EXPECT_THAT(Refused("AA== 0\n", "AA== 18446744073709551615\n"), HasSubstr("must have the ranks"));
  EXPECT_THAT(Refused("TikTokenTokenizer\"", "OtherTokenizer\"", true),
              HasSubstr("tokenizer_class is \"OtherTokenizer\""));
  EXPECT_THAT(Refused("\"955\"", "\"956\"", true), HasSubstr("expected 700 to 955"));
  EXPECT_THAT(Refused("[PAD]\"", "[UNK]\"", true), HasSubstr("[UNK]"));
  EXPECT_THAT(Refused("{", "[", true), HasSubstr("not valid JSON"));
  EXPECT_FALSE(Tokenizer::FromTiktoken("", Content("tokenizer_config.json")));
}

}  // namespace
}  // namespace braid
