// Which requests have the same first blocks, and the tokens of a prompt.
#include "router/prompts/prompt_keys.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

namespace braid {
namespace {

const std::string kLong(2000, 'a');

PromptKeys Chat(std::string_view messages, std::string_view more = "",
                std::string_view tenant = "") {
  return ReadPromptKeys(kChat, fmt::format(R"({{"messages": [{}]{}}})", messages, more),
                        {.tenant = tenant});
}

std::string User(std::string_view text) {
  return fmt::format(R"({{"role": "user", "content": "{}"}})", text);
}

size_t Common(const PromptKeys& a, const PromptKeys& b) {
  size_t same = 0;
  while (same < a.blocks.size() && same < b.blocks.size() && a.blocks[same] == b.blocks[same]) {
    ++same;
  }
  return same;
}

TEST(PromptKeys, TheNextTurnBeginsWithTheBlocksOfTheLast) {
  const PromptKeys first = Chat(User(kLong));
  const PromptKeys next =
      Chat(User(kLong) + R"(, {"role": "assistant", "content": "yes"}, )" + User(kLong));
  EXPECT_EQ(first.blocks.size(), 7u);
  EXPECT_EQ(Common(first, next), 7u);
  EXPECT_GT(next.blocks.size(), 14u);
  EXPECT_NEAR(static_cast<double>(first.tokens), 500, 10);
}

TEST(PromptKeys, ABlockIsAFunctionOfAllBeforeIt) {
  const PromptKeys a = Chat(User("b" + kLong)), b = Chat(User("c" + kLong));
  EXPECT_EQ(Common(a, b), 0u);
  ASSERT_EQ(a.blocks.size(), b.blocks.size());
  EXPECT_NE(a.blocks.back(), b.blocks.back());
}

TEST(PromptKeys, FieldsThatChangeNoPromptChangeNoBlock) {
  const PromptKeys plain = Chat(User(kLong));
  EXPECT_EQ(Common(plain, Chat(User(kLong), R"(, "temperature": 1, "stream": true)")), 7u);
  const std::string parts = fmt::format(
      R"({{"role": "user", "content": [{{"id": "part_1", "type": "text", "cache_control":
          {{"type": "ephemeral", "ttl": "1h"}}, "text": "{}"}}]}})",
      kLong);
  EXPECT_EQ(Common(plain, Chat(parts)), 7u);
}

TEST(PromptKeys, TextsAndNumbersEndWhereTheyEnd) {
  const auto blocks = [](std::string_view first) {
    return Chat(fmt::format(R"({{"content": [{}, "{}"]}})", first, kLong)).blocks;
  };
  EXPECT_NE(blocks(R"("ab", "c")"), blocks(R"("a", "bc")"));
  EXPECT_NE(blocks("12, 3"), blocks("1, 23"));
  EXPECT_EQ(blocks("12, null, 3"), blocks("12, 3"));
  EXPECT_NE(blocks("true"), blocks("false"));
}

TEST(PromptKeys, EveryPartOfAPromptIsInItsBlocks) {
  const auto keys = [](Endpoint endpoint, std::string_view part) {
    return ReadPromptKeys(endpoint, fmt::format("{{{}}}", part), {}).blocks;
  };
  const std::string other(2000, 'b');
  const std::tuple<Endpoint, const char*> parts[] = {
      {kChat, R"("tools": ["{}"])"},         {kMessages, R"("system": "{}")"},
      {kResponses, R"("instructions": "{}")"}, {kResponses, R"("input": "{}")"},
      {kChat, R"("messages": ["{}"])"},      {kCompletions, R"("prompt": "{}")"},
      {kCompletions, R"("prompt": ["{}"])"}};
  for (const auto& [endpoint, part] : parts) {
    const auto of = [&, at = endpoint, form = part](const std::string& text) {
      return keys(at, fmt::format(fmt::runtime(form), text));
    };
    EXPECT_EQ(of(kLong).size(), 7u) << part;
    EXPECT_NE(of(kLong), of(other)) << part;
  }
  // Tools come first and the messages last, as templates write them.
  const auto plain = keys(kChat, fmt::format(R"("messages": ["{}"], "tools": ["x"])", kLong));
  EXPECT_EQ(plain, keys(kChat, fmt::format(R"("tools": ["x"], "messages": ["{}"])", kLong)));
  // Of several prompts the first counts.
  EXPECT_EQ(keys(kCompletions, fmt::format(R"("prompt": ["{}", "b"])", kLong)),
            keys(kCompletions, fmt::format(R"("prompt": "{}")", kLong)));
}

TEST(PromptKeys, WithATokenizerTextsHaveTheBlocksOfTheirTokens) {
  const Tokenizer tokenizer = *Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny");
  const PromptReader reader(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny"),
                            *ChatTemplate::Load(BRAID_SOURCE_DIR "/models/braid-tiny"));
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("word {} ", i);
  const auto read = [&](std::string_view body, std::string_view tenant = "ann",
                        Endpoint endpoint = kCompletions) {
    return ReadPromptKeys(endpoint, body, {.tenant = tenant}, &reader);
  };
  const PromptKeys found = read(fmt::format(R"({{"prompt": "{}"}})", text));
  const std::vector<TokenId> tokens = *tokenizer.Encode(text, true);
  PromptKeys expected;
  SetTokens(tokens, {.tenant = "ann", .salt = {}}, &expected);
  ASSERT_GT(expected.blocks.size(), 1u);
  EXPECT_EQ(found.blocks, expected.blocks);
  EXPECT_EQ(found.tokens, std::ssize(tokens));
  EXPECT_TRUE(found.generates);
  SetTokens(tokens, {.tenant = "ann", .salt = "s"}, &expected);
  EXPECT_EQ(read(fmt::format(R"({{"prompt": "{}", "cache_salt": "s"}})", text)).blocks,
            expected.blocks);
  EXPECT_NE(read(fmt::format(R"({{"prompt": "{}"}})", text), "bob").blocks, found.blocks);
  // A chat has its template's tokens around its text; the parts of a text are one text.
  const auto chat = [&](const std::string& content) {
    return read(fmt::format(R"({{"messages": [{{"role": "user", "content": {}}}]}})", content),
                "ann", kChat);
  };
  const PromptKeys whole = chat(fmt::format("\"{}\"", text));
  EXPECT_GT(whole.tokens, std::ssize(tokens));
  EXPECT_LT(whole.tokens, std::ssize(tokens) + 50);
  EXPECT_EQ(whole.blocks, chat(fmt::format(R"([{{"type": "text", "text": "{}"}}])", text)).blocks);
  // What engines refuse has the blocks of its bytes.
  EXPECT_EQ(read(fmt::format(R"({{"prompt": "{}", "n": -7}})", text)).blocks,
            ReadPromptKeys(kCompletions, fmt::format(R"({{"prompt": "{}"}})", text),
                           {.tenant = "ann"})
                .blocks);
}

TEST(PromptReader, GivesTheTokensThatAnEngineMakes) {
  const char* const model = BRAID_SOURCE_DIR "/models/braid-tiny";
  const Tokenizer tokenizer = *Tokenizer::Load(model);
  const PromptReader reader(*Tokenizer::Load(model), *ChatTemplate::Load(model));
  using Tokens = std::optional<std::vector<TokenId>>;
  EXPECT_EQ(reader.TokensOf(kCompletions, R"({"prompt": "Once upon"})", ""),
            Tokens(*tokenizer.Encode("Once upon", true)));
  EXPECT_EQ(
      reader.TokensOf(kCompletions, R"({"prompt": "Once upon", "add_special_tokens": false})", ""),
      Tokens(*tokenizer.Encode("Once upon", false)));
  EXPECT_EQ(reader.TokensOf(kCompletions, R"({"prompt": [3, 1, 2]})", ""), Tokens({3, 1, 2}));
  EXPECT_EQ(reader.TokensOf(kCompletions, R"({"prompt": ["a b", "c"]})", ""),
            Tokens(*tokenizer.Encode("a b", true)));
  EXPECT_EQ(reader.TokensOf(kCompletions, "{}", ""), Tokens());
  EXPECT_EQ(reader.TokensOf(kCompletions, "no JSON", ""), Tokens());
  const char* const chat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  EXPECT_TRUE(reader.TokensOf(kChat, chat, ""));
  const PromptReader without_chat(*Tokenizer::Load(model), std::nullopt);
  EXPECT_EQ(without_chat.TokensOf(kChat, chat, ""), Tokens());
}

TEST(PromptReader, RemembersLongTextsByTenantAndSalt) {
  const char* const model = BRAID_SOURCE_DIR "/models/braid-tiny";
  const PromptReader reader(*Tokenizer::Load(model), std::nullopt);
  std::string text;
  for (int i = 0; i < 4000; ++i) text += fmt::format("{} ", i);
  const auto found = [&](std::string_view tenant, std::string_view salt) {
    const uint64_t before = reader.long_texts().found;
    const std::string body = fmt::format(R"({{"prompt": "{}", "cache_salt": "{}"}})", text, salt);
    ReadPromptKeys(kCompletions, body, {.tenant = tenant}, &reader);
    return reader.long_texts().found > before;
  };
  EXPECT_FALSE(found("ann", "s"));
  EXPECT_TRUE(found("ann", "s"));
  EXPECT_FALSE(found("ben", "s"));
  EXPECT_FALSE(found("ann", "t"));
}

TEST(PromptKeys, TenantsSaltsAndModelsShareNothing) {
  const PromptKeys plain = Chat(User(kLong));
  EXPECT_EQ(Common(plain, Chat(User(kLong), "", "ann")), 0u);
  EXPECT_EQ(Common(plain, Chat(User(kLong), R"(, "cache_salt": "s")")), 0u);
  EXPECT_EQ(Common(plain, Chat(User(kLong), R"(, "model": "m")")), 0u);
}

TEST(PromptKeys, ABlockOfTokenIdsHas64) {
  std::string ids = "1";
  for (int i = 2; i <= 130; ++i) ids += fmt::format(",{}", i);
  const auto keys = ReadPromptKeys(kCompletions, fmt::format(R"({{"prompt": [{}]}})", ids), {});
  EXPECT_EQ(keys.blocks.size(), 2u);
  EXPECT_EQ(keys.tokens, 130);
  const auto nested = ReadPromptKeys(kCompletions, fmt::format(R"({{"prompt": [[{}]]}})", ids), {});
  EXPECT_EQ(Common(keys, nested), 2u);
  PromptKeys expected;
  std::vector<TokenId> tokens(130);
  std::iota(tokens.begin(), tokens.end(), 1);
  SetTokens(tokens, {}, &expected);
  EXPECT_EQ(keys.blocks, expected.blocks);
  const auto salted = ReadPromptKeys(
      kCompletions, fmt::format(R"({{"prompt": [{}], "cache_salt": "s"}})", ids), {});
  EXPECT_EQ(Common(keys, salted), 0u);
}

TEST(PromptKeys, TheHeaderNamesTheSessionBeforeTheBody) {
  const auto read = [](std::string_view body, std::string_view header) {
    return ReadPromptKeys(kChat, body, {.tenant = "ann", .session = header}).session;
  };
  EXPECT_EQ(read(R"({"user": "u"})", ""), SessionKey("ann", "u"));
  EXPECT_EQ(read(R"({"user": "u", "session_id": "s"})", ""), SessionKey("ann", "s"));
  EXPECT_EQ(read(R"({"metadata": {"user_id": "m"}, "user": "u"})", ""), SessionKey("ann", "m"));
  EXPECT_EQ(read(R"({"user": "u"})", "h"), SessionKey("ann", "h"));
  EXPECT_EQ(read(R"({"user": "u", "prompt_cache_key": "k"})", ""), SessionKey("ann", "k"));
  EXPECT_EQ(read(R"({"prompt_cache_key": "k", "conversation": "c"})", ""), SessionKey("ann", "c"));
  EXPECT_EQ(read(R"({"conversation": "c", "session_id": "s"})", ""), SessionKey("ann", "s"));
  EXPECT_EQ(read(R"({"session_id": "", "user": 7})", ""), 0u);
  EXPECT_EQ(read("{}", ""), 0u);
  EXPECT_NE(SessionKey("ann", "u"), SessionKey("bob", "u"));
}

TEST(PromptKeys, AResponseNamesWhatItContinues) {
  const auto keys = ReadPromptKeys(
      kResponses, R"({"previous_response_id": "resp_1", "input": "go on", "stream": true})", {});
  EXPECT_EQ(keys.stored_id, "resp_1");
  EXPECT_TRUE(keys.stream);
  EXPECT_FALSE(ReadPromptKeys(kResponses, R"({"input": "a", "stream": false})", {}).stream);
  const auto items =
      ReadPromptKeys(kResponses, R"({"input": [{"type": "item_reference", "id": "msg_1"}]})", {});
  EXPECT_TRUE(items.names_items);
  const auto names_items = [](const char* body) {
    return ReadPromptKeys(kResponses, body, {}).names_items;
  };
  EXPECT_TRUE(names_items(R"({"input": [{"id": "msg_1"}]})"));
  EXPECT_TRUE(names_items(R"({"input": [{"id": "msg_1", "type": null}]})"));
  EXPECT_FALSE(names_items(R"({"input": [{"id": "msg_1", "role": "user", "content": "x"}]})"));
  EXPECT_FALSE(names_items(R"({"input": [{"id": "msg_1", "type": "message"}]})"));
}

TEST(PromptKeys, ABodyThatIsNotJsonHasNoBlocks) {
  const PromptKeys keys = ReadPromptKeys(kChat, "{\"messages\": [" + kLong, {});
  EXPECT_TRUE(keys.generates);
  EXPECT_TRUE(keys.blocks.empty());
  EXPECT_EQ(keys.tokens, (14 + 2000) / 4) << "by its bytes";
  EXPECT_TRUE(ReadPromptKeys(kChat, "[1]", {}).blocks.empty());
  for (const Endpoint endpoint : {kChat, kCompletions, kMessages, kResponses}) {
    EXPECT_TRUE(ReadPromptKeys(endpoint, "{}", {}).generates);
  }
  const PromptKeys other = ReadPromptKeys(kTokenize, R"({"prompt": [1]})", {.session = "s"});
  EXPECT_FALSE(other.generates);
  EXPECT_EQ(other.tokens, 0);
  EXPECT_EQ(other.session, SessionKey("", "s"));
}

}  // namespace
}  // namespace braid
