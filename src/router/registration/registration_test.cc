// What engines and routers say to each other is read as it was written, and nothing else is.
#include "router/registration/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace braid {
namespace {

using testing::HasSubstr;

Registration Example() {
  return {.address = {.name = "a", .host = "10.0.0.1", .port = 8000, .key = {}, .events = {}},
          .generation = 7,
          .program = "0.1.0",
          .fingerprint = "the model: x\n--weights: bf16\n",
          .prefills = true,
          .handoff = "[fd00::1]:7000"};
}

std::string Refusal(std::string_view body, std::string_view name = "a") {
  const auto registration = ParseRegistration(name, body);
  EXPECT_FALSE(registration) << body;
  return registration ? "" : registration.error().message;
}

TEST(Registration, IsReadAsItWasWritten) {
  for (const bool leaves : {false, true}) {
    Registration registration = Example();
    registration.leaves = leaves;
    const auto read = ParseRegistration("a", EncodeRegistration(registration));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, registration);
  }
  Registration other = Example();
  other.prefills = false;
  other.handoff.clear();
  other.address.host = "::1";
  other.address.events = {"tcp://[::1]:5557", "tcp://a:5558"};
  const auto read = ParseRegistration("a", EncodeRegistration(other));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, other);
}

TEST(Registration, AnErrorNamesTheFieldAndWhatWouldBeRight) {
  const auto with = [](const std::string& field, const std::string& value) {
    json::object object = ParseJson(EncodeRegistration(Example()), "x")->as_object();
    object[field] = *ParseJson(value, "x");
    return json::serialize(object);
  };
  const auto without = [](const std::string& field) {
    json::object object = ParseJson(EncodeRegistration(Example()), "x")->as_object();
    object.erase(field);
    return json::serialize(object);
  };
  for (const char* field : {"generation", "url", "fingerprint", "handoff"}) {
    EXPECT_THAT(Refusal(without(field)), HasSubstr(std::string(field) + ": must be there"));
  }
  EXPECT_THAT(Refusal("[]"), HasSubstr("body: must be an object"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("version: must be 1, got 0"));
  EXPECT_THAT(Refusal(with("version", "2")), HasSubstr("version: must be 1, got 2"));
  EXPECT_THAT(Refusal(with("generation", "0")), HasSubstr("generation: must be an integer from 1"));
  EXPECT_THAT(Refusal(with("generation", "1e3")), HasSubstr("generation: must be an integer"));
  EXPECT_THAT(Refusal(with("url", "\"https://a:1\"")), HasSubstr("url: must be http://HOST:PORT"));
  EXPECT_THAT(Refusal(with("url", "1")), HasSubstr("url: must be a text"));
  EXPECT_THAT(Refusal(with("role", "\"x\"")), HasSubstr("role: must be one of"));
  EXPECT_THAT(Refusal(with("role", "\"both\"")), HasSubstr("handoff: must be there with"));
  EXPECT_THAT(Refusal(with("handoff", "\"a\"")), HasSubstr("handoff: must be HOST:PORT"));
  EXPECT_THAT(Refusal(with("handoff", "\"a:1\\r\\nx: y\"")), HasSubstr("handoff: must be"));
  EXPECT_THAT(Refusal(with("fingerprint", "\"\"")), HasSubstr("fingerprint: must be lines"));
  EXPECT_THAT(Refusal(with("fingerprint", "\"" + std::string(5000, 'x') + "\"")),
              HasSubstr("at most 4096"));
  EXPECT_THAT(Refusal(with("kv_events", "\"tcp://*:1\"")), HasSubstr("kv_events: must be tcp://"));
  EXPECT_THAT(Refusal(with("leaves", "1")), HasSubstr("leaves: must be true or false"));
  EXPECT_THAT(Refusal(with("more", "1")), HasSubstr("more: must be one of version"));
  EXPECT_THAT(Refusal(EncodeRegistration(Example()), "a b"), HasSubstr("1 to 64 letters"));
}

TEST(Registration, OfTooManyBytesIsRefused) {
  std::string body = EncodeRegistration(Example());
  body.resize(kRegistrationBytesMax, ' ');
  EXPECT_TRUE(ParseRegistration("a", body));
  EXPECT_THAT(Refusal(body + " "), HasSubstr("at most 16384 are accepted"));
}

TEST(Registration, SaysNoKey) {
  Registration registration = Example();
  registration.address.key = "secret";
  EXPECT_EQ(EncodeRegistration(registration), EncodeRegistration(Example()));
}

TEST(Registration, ALeaseIsReadAsItWasWritten) {
  const auto lease =
      ParseLease(EncodeLease({.lease_ms = 5000, .prefills = {"10.0.0.1:7000", "[::1]:7"}}));
  ASSERT_TRUE(lease) << lease.error().message;
  EXPECT_EQ(lease->lease_ms, 5000);
  EXPECT_EQ(lease->prefills, (std::vector<std::string>{"10.0.0.1:7000", "[::1]:7"}));
  EXPECT_TRUE(ParseLease(R"({"lease_ms": 600000})"));
  for (const char* wrong :
       {"", "[]", "{}", R"({"lease_ms": 0})", R"({"lease_ms": 600001})", R"({"lease_ms": 1e3})",
        R"({"lease_ms": 1, "prefills": 1})", R"({"lease_ms": 1, "prefills": [1]})",
        R"({"lease_ms": 1, "prefills": ["a"]})"}) {
    EXPECT_FALSE(ParseLease(wrong)) << wrong;
  }
  RegistrationLease most{.lease_ms = 1, .prefills = std::vector<std::string>(256, "a:1")};
  EXPECT_TRUE(ParseLease(EncodeLease(most)));
  most.prefills.emplace_back("a:1");
  EXPECT_FALSE(ParseLease(EncodeLease(most)));
}

}  // namespace
}  // namespace braid
