// Keys from a file, who they belong to, and how many requests a tenant may have.
#include "server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ApiKeys, TheSchemeOfTheHeaderHasNoCase) {
  EXPECT_EQ(BearerKey("Bearer abc"), "abc");
  EXPECT_EQ(BearerKey("bearer abc"), "abc");
  EXPECT_EQ(BearerKey("Basic abc"), "");
  EXPECT_EQ(BearerKey("Bearer"), "");
}

TEST(TenantLoad, GivesPlacesBack) {
  TenantLoad load;
  auto first = load.Enter("a", 2), second = load.Enter("a", 2);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(load.Enter("a", 2), nullptr);
  EXPECT_NE(load.Enter("b", 2), nullptr);
  first.reset();
  EXPECT_NE(load.Enter("a", 2), nullptr);
  EXPECT_NE(load.Enter("a", 0), nullptr) << "no limit";
}

}  // namespace
}  // namespace braid
