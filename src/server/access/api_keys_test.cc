// Keys from a file, who they belong to, and how many requests a tenant may have.
#include "server/access/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/access/login_guard.h"

namespace {

// The lengths that OpenSSL's comparison in constant time was called with; the linker puts the
// function below in its place.
std::vector<size_t> compared_bytes;

}  // namespace

extern "C" {
int __real_CRYPTO_memcmp(const void* a, const void* b, size_t bytes);
int __wrap_CRYPTO_memcmp(const void* a, const void* b, size_t bytes) {
  compared_bytes.push_back(bytes);
  return __real_CRYPTO_memcmp(a, b, bytes);
}
}

namespace braid {
namespace {

std::string WrongIn(std::string_view text) {
  auto keys = ParseApiKeys(text, "keys.json");
  return keys ? "fine" : keys.error().message;
}

TEST(ApiKeys, AreReadWithTheirLimits) {
  auto keys = ParseApiKeys(R"({"keys": [
      {"name": "ann", "key": "secret-of-ann", "requests_max": 2},
      {"name": "root", "key": "secret-of-root", "admin": true}]})",
                           "keys.json");
  ASSERT_TRUE(keys) << keys.error().message;
  ApiKeys all;
  EXPECT_TRUE(all.Find("")->admin) << "without keys everybody may";
  all.Replace(*keys);
  EXPECT_EQ(all.Find("secret-of-ann")->name, "ann");
  EXPECT_EQ(all.Find("secret-of-ann")->requests_max, 2);
  EXPECT_FALSE(all.Find("secret-of-ann")->admin);
  EXPECT_TRUE(all.Find("secret-of-root")->admin);
  for (const char* wrong : {"", "secret-of-an", "secret-of-ann ", "secret-of-anna", "x"}) {
    EXPECT_FALSE(all.Find(wrong)) << wrong;
  }
}

TEST(ApiKeys, EveryKeyIsComparedInConstantTimeOverDigestsOfOneLength) {
  const std::string right = "secret-of-ann";
  ApiKeys all;
  all.Replace({{.name = "ann", .key = right}, {.name = "bob", .key = std::string(500, 'b')}});
  std::vector<std::string> presented = {"",
                                        right,
                                        right.substr(0, 8),
                                        right + "e",
                                        "Secret-of-ann",
                                        "secret-of-anN",
                                        std::string(100'000, 's')};
  for (const std::string& key : presented) {
    compared_bytes.clear();
    EXPECT_EQ(all.Find(key).has_value(), key == right);
    EXPECT_THAT(compared_bytes, testing::ElementsAre(32, 32)) << key.substr(0, 20);
  }
}

TEST(ApiKeys, OneDifferentBitAnywhereIsAnotherKey) {
  const std::string right = "0123456789abcdef";
  for (size_t i = 0; i < right.size() * 8; ++i) {
    std::string wrong = right;
    wrong[i / 8] = static_cast<char>(wrong[i / 8] ^ (1 << i % 8));
    EXPECT_FALSE(KeyDigest(wrong).Same(KeyDigest(right))) << i;
  }
  EXPECT_TRUE(KeyDigest(right).Same(KeyDigest(right)));
}

TEST(ApiKeys, WrongFilesSayWhereAndShowNoKey) {
  EXPECT_THAT(WrongIn("{"), testing::HasSubstr("keys.json"));
  EXPECT_THAT(WrongIn("{}"), testing::HasSubstr("\"keys\""));
  EXPECT_THAT(WrongIn(R"({"keys": []})"), testing::HasSubstr("at least one"));
  EXPECT_THAT(WrongIn(R"({"keys": [{"name": "a b", "key": "12345678"}]})"),
              testing::HasSubstr("keys[0].name"));
  EXPECT_THAT(WrongIn(R"({"keys": [{"name": "a", "key": "1234567"}]})"),
              testing::HasSubstr("keys[0].key"));
  EXPECT_THAT(WrongIn(R"({"keys": [{"name": "a", "key": "12345678", "requests_max": 0}]})"),
              testing::HasSubstr("requests_max"));
  EXPECT_THAT(WrongIn(R"({"keys": [{"name": "a", "key": "12345678"},
                                   {"name": "b", "key": "12345678"}]})"),
              testing::HasSubstr("keys[1].key"));
  const std::string shown = WrongIn(R"({"keys": [{"name": "a", "keys": "12345678"}]})");
  EXPECT_THAT(shown, testing::Not(testing::HasSubstr("12345678")));
}

TEST(ApiKeys, TheKeysOfANameHaveTheSameLimits) {
  const ApiKey one{.name = "a", .key = "12345678", .requests_max = 2, .tokens_per_minute = 60};
  ApiKey two = one;
  two.admin = true;
  EXPECT_TRUE(CheckLimits({one, two}));
  two.name = "b";
  two.requests_max = 3;
  EXPECT_TRUE(CheckLimits({one, two}));
  two.name = "a";
  const Status requests = CheckLimits({one, two});
  ASSERT_FALSE(requests);
  EXPECT_THAT(requests.error().message, testing::HasSubstr("requests_max 2 and 3"));
  two.requests_max = 2;
  two.tokens_per_minute = 0;
  const Status tokens = CheckLimits({one, two});
  ASSERT_FALSE(tokens);
  EXPECT_THAT(tokens.error().message, testing::HasSubstr("tokens_per_minute 60 and 0"));
}

TEST(ApiKeys, TheSchemeOfTheHeaderHasNoCase) {
  EXPECT_EQ(BearerKey("Bearer abc"), "abc");
  EXPECT_EQ(BearerKey("bearer abc"), "abc");
  EXPECT_EQ(BearerKey("Basic abc"), "");
  EXPECT_EQ(BearerKey("Bearer"), "");
}

TEST(TenantLoad, GivesPlacesBack) {
  TenantLoad load;
  const Caller two{.name = "a", .requests_max = 2};
  auto first = load.Enter(two, 1, 0).place, second = load.Enter(two, 1, 0).place;
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(load.Enter(two, 1, 0).place, nullptr);
  EXPECT_NE(load.Enter({.name = "b", .requests_max = 2}, 1, 0).place, nullptr);
  first.reset();
  EXPECT_NE(load.Enter(two, 1, 0).place, nullptr);
  EXPECT_NE(load.Enter({.name = "a"}, 1, 0).place, nullptr) << "no limit";
}

TEST(TenantLoad, TokensComeBackWithTime) {
  TenantLoad load;
  constexpr int64_t kSecond = 1'000'000;
  const Caller caller{.name = "a", .tokens_per_minute = 60};
  TenantLoad::Entry entry = load.Enter(caller, 50, 0);
  ASSERT_NE(entry.place, nullptr);
  entry.place->Spend(20, 0);  // an answer longer than what was left: the debt is paid first
  const TenantLoad::Entry refused = load.Enter(caller, 10, 0);
  EXPECT_EQ(refused.place, nullptr);
  EXPECT_EQ(refused.retry_after_seconds, 21);
  EXPECT_EQ(load.Enter(caller, 10, 19 * kSecond).place, nullptr);
  EXPECT_NE(load.Enter(caller, 10, 21 * kSecond).place, nullptr);
  EXPECT_EQ(load.Enter(caller, 1000, 60 * kSecond).place, nullptr);
  EXPECT_NE(load.Enter(caller, 1000, 82 * kSecond).place, nullptr) << "a full minute is enough";
  EXPECT_NE(load.Enter({.name = "b", .tokens_per_minute = 60}, 60, 0).place, nullptr);
}

TEST(TenantLoad, CompilingComesBackWithTime) {
  TenantLoad load;
  constexpr int64_t kSecond = 1'000'000;
  EXPECT_EQ(load.SecondsUntilCompile("a", 0), 0);
  load.SpendCompile("a", 4 * kSecond, 0);
  EXPECT_EQ(load.SecondsUntilCompile("a", 0), 0);
  load.SpendCompile("a", 2 * kSecond, 0);  // a quarter of a second comes back in each
  EXPECT_EQ(load.SecondsUntilCompile("a", 0), 9);
  EXPECT_EQ(load.SecondsUntilCompile("b", 0), 0);
  EXPECT_EQ(load.SecondsUntilCompile("a", 4 * kSecond), 5);
  EXPECT_EQ(load.SecondsUntilCompile("a", 8 * kSecond), 0);
}

TEST(LoginGuard, RefusesAnAddressThatTriesManyKeys) {
  LoginGuard guard(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(guard.Allows("a", "", 0));
    guard.Failed("a", 0);
  }
  EXPECT_FALSE(guard.Allows("a", "", 0));
  EXPECT_TRUE(guard.Allows("b", "", 0));
  EXPECT_TRUE(guard.Allows("a", "", 400'000));
  LoginGuard off(0);
  for (int i = 0; i < 100; ++i) off.Failed("a", 0);
  EXPECT_TRUE(off.Allows("a", "", 0));
}

TEST(LoginGuard, AKeyThatAnAddressHasUsedGoesOnWorking) {
  LoginGuard guard(3);
  guard.Succeeded("proxy", "team");
  for (int i = 0; i < 3; ++i) guard.Failed("proxy", 0);
  EXPECT_TRUE(guard.Allows("proxy", "team", 0));
  EXPECT_FALSE(guard.Allows("proxy", "other", 0));
  EXPECT_FALSE(guard.Allows("proxy", "", 0));
}

}  // namespace
}  // namespace braid
