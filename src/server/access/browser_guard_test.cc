// Which pages may ask for what, by Host, Origin and Sec-Fetch-Site.
#include "server/access/browser_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

using testing::HasSubstr;

HttpRequest At(std::string host, std::string origin = "", std::string fetch_site = "") {
  HttpRequest request{.method = "POST", .path = "/pause"};
  request.host = std::move(host);
  request.origin = std::move(origin);
  request.fetch_site = std::move(fetch_site);
  request.peer.loopback_listener = true;
  return request;
}

TEST(BrowserGuard, LoopbackHasItsNamesAndNoOthers) {
  for (const char* host : {"localhost", "LocalHost:80", "localhost.:8000", "127.0.0.1:1",
                           "127.255.3.4", "[::1]", "[::1]:8000"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
    EXPECT_TRUE(CheckHost(At(host), {})) << host;
  }
  for (const char* host :
       {"evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io", "128.0.0.1", "10.0.0.1",
        "127.1", "0x7f000001", "[::2]", "[::1", "[::ffff:127.0.0.1]", ":80", "localhost:80:80"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
    const ApiStatus status = CheckHost(At(host), {});
    ASSERT_FALSE(status) << host;
    EXPECT_EQ(status.error().status, 403);
    EXPECT_THAT(status.error().message, HasSubstr("--allowed-hosts"));
  }
}

TEST(BrowserGuard, NamesThatAreAllowedOrConfiguredPassToo) {
  AccessConfig config{.http = {.host = "mybox"}, .allowed_hosts = {"Chat.example"}};
  EXPECT_TRUE(CheckHost(At("chat.example:8443"), config));
  EXPECT_TRUE(CheckHost(At("mybox:8000"), config));
  EXPECT_FALSE(CheckHost(At("a.chat.example"), config));
  config.allowed_hosts = {"*"};
  EXPECT_TRUE(CheckHost(At("anything"), config));
  HttpRequest elsewhere = At("anything");
  elsewhere.peer.loopback_listener = false;
  EXPECT_TRUE(CheckHost(elsewhere, {})) << "the server does not know its names";
  EXPECT_TRUE(CheckHost(At(""), {})) << "HTTP/1.0: no browser";
}

TEST(BrowserGuard, OnlyPagesOfTheServerItselfHaveEffects) {
  const AccessConfig config;
  for (const Effect effect : {Effect::kGenerates, Effect::kAdministers}) {
    EXPECT_TRUE(CheckOrigin(At("localhost:8000"), effect, config)) << "no browser";
    EXPECT_TRUE(CheckOrigin(At("localhost:8000", "http://localhost:8000"), effect, config));
    EXPECT_TRUE(CheckOrigin(At("a.example", "https://A.example", "same-origin"), effect, config));
    EXPECT_TRUE(CheckOrigin(At("inner:80", "https://a.example", "same-origin"), effect, config))
        << "a proxy changed Host";
    EXPECT_TRUE(CheckOrigin(At("localhost:8000", "", "none"), effect, config)) << "typed in";
    for (const HttpRequest& foreign :
         {At("localhost:8000", "https://evil.example"), At("localhost:8000", "null"),
          At("localhost:8000", "http://localhost:3000"), At("localhost:8000", "http://localhost"),
          At("localhost:8000", "localhost:8000"), At("localhost:8000", "", "cross-site"),
          At("localhost:8000", "http://localhost:8000", "cross-site"),
          At("localhost:8000", "http://localhost:3000", "same-site"),
          At("localhost:8000", "", "future-word")}) {
      const ApiStatus status = CheckOrigin(foreign, effect, config);
      ASSERT_FALSE(status) << foreign.origin << foreign.fetch_site;
      EXPECT_EQ(status.error().status, 403);
      EXPECT_THAT(status.error().message, HasSubstr("--cors-origins"));
      EXPECT_TRUE(CheckOrigin(foreign, Effect::kNone, config));
    }
  }
}

TEST(BrowserGuard, AnOriginThatIsNamedMayDoWhatAnyPageMayNot) {
  const HttpRequest named = At("localhost", "https://a.example", "cross-site");
  const HttpRequest other = At("localhost", "https://b.example", "cross-site");
  const AccessConfig one{.cors_origins = {"https://a.example"}}, all{.cors_origins = {"*"}};
  for (const Effect effect : {Effect::kGenerates, Effect::kAdministers}) {
    EXPECT_TRUE(CheckOrigin(named, effect, one));
    EXPECT_FALSE(CheckOrigin(other, effect, one));
  }
  EXPECT_TRUE(CheckOrigin(other, Effect::kGenerates, all));
  EXPECT_FALSE(CheckOrigin(other, Effect::kAdministers, all));
}

TEST(BrowserGuard, APreflightRepeatsTheHeadersThatWereAskedFor) {
  HttpRequest request = At("localhost", "https://a.example");
  request.asked_headers = "authorization,x-stainless-lang";
  const AccessConfig config{.cors_origins = {"https://a.example"}};
  const HttpResponse allowed = AnswerPreflight(request, config);
  EXPECT_EQ(allowed.status, 200);
  EXPECT_THAT(allowed.headers,
              HasSubstr("Access-Control-Allow-Headers: authorization,x-stainless-lang\r\n"));
  request.asked_headers =
      "a\x01"
      "b";
  EXPECT_THAT(AnswerPreflight(request, config).headers,
              testing::Not(HasSubstr("Access-Control-Allow-Headers")));
  const HttpResponse refused = AnswerPreflight(request, {});
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("https://a.example may not use this server"));
  EXPECT_EQ(CorsHeaders(request, {}), "");
}

}  // namespace
}  // namespace braid
