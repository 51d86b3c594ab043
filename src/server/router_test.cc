// Who may call which route, what a body must be, and what one key sees of another's requests.
#include "server/router.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/test_router.h"

namespace braid {
namespace {

using testing::HasSubstr;

std::string SomePath(std::string_view pattern) {
  std::string path(pattern);
  if (const size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "x1");
  return path;
}

TEST_F(RouterTest, EachRouteIsOpenToItsCallersOnly) {
  router().SetKeys(kKeys);
  for (const bool ready : {false, true}) {
    if (ready) MakeReady();
    for (const Route* row : AllRoutes()) {
      if (ready && row->generates) continue;  // starts an answer
      for (const std::string_view pattern : {row->path, row->aliases[0], row->aliases[1]}) {
        if (pattern.empty()) continue;
        SCOPED_TRACE(pattern);
        const HttpRequest request =
            Request(std::string(kMethodNames[static_cast<size_t>(row->method)]), SomePath(pattern));
        const HttpResponse unknown = Send(request), ann = Send(request, "ann"),
                           root = Send(request, "root");
        EXPECT_EQ(unknown.status == 401, row->access != Access::kPublic) << unknown.body;
        EXPECT_EQ(unknown.headers == "WWW-Authenticate: Bearer\r\n", unknown.status == 401);
        EXPECT_EQ(ann.status == 403, row->access == Access::kAdmin) << ann.body;
        EXPECT_NE(ann.status, 401);
        EXPECT_TRUE(root.status != 401 && root.status != 403) << root.body;
      }
    }
  }
}

TEST_F(RouterTest, AnUnknownPathNeedsAKeyToo) {
  router().SetKeys(kKeys);
  MakeReady();
  EXPECT_EQ(Get("/nothing").status, 401);
  EXPECT_EQ(Get("/nothing", "wrong").status, 401);
  EXPECT_EQ(Get("/nothing", "ann").status, 404);
}

TEST_F(RouterTest, AKeyMayComeInEitherHeaderAndAuthorizationGoesFirst) {
  router().SetKeys(kKeys);
  MakeReady();
  HttpRequest request = Request("GET", "/v1/models");
  request.api_key = "key-of-ann";
  EXPECT_EQ(Send(request).status, 200);
  request.authorization = "Bearer wrong-key";
  EXPECT_EQ(Send(request).status, 401);
  request.authorization = "Basic YTpi";
  EXPECT_EQ(Send(request).status, 200) << "no bearer: x-api-key counts";
}

TEST_F(RouterTest, WithoutKeysAdministrationNeedsALoopbackOrAdminListener) {
  MakeReady();
  HttpRequest request = Request("POST", "/resume");
  EXPECT_EQ(Send(request).status, 200);
  request.peer.loopback_listener = false;
  const HttpResponse refused = Send(request);
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(CodeOf(refused), "admin_key_required");
  EXPECT_EQ(Send(request, "root").status, 403) << "there are no keys";
  request.peer.admin_listener = true;
  EXPECT_EQ(Send(request).status, 200);
  HttpRequest open = Request("GET", "/v1/models");
  open.peer.loopback_listener = false;
  EXPECT_EQ(Send(open).status, 200) << "only administration is held back";
}

TEST_F(RouterTest, WithAnAdminPortAdministrationIsServedThereOnly) {
  config_.http.admin_port = 0;
  router().SetKeys(kKeys);
  MakeReady();
  HttpRequest request = Request("POST", "/resume");
  EXPECT_EQ(Send(request, "root").status, 404);
  request.peer.admin_listener = true;
  EXPECT_EQ(Send(request, "root").status, 200);
  EXPECT_EQ(Send(request, "ann").status, 403);
}

TEST_F(RouterTest, WrongKeysAreCountedAndMissingOnesAreNot) {
  config_.login_failures_per_second = 2;
  router().SetKeys(kKeys);
  MakeReady();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/v1/models", "ann").status, 200);
  EXPECT_EQ(Get("/v1/models", "wrong").status, 401);
  EXPECT_EQ(Get("/v1/models", "wrong").status, 401);
  const HttpResponse refused = Get("/v1/models", "wrong");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(CodeOf(refused), "too_many_logins");
  EXPECT_EQ(refused.retry_after_seconds, 1);
  EXPECT_EQ(Get("/v1/models", "ann").status, 200) << "it was used from there before";
  EXPECT_EQ(Get("/v1/models", "bob").status, 429) << "it was not";
  EXPECT_EQ(Get("/health", "wrong").status, 200) << "public routes look at no key";
}

TEST_F(RouterTest, AnotherMethodIsRefusedWithThoseThatThePathTakes) {
  MakeReady();
  const std::pair<const char*, const char*> allowed[] = {{"/health", "GET"},
                                                         {"/v1/chat/completions", "POST"},
                                                         {"/v1/responses/r1", "GET, DELETE"},
                                                         {"/v1/responses/r1/cancel", "POST"},
                                                         {"/v1/tokenize", "POST"}};
  for (const auto& [path, methods] : allowed) {
    for (const char* method : {"PUT", "OPTIONS", "PATCH"}) {
      const HttpResponse response = Send(Request(method, path));
      EXPECT_EQ(response.status, 405) << path;
      EXPECT_EQ(response.allow, methods) << path;
      EXPECT_THAT(response.body, HasSubstr(fmt::format("accepts {}, not {}", methods, method)));
    }
  }
  EXPECT_EQ(Get("/v1/chat/completions").status, 405);
  EXPECT_EQ(Post("/health", "").status, 405);
}

TEST_F(RouterTest, PathsOfOtherServersSayWhatIsMissing) {
  MakeReady();
  EXPECT_EQ(CodeOf(Get("/v1/embeddings")), "not_supported");
  EXPECT_THAT(Post("/chat/completions", "{}").body, HasSubstr("use /v1/chat/completions"));
  const HttpResponse plain = Get("/nothing");
  EXPECT_EQ(CodeOf(plain), "");
  EXPECT_THAT(plain.body, HasSubstr("no such path: /nothing\""));
}

TEST_F(RouterTest, WhileTheModelLoadsOnlyTheServersOwnStateIsShown) {
  router().SetLoading("loading weights, 40 %");
  for (const Route* row : AllRoutes()) {
    SCOPED_TRACE(row->path);
    const HttpResponse response = Send(Request(
        std::string(kMethodNames[static_cast<size_t>(row->method)]), SomePath(row->path), "{}"));
    const bool shown = row->before_ready && row->path != "/ready";
    EXPECT_EQ(response.status, shown ? 200 : 503);
    if (shown) continue;
    EXPECT_THAT(response.body, HasSubstr("loading weights, 40 %"));
    EXPECT_EQ(response.retry_after_seconds, 1);
  }
  MakeReady();
  EXPECT_EQ(Get("/ready").status, 200);
  EXPECT_EQ(Get("/metrics").status, 200);
}

TEST_F(RouterTest, BodiesAreJsonAndNotEncoded) {
  MakeReady();
  HttpRequest request = Request("POST", "/tokenize", R"({"prompt": "a"})");
  for (const char* type : {"", "application/json", "application/json; charset=utf-8",
                           "application/json ; a=b", "application/vnd.api+json",
                           "application/JSON", "Application/Vnd.Api+Json; charset=UTF-8"}) {
    request.content_type = type;
    EXPECT_EQ(Send(request).status, 200) << type;
  }
  for (const char* type : {"text/plain", "application/jsonx", "text/a+json", "json", ";"}) {
    request.content_type = type;
    EXPECT_EQ(Send(request).status, 415) << type;
  }
  request.content_type = "application/json";
  for (const char* encoding : {"identity", "Identity"}) {
    request.content_encoding = encoding;
    EXPECT_EQ(Send(request).status, 200) << encoding;
  }
  request.content_encoding = "gzip";
  EXPECT_EQ(Send(request).status, 415);
  request.body = "{";
  request.content_encoding = "";
  EXPECT_EQ(Send(request).status, 400);
}

TEST_F(RouterTest, AnOptionalBodyIsReadIfItIsThere) {
  MakeReady();
  HttpRequest request = Request("POST", "/pause");
  request.content_type = "text/plain";
  EXPECT_EQ(Send(request).status, 200) << "nothing to read";
  EXPECT_TRUE(driver_.stats().paused);
  request.body = R"({"mode": "keep"})";
  EXPECT_EQ(Send(request).status, 415);
  request.content_type = "";
  EXPECT_EQ(Send(request).status, 200);
  request.body = R"({"mode": "sleep"})";
  EXPECT_EQ(Send(request).status, 400);
  EXPECT_EQ(Post("/continue_generation", "not read").status, 200);
  EXPECT_FALSE(driver_.stats().paused);
}

TEST_F(RouterTest, PausingWithAbortEndsWhatRunsAndPausingAloneDoesNot) {
  MakeReady();
  const auto answer = Start("/v1/completions", R"({"prompt": [1]})");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(Post("/pause", "").status, 200);
  EXPECT_FALSE(answer->Take().last);
  EXPECT_EQ(Post("/pause_generation", R"({"mode": "abort"})").status, 200);
  const AnswerStep step = answer->Take();
  EXPECT_TRUE(step.last);
  ASSERT_TRUE(step.response);
  EXPECT_EQ(CodeOf(*step.response), "aborted");
}

TEST_F(RouterTest, ErrorsHaveTheFormOfTheirApi) {
  router().SetKeys(kKeys);
  MakeReady();
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    for (const HttpResponse& response : {Post(path, "{}"), Post(path, "{}", "ann")}) {
      EXPECT_THAT(response.body, HasSubstr(R"("type":"error")")) << path;
    }
  }
  for (const HttpResponse& response :
       {Post("/v1/completions", "{}"), Post("/v1/completions", "{}", "ann"),
        Get("/v1/messages", "ann")}) {
    EXPECT_THAT(response.body, HasSubstr(R"({"error":{"message")"));
  }
}

TEST_F(RouterTest, AnotherModelThanTheOneServedIsNotFound) {
  MakeReady();
  EXPECT_EQ(Post("/tokenize", R"({"prompt": "a", "model": "tiny"})").status, 200);
  const HttpResponse other = Post("/tokenize", R"({"prompt": "a", "model": "Tiny"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(CodeOf(other), "model_not_found");
  EXPECT_EQ(Get("/v1/models/tiny").status, 200);
  EXPECT_EQ(Get("/v1/models/t%69ny").status, 200);
  EXPECT_EQ(Get("/v1/models/t%6").status, 404);
}

TEST_F(RouterTest, AKeySeesItsOwnRequestsAndAnAdminAll) {
  router().SetKeys(kKeys);
  MakeReady();
  const auto of_ann = Start("/v1/responses", R"({"input": "a"})", "ann");
  const auto of_bob = Start("/v1/completions", R"({"prompt": [1]})", "bob");
  ASSERT_TRUE(of_ann && of_bob);
  ASSERT_EQ(IdsSeenBy("ann").size(), 1U);
  ASSERT_EQ(IdsSeenBy("bob").size(), 1U);
  EXPECT_NE(IdsSeenBy("ann"), IdsSeenBy("bob"));
  EXPECT_EQ(IdsSeenBy("root").size(), 2U);
}

TEST_F(RouterTest, AKeyLearnsItsNameItsLimitsAndWhatItUses) {
  router().SetKeys(kKeys);
  MakeReady();
  const auto of_ann = Start("/v1/completions", R"({"prompt": [1]})", "ann");
  ASSERT_NE(of_ann, nullptr);
  const auto key_of = [&](std::string_view key) {
    return ParseJson(Get("/v1/key", key).body, "key")->as_object();
  };
  EXPECT_EQ(key_of("ann"), (json::object{{"name", "ann"},
                                         {"admin", false},
                                         {"requests", 1},
                                         {"requests_max", nullptr},
                                         {"tokens_per_minute", nullptr}}));
  EXPECT_EQ(key_of("bob").at("requests_max"), 1);
  EXPECT_EQ(key_of("bob").at("requests"), 0) << "another's does not count";
  EXPECT_EQ(key_of("root").at("requests"), 0) << "although an admin sees all";
  EXPECT_EQ(key_of("root").at("admin"), true);
  router().SetKeys({});
  EXPECT_EQ(key_of("").at("name"), nullptr);
}

TEST_F(RouterTest, AKeyCannotReadCancelOrDeleteAnothersResponse) {
  router().SetKeys(kKeys);
  MakeReady();
  auto answer = Start("/v1/responses", R"({"input": "a"})", "ann");
  ASSERT_NE(answer, nullptr);
  const std::string path = "/v1/responses/" + IdsSeenBy("ann").at(0);
  EXPECT_EQ(Get(path, "bob").status, 404);
  EXPECT_EQ(Get(path + "/input_items", "bob").status, 404);
  EXPECT_EQ(Post(path + "/cancel", "", "bob").status, 404);
  EXPECT_EQ(Send(Request("DELETE", path), "bob").status, 404);
  EXPECT_FALSE(answer->Take().last) << "it goes on";
  EXPECT_THAT(Get(path, "ann").body, HasSubstr(R"("status":"in_progress")"));
  EXPECT_EQ(Get(path + "/input_items", "ann").status, 200);
  EXPECT_EQ(Get(path, "root").status, 200) << "an admin sees what runs";

  EXPECT_THAT(Post(path + "/cancel", "", "ann").body, HasSubstr(R"("status":"cancelled")"));
  EXPECT_TRUE(answer->Take().last);
  answer.reset();
  EXPECT_EQ(Post(path + "/cancel", "", "ann").status, 400) << "it has ended";
  EXPECT_EQ(Get(path, "root").status, 404) << "what is stored is its key's alone";
  EXPECT_EQ(Send(Request("DELETE", path), "bob").status, 404);
  EXPECT_EQ(Send(Request("DELETE", path), "ann").status, 200);
  EXPECT_EQ(Get(path, "ann").status, 404);
}

TEST_F(RouterTest, AnAdminEndsAnybodysRequestByEitherId) {
  router().SetKeys(kKeys);
  MakeReady();
  // A router in front sets the header, whatever the body says.
  auto first =
      Start("/v1/completions", R"({"prompt": [1], "request_id": "r-1"})", "ann", "of-router");
  const auto second = Start("/v1/completions", R"({"prompt": [1]})", "ann");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(Post("/abort_request", R"({"rid": "r-2"})", "root").body, R"({"aborted":0})");
  EXPECT_EQ(Post("/abort_request", R"({"rid": "r-1"})", "root").body, R"({"aborted":1})");
  EXPECT_EQ(Post("/abort_request", R"({"rid": "r-1"})", "root").body, R"({"aborted":0})");
  EXPECT_TRUE(first->Take().last);
  first = Start("/v1/completions", R"({"prompt": [1], "rid": "r-1"})", "ann", "of-router");
  EXPECT_EQ(Post("/abort_request", R"({"rid": "of-router"})", "root").body, R"({"aborted":1})");
  EXPECT_TRUE(first->Take().last);
  first.reset();
  EXPECT_FALSE(second->Take().last);
  EXPECT_EQ(Post("/abort_requests", R"({"abort_all": true})", "root").body, R"({"aborted":1})");
  EXPECT_TRUE(second->Take().last);
}

TEST_F(RouterTest, AKeyHasNoMoreRequestsThanItsLimit) {
  router().SetKeys(kKeys);
  MakeReady();
  auto first = Start("/v1/completions", R"({"prompt": [1]})", "bob");
  ASSERT_NE(first, nullptr);
  const HttpResponse refused = Post("/v1/completions", R"({"prompt": [1]})", "bob");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(CodeOf(refused), "rate_limit_exceeded");
  EXPECT_NE(Start("/v1/completions", R"({"prompt": [1]})", "ann"), nullptr);
  first.reset();
  EXPECT_NE(Start("/v1/completions", R"({"prompt": [1]})", "bob"), nullptr);
}

TEST_F(RouterTest, WaitingPromptsHaveEightTimesTheTokensOfTheCacheAtMost) {
  MakeReady();
  std::string tokens = "1";
  for (int i = 1; i < kBlockTokens; ++i) tokens += ",1";
  const std::string body = fmt::format(R"({{"prompt": [{}], "max_tokens": 1}})", tokens);
  std::vector<std::unique_ptr<Answer>> waiting;
  for (int i = 0; i < 8 * kPages; ++i) waiting.push_back(Start("/v1/completions", body));
  const HttpResponse refused = Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(CodeOf(refused), "overloaded");
  EXPECT_EQ(Post("/v1/completions", R"({"prompt": [1]})").status, 503) << "a short one too";
  waiting.pop_back();
  EXPECT_NE(Start("/v1/completions", body), nullptr);
}

TEST_F(RouterTest, RoutesOfTextsRememberLongOnesByTenant) {
  MakeReady();
  router().SetKeys(kKeys);
  std::string text;
  for (int i = 0; i < 4000; ++i) text += fmt::format("{} ", i);
  const auto found = [&](const std::string& path, const std::string& body, std::string_view key) {
    const uint64_t before = tokenizer_.long_texts().found;
    EXPECT_EQ(Post(path, body, key).status, 200) << path;
    return tokenizer_.long_texts().found > before;
  };
  const std::pair<std::string, std::string> requests[] = {
      {"/tokenize", fmt::format(R"({{"prompt": "{}"}})", text)},
      {"/v1/messages/count_tokens",
       fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", text)}};
  for (const auto& [path, body] : requests) {
    EXPECT_FALSE(found(path, body, "ann")) << path;
    EXPECT_TRUE(found(path, body, "ann")) << path;
    EXPECT_FALSE(found(path, body, "bob")) << path;
  }
}

TEST_F(RouterTest, WhileDrainingNothingNewIsGenerated) {
  MakeReady();
  router().SetDraining();
  EXPECT_EQ(CodeOf(Get("/ready")), "draining");
  EXPECT_EQ(CodeOf(Post("/v1/completions", R"({"prompt": [1]})")), "shutting_down");
  EXPECT_EQ(CodeOf(Get("/health_generate")), "shutting_down");
  EXPECT_EQ(Post("/tokenize", R"({"prompt": "a"})").status, 200);
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(RouterTest, HealthFailsWhenTheEngineThreadIsSilent) {
  MakeReady();
  EXPECT_EQ(Get("/health").status, 200);
  config_.step_seconds_max = 0;
  const HttpResponse silent = Get("/health");
  EXPECT_EQ(silent.status, 503);
  EXPECT_EQ(CodeOf(silent), "stalled");
  EXPECT_THAT(silent.body, HasSubstr("between two steps"));
}

TEST_F(RouterTest, PagesOfOtherOriginsCauseNothing) {
  MakeReady();
  const auto status = [&](std::string method, std::string path) {
    HttpRequest request = Request(std::move(method), std::move(path), "{}");
    request.host = "localhost";
    request.origin = "https://evil.example";
    return Send(std::move(request)).status;
  };
  EXPECT_EQ(status("POST", "/tokenize"), 403);
  EXPECT_EQ(status("POST", "/pause"), 403);
  EXPECT_EQ(status("GET", "/pause"), 403) << "an admin's path, whatever the method";
  EXPECT_EQ(status("GET", "/health_generate"), 403) << "runs the model";
  EXPECT_EQ(status("DELETE", "/v1/responses/x"), 403);
  EXPECT_EQ(status("GET", "/v1/models"), 200);
  EXPECT_EQ(status("OPTIONS", "/v1/models"), 403) << "a preflight";
  HttpRequest foreign = Request("GET", "/v1/models");
  foreign.host = "evil.example";
  EXPECT_EQ(Send(foreign).status, 403) << "DNS rebinding";
}

TEST_F(RouterTest, AllowedOriginsGetTheirHeadersWithEveryReply) {
  config_.cors_origins = {"https://a.example"};
  MakeReady();
  HttpRequest request = Request("OPTIONS", "/v1/models");
  request.origin = "https://a.example";
  const Reply reply = router().Respond(request, [] {});
  EXPECT_EQ(std::get<HttpResponse>(reply.content).status, 200);
  EXPECT_THAT(reply.headers, HasSubstr("Access-Control-Allow-Origin: https://a.example\r\n"));
}

TEST_F(RouterTest, AReplyHasTheClientsRequestIdOrOneOfItsOwn) {
  HttpRequest request = Request("GET", "/health");
  const std::string first = router().Respond(request, [] {}).request_id;
  const std::string second = router().Respond(request, [] {}).request_id;
  EXPECT_EQ(first.size(), 20U);
  EXPECT_TRUE(first.starts_with("req-"));
  EXPECT_NE(first, second);
  request.request_id = "mine";
  EXPECT_EQ(router().Respond(request, [] {}).request_id, "mine");
}

TEST_F(RouterTest, ProbesAndQuickRequestsAreKnownBeforeTheyAreAnswered) {
  for (const char* path : {"/health", "/ready"}) EXPECT_TRUE(router().IsProbe(path)) << path;
  for (const char* path : {"/version", "/", "/nothing", "/pause"}) {
    EXPECT_FALSE(router().IsProbe(path)) << path;
  }
  for (const char* path : {"/health", "/metrics", "/nothing", "/v1/chat/completions"}) {
    EXPECT_TRUE(router().IsQuick(Request("GET", path))) << path;
  }
  EXPECT_TRUE(router().IsQuick(Request("OPTIONS", "/pause")));
  EXPECT_FALSE(router().IsQuick(Request("GET", "/v1/responses/r1")));
  EXPECT_FALSE(router().IsQuick(Request("GET", "/v1/responses/r1/input_items")));
  EXPECT_FALSE(router().IsQuick(Request("POST", "/tokenize")));
  EXPECT_FALSE(router().IsQuick(Request("DELETE", "/v1/responses/r1")));
}

TEST_F(RouterTest, RefusalsOfTheNetworkCloseTheConnection) {
  const HttpResponse response = router().Refuse(503, "too many");
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.close);
  EXPECT_EQ(response.retry_after_seconds, 1);
  EXPECT_THAT(response.body, HasSubstr("too many"));
}

TEST_F(RouterTest, TheLargestBodyGrowsWithTheContext) {
  EXPECT_EQ(router().BodyBytesMax(), limits::kBodyBytesMin);
  router().SetReady({.driver = driver_,
                     .card = {.name = "long", .context_tokens_max = 1 << 18, .vocabulary = 100}});
  EXPECT_EQ(router().BodyBytesMax(), size_t{8} << 20);
}

TEST_F(RouterTest, TheServerSaysWhichModelItServes) {
  MakeReady();
  const json::value body = *ParseJson(Get("/server_info", "root").body, "body");
  EXPECT_EQ(body.at("model"), json::value("tiny"));
  EXPECT_EQ(body.at("vocabulary"), 4073);
  EXPECT_EQ(body.at("context_tokens_max"), kContext);
  EXPECT_EQ(body.at("eos_token_ids"), (json::array{4064, 4066}));
}

TEST_F(RouterTest, ThePageForbidsToBeFramed) {
  const HttpResponse page = Get("/");
  EXPECT_EQ(page.body, "<p>page</p>");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.headers, HasSubstr("frame-ancestors 'none'"));
}

}  // namespace
}  // namespace braid
