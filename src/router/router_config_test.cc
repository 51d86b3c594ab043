// What a configuration may say, and what an error says.
#include "router/router_config.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;

std::string Engines(std::string_view more = "", std::string_view url = "http://10.0.0.1:8000") {
  return fmt::format(R"({{"engines": [{{"name": "a", "url": "{}"}}]{}}})", url, more);
}

std::string Problem(const std::string& text) {
  const Result<RouterConfig> config = ParseRouterConfig(text, "router.json");
  EXPECT_FALSE(config) << text;
  return config ? "" : config.error().message;
}

TEST(RouterConfig, ReadsEveryField) {
  const auto config = ParseRouterConfig(
      R"({"engines": [{"name": "a", "url": "http://10.0.0.1:8000/"},
                      {"name": "b", "url": "http://[::1]:81", "key": "secret-key",
                       "kv_events": "tcp://[::1]:5557", "kv_events_replay": "tcp://b:5558"}],
          "policy": "least_load", "probe_ms": 100, "lease_ms": 300, "connect_ms": 50,
          "attempts": 2, "session_header": "X-Chat", "registration": true,
          "engine_key": "key-of-all"})",
      "router.json");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->engines.size(), 2u);
  EXPECT_EQ(config->engines[0], (EngineAddress{"a", "10.0.0.1", 8000, "", {}}));
  EXPECT_EQ(config->engines[1],
            (EngineAddress{"b", "::1", 81, "secret-key", {"tcp://[::1]:5557", "tcp://b:5558"}}));
  EXPECT_EQ(config->engines[0].authority(), "10.0.0.1:8000");
  EXPECT_EQ(config->engines[1].authority(), "[::1]:81");
  EXPECT_EQ(config->policy, Policy::kLeastLoad);
  EXPECT_EQ(config->probe_ms, 100);
  EXPECT_EQ(config->lease_ms, 300);
  EXPECT_EQ(config->connect_ms, 50);
  EXPECT_EQ(config->attempts, 2);
  EXPECT_EQ(config->session_header, "x-chat");
  EXPECT_TRUE(config->registration);
  EXPECT_EQ(config->engine_key, "key-of-all");
}

TEST(RouterConfig, AnErrorNamesTheFieldAndWhatWouldBeRight) {
  EXPECT_THAT(Problem("[]"), HasSubstr("must be {\"engines\""));
  EXPECT_THAT(Problem("{}"), HasSubstr("engines: must be a list of at least one engine"));
  EXPECT_THAT(Problem(R"({"engines": []})"), HasSubstr("engines: must be a list of at least"));
  EXPECT_TRUE(ParseRouterConfig(R"({"registration": true})", "x"));
  EXPECT_THAT(Problem(R"({"registration": 1})"), HasSubstr("registration: must be true or false"));
  EXPECT_THAT(Problem(R"({"engine_key": "a b"})"), HasSubstr("engine_key: must be up to 512"));

  for (const char* url :
       {"https://a:1", "a:1", "http://a", "http://a:0", "http://a:65536", "http://a:1/v1",
        "http://:1", "http://[::1]", "http://a b:1", "http://"}) {
    EXPECT_THAT(Problem(Engines("", url)), HasSubstr("engines[0].url: must be http://HOST:PORT"));
  }
  EXPECT_THAT(Problem(Engines(R"(, "policy": "best")")),
              HasSubstr("policy: must be one of prefix, round_robin, least_load"));
  EXPECT_THAT(Problem(Engines(R"(, "attempts": 0)")), HasSubstr("an integer from 1 to 16"));
  EXPECT_THAT(Problem(Engines(R"(, "atempts": 1)")), HasSubstr("atempts: must be one of engines"));
  EXPECT_THAT(Problem(Engines(R"(, "probe_ms": 3000)")),
              HasSubstr("lease_ms: must be at least twice probe_ms (3000), got 5000"));
  EXPECT_THAT(Problem(Engines(R"(, "session_header": "a b")")), HasSubstr("name of a header"));
  EXPECT_THAT(Problem(R"({"engines": [{"name": "a b", "url": "http://a:1"}]})"),
              HasSubstr("engines[0].name: must be 1 to 64"));
  EXPECT_THAT(Problem(R"({"engines": [{"name": "a"}]})"), HasSubstr("engines[0].url: must be"));
  for (const char* url : {"tcp://*:1", "http://a:1", "tcp://a", "tcp://a:1/", "ipc://x"}) {
    const std::string text = fmt::format(
        R"({{"engines": [{{"name": "a", "url": "http://a:1", "kv_events": "{}"}}]}})", url);
    EXPECT_THAT(Problem(text), HasSubstr("engines[0].kv_events: must be tcp://HOST:PORT")) << url;
  }
}

TEST(RouterConfig, NumbersAndTextsMayHaveTheirLeastAndTheirMost) {
  const auto read = [](std::string_view more) {
    return ParseRouterConfig(Engines(fmt::format(", {}", more)), "x").ok();
  };
  const std::string header(64, 'x'), key(512, 'k');
  for (const std::string& right :
       {std::string(R"("probe_ms": 10, "lease_ms": 20)"), std::string(R"("connect_ms": 10)"),
        std::string(R"("probe_ms": 60000, "lease_ms": 600000)"), std::string(R"("attempts": 1)"),
        std::string(R"("connect_ms": 60000)"), std::string(R"("attempts": 16)"),
        fmt::format(R"("session_header": "{}")", header),
        fmt::format(R"("engine_key": "{}")", key)}) {
    EXPECT_TRUE(read(right)) << right;
  }
  for (const std::string& wrong :
       {std::string(R"("probe_ms": 9)"), std::string(R"("lease_ms": 19, "probe_ms": 10)"),
        std::string(R"("probe_ms": 60001, "lease_ms": 600000)"), std::string(R"("attempts": 17)"),
        std::string(R"("lease_ms": 600001)"), std::string(R"("connect_ms": 9)"),
        std::string(R"("connect_ms": 60001)"), std::string(R"("probe_ms": 1e3)"),
        std::string(R"("probe_ms": 11, "lease_ms": 21)"), std::string(R"("policy": 1)"),
        fmt::format(R"("session_header": "x{}")", header), std::string(R"("session_header": "")"),
        fmt::format(R"("engine_key": "k{}")", key), std::string(R"("engine_key": "")")}) {
    EXPECT_FALSE(read(wrong)) << wrong;
  }
  const auto engine = [](std::string_view fields) {
    return ParseRouterConfig(fmt::format(R"({{"engines": [{{"url": "http://a:1", {}}}]}})", fields),
                             "x")
        .ok();
  };
  EXPECT_TRUE(engine(fmt::format(R"("name": "{}")", std::string(64, 'a'))));
  EXPECT_FALSE(engine(fmt::format(R"("name": "{}")", std::string(65, 'a'))));
  EXPECT_TRUE(engine(R"("name": "a-_.Z9")"));
  EXPECT_FALSE(engine(R"("name": "")"));
  EXPECT_TRUE(engine(fmt::format(R"("name": "a", "key": "{}")", key)));
  EXPECT_FALSE(engine(R"("name": "a", "key": "k\u007f")"));
  EXPECT_FALSE(engine(R"("name": "a", "key": 1)"));
  EXPECT_FALSE(engine(R"("name": "a", "kv_events_replay": "tcp://a:1")")) << "of no events";
  std::string engines;
  const auto list = [&] { return fmt::format(R"({{"engines": [{}]}})", engines); };
  for (size_t i = 1; i <= kEnginesMax; ++i) {
    engines += fmt::format(R"({}{{"name": "{}", "url": "http://a:{}"}})", i > 1 ? "," : "", i, i);
  }
  EXPECT_TRUE(ParseRouterConfig(list(), "x"));
  engines += R"(,{"name": "more", "url": "http://a:1000"})";
  EXPECT_THAT(Problem(list()), HasSubstr("engines: must be a list of at most 256 engines"));
}

TEST(RouterConfig, NamesAndAddressesAreUnique) {
  EXPECT_THAT(Problem(R"({"engines": [{"name": "a", "url": "http://a:1"},
                                      {"name": "a", "url": "http://a:2"}]})"),
              HasSubstr("engines[1].name: must be unique"));
  EXPECT_THAT(Problem(R"({"engines": [{"name": "a", "url": "http://a:1"},
                                      {"name": "b", "url": "http://a:1/"}]})"),
              HasSubstr("engines[1].url: must be unique"));
}

TEST(RouterConfig, AnErrorNeverShowsAKey) {
  const std::string error =
      Problem(R"({"engines": [{"name": "a", "url": "http://a:1", "kye": "the-secret"}]})");
  EXPECT_THAT(error, testing::Not(HasSubstr("the-secret")));
  EXPECT_THAT(error, HasSubstr("engines[0].kye: must be one of name, url, key, kv_events"));
}

}  // namespace
}  // namespace braid
