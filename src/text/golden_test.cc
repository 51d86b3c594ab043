// transformers' own output (tests/golden/text_golden.jsonl) and that of small tokenizers of every
// family (tests/golden/words) against ours, byte for byte.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/system/file.h"
#include "text/chat/chat_template.h"
#include "text/tokens/detokenizer.h"
#include "text/tokens/tokenizer.h"

namespace braid {
namespace {

const std::string kGolden = BRAID_SOURCE_DIR "/tests/golden";
const std::string kModel = BRAID_SOURCE_DIR "/models/braid-tiny";

// The lines of one kind.
std::vector<json::object> GoldenLines(std::string_view kind) {
  auto text = ReadFile(kGolden + "/text_golden.jsonl", size_t{1} << 20);
  EXPECT_TRUE(text);
  std::vector<json::object> lines;
  std::istringstream stream(text ? *text : "");
  for (std::string line; std::getline(stream, line);) {
    auto value = ParseJson(line, "text_golden.jsonl");
    EXPECT_TRUE(value);
    if (value && value->at("kind").get_string() == kind) lines.push_back(value->get_object());
  }
  return lines;
}

std::vector<TokenId> Ids(const json::object& line) {
  return json::value_to<std::vector<TokenId>>(line.at("ids"));
}

std::string Text(const json::object& line, std::string_view key) {
  return std::string(line.at(key).get_string());
}

class GoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::Load(kModel);
    ASSERT_TRUE(loaded) << loaded.error().message;
    tokenizer_ = std::make_unique<Tokenizer>(*std::move(loaded));
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(GoldenTest, EncodesAsTransformersDoes) {
  const std::vector<json::object> lines = GoldenLines("encode");
  ASSERT_GT(lines.size(), 30u);
  for (const json::object& line : lines) {
    for (bool special : {false, true}) {
      auto ids = tokenizer_->Encode(Text(line, "text"), special);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(*ids, Ids(line)) << Text(line, "text");
    }
  }
}

TEST(WordsTest, SplitsWordsAsEveryFamilyDoes) {
  auto text = ReadFile(kGolden + "/words/encode.jsonl", size_t{1} << 20);
  ASSERT_TRUE(text);
  std::map<std::string, Tokenizer> tokenizers;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    const json::object golden = json::parse(line).as_object();
    const std::string family = Text(golden, "family");
    auto known = tokenizers.find(family);
    if (known == tokenizers.end()) {
      auto file = ReadFile(kGolden + "/words/" + family + ".json", size_t{1} << 20);
      ASSERT_TRUE(file) << family;
      auto loaded = Tokenizer::FromJson(*file);
      ASSERT_TRUE(loaded) << family << ": " << loaded.error().message;
      known = tokenizers.emplace(family, *std::move(loaded)).first;
    }
    auto ids = known->second.Encode(Text(golden, "text"), false);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, Ids(golden)) << family << ": " << Text(golden, "text");
  }
  EXPECT_EQ(tokenizers.size(), 4u);
}

TEST_F(GoldenTest, DecodesAnyIdsAsTransformersDoes) {
  const std::vector<json::object> lines = GoldenLines("decode");
  ASSERT_GT(lines.size(), 60u);
  for (const json::object& line : lines) {
    EXPECT_EQ(tokenizer_->Decode(Ids(line), false), Text(line, "text"));
    EXPECT_EQ(tokenizer_->Decode(Ids(line), true), Text(line, "visible"));
  }
}

TEST_F(GoldenTest, RendersChatTemplatesAsTransformersDoes) {
  std::map<std::string, ChatTemplate> templates;
  auto shipped = ChatTemplate::Load(kModel);
  ASSERT_TRUE(shipped) << shipped.error().message;
  templates.emplace("braid-tiny", *std::move(shipped));
  const json::object special = {{"eos_token", "<|im_end|>"}, {"pad_token", "<|endoftext|>"}};
  for (const json::object& line : GoldenLines("template")) {
    auto compiled = ChatTemplate::FromSource(Text(line, "source"), special);
    ASSERT_TRUE(compiled) << Text(line, "name") << ": " << compiled.error().message;
    templates.emplace(Text(line, "name"), *std::move(compiled));
  }
  const std::vector<json::object> lines = GoldenLines("render");
  ASSERT_GT(lines.size(), 200u);
  size_t errors = 0;
  for (const json::object& line : lines) {
    auto text = templates.at(Text(line, "template")).Render(line.at("context"));
    if (line.contains("text")) {
      ASSERT_TRUE(text) << text.error().message << json::serialize(line);
      EXPECT_EQ(*text, Text(line, "text"));
    } else {
      ++errors;
      ASSERT_FALSE(text) << *text << json::serialize(line);
      if (Text(line, "error").find("undefined") == std::string::npos) {
        EXPECT_EQ(text.error().message, Text(line, "error"));
      }
    }
  }
  EXPECT_GT(errors, 0u);
}

}  // namespace
}  // namespace braid
