// The store of responses: what is kept, for whom, how much of it, and what is shared.
#include "server/serving/response_store.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace braid {
namespace {

using Items = std::vector<StoredItem>;

constexpr ResponseStore::Limits kLimits{
    .bytes = 1 << 20, .key_bytes = 1 << 18, .responses = 100, .key_responses = 25};

StoredItem Item(const std::string& id, const std::string& text = "x") {
  return {id, fmt::format(R"({{"id":"{}","text":"{}"}})", id, text)};
}

// A response with one item read and one written.
bool Add(ResponseStore* store, const std::string& key, const std::string& id,
         size_t text_bytes = 1) {
  return store->Begin(key, id, R"({"status":"in_progress"})",
                      {Item(id + "_in", std::string(text_bytes, 'a'))}) &&
         store->Finish(key, id, R"({"status":"completed"})", {Item(id + "_out")});
}

std::vector<std::string> Ids(const std::optional<Items>& items) {
  std::vector<std::string> ids;
  for (const StoredItem& item : items.value_or(Items())) ids.push_back(item.id);
  return ids;
}

TEST(ResponseStore, ShowsAResponseWhileItIsMadeAndWhenItIs) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(store.Begin("a", "r1", R"({"status":"in_progress"})", {Item("m1")}));
  EXPECT_EQ(store.Response("a", "r1"), R"({"status":"in_progress","output":[]})");
  EXPECT_EQ(Ids(store.Input("a", "r1")), std::vector<std::string>{"m1"});
  EXPECT_FALSE(store.Conversation("a", "r1")) << "it cannot be continued yet";
  ASSERT_TRUE(store.Finish("a", "r1", R"({"status":"completed"})", {Item("o1"), Item("o2")}));
  EXPECT_EQ(store.Response("a", "r1"),
            R"({"status":"completed","output":[{"id":"o1","text":"x"},{"id":"o2","text":"x"}]})");
  EXPECT_EQ(Ids(store.Conversation("a", "r1")), (std::vector<std::string>{"m1", "o1", "o2"}));
  EXPECT_EQ(store.Item("a", "o2")->text, Item("o2").text);
  const auto bytes = static_cast<int64_t>(Item("m1").text.size());
  EXPECT_EQ(store.ItemBytes("a", "o2"), bytes);
  EXPECT_EQ(store.ConversationBytes("a", "r1"), 3 * bytes);
  EXPECT_EQ(store.ConversationBytes("b", "r1"), std::nullopt);
  EXPECT_EQ(store.ItemBytes("b", "o2"), std::nullopt);
}

TEST(ResponseStore, NoKeySeesWhatIsAnothers) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(Add(&store, "a", "r"));
  for (const char* other : {"b", "", "A", "a "}) {
    EXPECT_FALSE(store.Response(other, "r"));
    EXPECT_FALSE(store.Input(other, "r"));
    EXPECT_FALSE(store.Conversation(other, "r"));
    EXPECT_FALSE(store.Item(other, "r_in"));
    EXPECT_FALSE(store.Item(other, "r_out"));
    EXPECT_FALSE(store.Finish(other, "r", R"({"a":1})", {}));
    EXPECT_FALSE(store.Erase(other, "r"));
  }
  ASSERT_TRUE(store.Begin("b", "r", R"({"status":"b"})", {Item("r_in", "of b")}));
  EXPECT_EQ(store.Item("a", "r_in")->text, Item("r_in", "a").text);
  EXPECT_EQ(store.Item("b", "r_in")->text, Item("r_in", "of b").text);
  EXPECT_TRUE(store.Erase("b", "r"));
  EXPECT_TRUE(store.Response("a", "r"));
}

TEST(ResponseStore, SharedItemsAreKeptOnceAndUntilTheLastResponseGoes) {
  ResponseStore store(kLimits);
  const std::string text(10'000, 'a');
  ASSERT_TRUE(store.Begin("a", "r1", R"({"a":1})", {Item("m1", text)}));
  ASSERT_TRUE(store.Finish("a", "r1", R"({"a":1})", {Item("o1")}));
  const int64_t before = store.stats().bytes;
  ASSERT_TRUE(store.Begin("a", "r2", R"({"a":2})", {Item("m1"), Item("o1"), Item("m2")}));
  EXPECT_LT(store.stats().bytes, before + 2'000) << "the long text is counted once";
  EXPECT_EQ(store.stats().items, 3);
  EXPECT_EQ(store.Item("a", "m1")->text, Item("m1", text).text) << "and is the first's";
  ASSERT_TRUE(store.Erase("a", "r1"));
  EXPECT_EQ(Ids(store.Input("a", "r2")), (std::vector<std::string>{"m1", "o1", "m2"}));
  EXPECT_GT(store.stats().bytes, 10'000);
  ASSERT_TRUE(store.Erase("a", "r2"));
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.stats().items, 0);
  EXPECT_EQ(store.stats().responses, 0);
}

TEST(ResponseStore, TheOldestOfAKeyGoesFirstByCount) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(Add(&store, "b", "of-b"));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(Add(&store, "a", fmt::format("r{}", i)));
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(store.Response("a", fmt::format("r{}", i)).has_value(), i >= 5) << i;
    EXPECT_EQ(store.Item("a", fmt::format("r{}_in", i)).has_value(), i >= 5) << i;
  }
  EXPECT_TRUE(store.Response("b", "of-b")) << "another key's is older and stays";
  EXPECT_EQ(store.stats().evictions, 5);
  EXPECT_EQ(store.stats().responses, 26);
}

TEST(ResponseStore, TheOldestOfAKeyGoesFirstByBytes) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(Add(&store, "b", "of-b"));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Add(&store, "a", fmt::format("r{}", i), 80'000));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(store.Response("a", fmt::format("r{}", i)).has_value(), i >= 2) << i;
  }
  EXPECT_TRUE(store.Response("b", "of-b"));
}

TEST(ResponseStore, TheOldestOfAllGoesFirstWhenAllKeysTogetherHaveTooMuch) {
  ResponseStore store(kLimits);
  for (int key = 0; key < 6; ++key) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Add(&store, fmt::format("k{}", key), fmt::format("r{}", i), 80'000));
      EXPECT_LE(store.stats().bytes, kLimits.bytes);
    }
  }
  EXPECT_FALSE(store.Response("k0", "r0"));
  EXPECT_FALSE(store.Response("k1", "r2"));
  EXPECT_TRUE(store.Response("k2", "r0"));
  EXPECT_TRUE(store.Response("k5", "r2"));
}

TEST(ResponseStore, WithoutKeysTheOneClientMayHaveAll) {
  ResponseStore store(kLimits);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Add(&store, "", fmt::format("r{}", i), 80'000));
  EXPECT_TRUE(store.Response("", "r0"));
  EXPECT_EQ(store.stats().evictions, 0);
}

TEST(ResponseStore, WhatIsTooLargeAloneIsNotKeptAndDropsNothing) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(Add(&store, "a", "small"));
  EXPECT_FALSE(Add(&store, "a", "large", 1 << 18));
  EXPECT_FALSE(store.Response("a", "large"));
  EXPECT_TRUE(store.Response("a", "small"));
  EXPECT_FALSE(Add(&store, "a", "small")) << "an id is taken once";
  ResponseStore none({});
  EXPECT_FALSE(Add(&none, "", "r"));
}

TEST(ResponseStore, AnAnswerThatMakesItsResponseTooLargeIsNotKeptAndDropsNothing) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(Add(&store, "a", "small"));
  const int64_t before = store.stats().bytes;
  ASSERT_TRUE(store.Begin("a", "r", R"({"a":1})", {Item("m")}));
  EXPECT_FALSE(store.Finish("a", "r", R"({"a":1})", {Item("o", std::string(1 << 18, 'a'))}));
  EXPECT_FALSE(store.Response("a", "r"));
  EXPECT_TRUE(store.Response("a", "small"));
  EXPECT_EQ(store.stats().bytes, before);
}

TEST(ResponseStore, AResponseThatWentWhileItWasMadeIsNotFinished) {
  ResponseStore store(kLimits);
  ASSERT_TRUE(store.Begin("a", "r", R"({"a":1})", {Item("m")}));
  ASSERT_TRUE(store.Erase("a", "r"));
  EXPECT_FALSE(store.Finish("a", "r", R"({"a":1})", {Item("o")}));
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.stats().items, 0);
}

// Whatever happens in whichever order, the bounds hold and nothing is counted that is not there.
TEST(ResponseStore, BoundsHoldThroughTenThousandRandomOperations) {
  constexpr ResponseStore::Limits kSmall{
      .bytes = 60'000, .key_bytes = 20'000, .responses = 30, .key_responses = 12};
  ResponseStore store(kSmall);
  Rng rng(7);
  int64_t refused = 0;
  for (int step = 0; step < 10'000; ++step) {
    const std::string key = fmt::format("k{}", rng.Below(5));
    const std::string id = fmt::format("r{}", rng.Below(40));
    const auto text = [&] { return std::string(static_cast<size_t>(rng.Below(6'000)), 'a'); };
    const int64_t what = rng.Below(10);
    if (what < 5) {
      Items input = store.Conversation(key, fmt::format("r{}", rng.Below(40))).value_or(Items());
      input.push_back(Item(fmt::format("i{}", step), text()));
      refused += store.Begin(key, id, R"({"a":1})", input) ? 0 : 1;
    } else if (what < 9) {
      if (store.Response(key, id) && !store.Conversation(key, id)) {
        store.Finish(key, id, R"({"a":1,"b":2})", {Item(fmt::format("o{}", step), text())});
      }
    } else {
      store.Erase(key, id);
    }
    const ResponseStore::Stats stats = store.stats();
    ASSERT_LE(stats.bytes, kSmall.bytes);
    ASSERT_LE(stats.responses, kSmall.responses);
    ASSERT_GE(stats.bytes, 0);
  }
  EXPECT_GT(store.stats().evictions, 100);
  EXPECT_GT(refused, 10);
  for (int key = 0; key < 5; ++key) {
    for (int id = 0; id < 40; ++id) store.Erase(fmt::format("k{}", key), fmt::format("r{}", id));
  }
  EXPECT_EQ(store.stats().bytes, 0);
  EXPECT_EQ(store.stats().items, 0);
  EXPECT_EQ(store.stats().responses, 0);
}

}  // namespace
}  // namespace braid
