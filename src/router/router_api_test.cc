// The router's own routes, and which requests it passes on. The engine behind it is a socket of the
// test's own thread.
#include "router/router_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/system/file.h"
#include "router/test_fleet.h"

namespace braid {
namespace {

using testing::HasSubstr;

class RouterApiTest : public testing::Test {
 protected:
  RouterApiTest() { config_.version = "9.9"; }
  ~RouterApiTest() override {
    if (api_) api_->fleet().Close();
    engine_.Stop();
    io_.run_for(std::chrono::milliseconds(50));
  }
  RouterConfig Engines() const {
    return {.engines = {engine_.Address("a")},
            .registration = registration_,
            .engine_key = "k",
            .probe_ms = 5,
            .lease_ms = 60'000,
            .connect_ms = 20'000};
  }
  void Start(std::vector<ApiKey> keys = {}) {
    api_.emplace(config_, Engines(), [this] {
      ++reloads_;
      return reloaded_;
    });
    api_->SetKeys(std::move(keys));
    api_->fleet().Start(io_.get_executor());
    ASSERT_TRUE(Until([&] { return api_->fleet().AnyReady(); }));
  }
  template <class F>
  bool Until(F done) {
    const int64_t end_us = MonotonicUs() + 20'000'000;
    while (!done() && MonotonicUs() < end_us) io_.run_one_for(std::chrono::milliseconds(10));
    return done();
  }
  static HttpRequest Request(std::string method, std::string path, const std::string& key = "") {
    HttpRequest request{.method = std::move(method), .path = std::move(path)};
    if (!key.empty()) request.authorization = "Bearer " + key;
    request.host = "localhost";
    request.peer = {.address = "127.0.0.1", .loopback_listener = true};
    request.received_us = MonotonicUs();
    return request;
  }
  static HttpRequest Post(std::string path, std::string body, const std::string& key = "") {
    HttpRequest request = Request("POST", std::move(path), key);
    request.body = std::move(body);
    return request;
  }
  // The answer, from wherever it comes.
  HttpResponse Answer(HttpRequest request) {
    Reply reply = api_->Respond(std::move(request), {});
    if (auto* response = std::get_if<HttpResponse>(&reply.content)) return std::move(*response);
    const auto relay = std::get<RelayPointer>(std::move(reply.content));
    return Relayed(*relay);
  }
  HttpResponse Relayed(Relay& relay) {
    TestClient client;
    std::optional<Relay::End> ended;
    asio::co_spawn(io_, relay.Run(client), [&](const std::exception_ptr& failed, Relay::End end) {
      EXPECT_FALSE(failed);
      ended = std::move(end);
    });
    EXPECT_TRUE(Until([&] { return ended.has_value(); }));
    if (ended->response) return *ended->response;
    return {.status = client.status, .body = client.body};
  }
  json::value Choice(const std::string& path, const std::string& body, const std::string& key = "",
                     const std::string& fields = "") {
    HttpRequest request = Post("/route" + path, body, key);
    if (body.empty()) request.method = "GET";
    request.fields = fields;
    const HttpResponse answer = Answer(std::move(request));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return *ParseJson(answer.body, "answer");
  }
  std::string Reason(const std::string& path, const std::string& body, const std::string& key = "",
                     const std::string& fields = "") {
    return std::string(Choice(path, body, key, fields).at("reason").as_string());
  }
  json::value EngineField(std::string_view field) {
    return ParseJson(Answer(Request("GET", "/engines")).body, "x")->at("data").at(0).at(field);
  }
  std::string Metrics() { return Answer(Request("GET", "/metrics", "key-of-root")).body; }

  RouterServerConfig config_;
  bool registration_ = false;
  Status reloaded_ = {};
  int reloads_ = 0;
  asio::io_context io_;
  TestEngine engine_{io_};
  std::optional<RouterApi> api_;
};

const std::vector<ApiKey> kKeys = {{.name = "ann", .key = "key-of-ann", .requests_max = 1},
                                   {.name = "root", .key = "key-of-root", .admin = true},
                                   {.name = "engines", .key = "key-of-engines", .engine = true}};
const std::string kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

TEST_F(RouterApiTest, EachOfItsRoutesDoesWhatItSays) {
  Start();
  struct Row {
    const char *method, *path;
    int status;
    std::string body;
  };
  const std::string port = engine_.Address("a").authority();
  const Row rows[] = {{"GET", "/health", 200, "{\"status\":\"ok\"}"},
                      {"GET", "/ready", 200, "{\"status\":\"ready\"}"},
                      {"GET", "/version", 200, "{\"version\":\"9.9\"}"},
                      {"GET", "/metrics", 200, "\nbraid:router_engine_ready{engine=\"a\"} 1\n"},
                      {"GET", "/engines", 200, "{\"object\":\"list\",\"policy\":\"prefix\","},
                      {"GET", "/engines", 200, "\"url\":\"http://" + port + "\""},
                      {"POST", "/reload", 200, "{\"status\":\"ok\"}"},
                      {"POST", "/engines/b/drain", 404, "no engine is called b; GET /engines"},
                      {"POST", "/engines/b/resume", 404, "no engine is called b"},
                      {"POST", "/health", 405, "/health accepts GET, not POST"},
                      {"GET", "/reload", 405, "/reload accepts POST, not GET"},
                      {"GET", "/engines/a/drain", 405, "accepts POST, not GET"},
                      {"PUT", "/engines/a/drain", 405, "accepts POST, not PUT"},
                      {"PUT", "/engines/a/resume", 405, "accepts POST, not PUT"},
                      {"DELETE", "/engines/a", 405, "accepts PUT, not DELETE"},
                      {"GET", "/engines//drain", 405, "accepts PUT, not GET"},
                      {"GET", "/engines/", 404, "no such path: /engines/"},
                      {"GET", "/engines/a/none", 405, "accepts PUT"},
                      {"GET", "/health/", 404, "no such path"},
                      {"GET", "/v1/embeddings", 404, "embeddings"},
                      {"GET", "/v1/completions", 405, "accepts POST, not GET"},
                      {"GET", "/v1/loads", 404, "/v1/loads concerns one engine; send it to that"},
                      {"GET", "/v1/running", 404, "\"code\":\"not_passed_on\""},
                      {"GET", "/v1/expert_load", 404, "concerns one engine"},
                      {"POST", "/flush_cache", 404, "concerns one engine"},
                      {"GET", "/route/none", 404, "no such path: /none"},
                      {"GET", "/route/v1/loads", 404, "/v1/loads concerns one engine"},
                      {"GET", "/route/pause", 404, "/pause concerns one engine"},
                      {"GET", "/route/v1/completions", 405, "/v1/completions accepts POST, not"},
                      {"DELETE", "/route/v1/models", 405, "accepts POST, GET, not DELETE"}};
  int refused = 0;
  for (const Row& row : rows) {
    const HttpResponse answer = Answer(Request(row.method, row.path));
    EXPECT_EQ(answer.status, row.status) << row.method << " " << row.path;
    EXPECT_THAT(answer.body, HasSubstr(row.body)) << row.method << " " << row.path;
    refused += row.status == 404;
  }
  EXPECT_THAT(Metrics(), HasSubstr(fmt::format("rejections_total {}\n", refused)));
  EXPECT_EQ(reloads_, 1);
  EXPECT_EQ(Answer(Request("POST", "/health")).allow, "GET");
  EXPECT_EQ(Answer(Request("PUT", "/engines/a/drain")).allow, "POST");
  EXPECT_EQ(Answer(Request("DELETE", "/route/v1/models")).allow, "POST, GET");
  EXPECT_THAT(Answer(Request("GET", "/metrics")).content_type, HasSubstr("text/plain"));
  EXPECT_TRUE(engine_.requests.empty());
}

TEST_F(RouterApiTest, AGatewaysSubsetBoundsTheChoice) {
  Start();
  const std::string at = engine_.Address("a").authority();
  const auto answer = [&](const std::string& subset) {
    HttpRequest request = Post("/route/v1/completions", R"({"prompt":"a"})");
    request.fields = fmt::format("X-Gateway-Destination-Endpoint-Subset: {}\r\n", subset);
    return Answer(std::move(request));
  };
  const HttpResponse inside = answer("10.0.0.1:80," + at);
  EXPECT_EQ(inside.status, 200);
  EXPECT_EQ(inside.headers, fmt::format("x-gateway-destination-endpoint: {}\r\n", at));
  EXPECT_THAT(inside.body, HasSubstr("\"fallbacks\":[]"));
  const HttpResponse outside = answer("10.0.0.1:80");
  EXPECT_EQ(outside.status, 503);
  EXPECT_THAT(outside.body, HasSubstr("none is at an address of the subset"));
  EXPECT_EQ(answer("").status, 200) << "no subset";
}

TEST_F(RouterApiTest, EnginesAreDrainedAndResumedByName) {
  Start();
  EXPECT_EQ(Answer(Request("POST", "/engines/a/drain")).status, 200);
  EXPECT_EQ(EngineField("draining"), true);
  const HttpResponse unready = Answer(Request("GET", "/ready"));
  EXPECT_EQ(unready.status, 503);
  EXPECT_THAT(unready.body, HasSubstr("no engine is ready: a: draining"));
  const HttpResponse none = Answer(Post("/route/v1/completions", "{}"));
  EXPECT_EQ(none.status, 503);
  EXPECT_THAT(none.body, HasSubstr("no engine can take the request: a: draining"));
  EXPECT_THAT(none.body, HasSubstr("\"code\":\"no_engine\""));
  EXPECT_THAT(Metrics(), HasSubstr("rejections_total 2\n"));
  EXPECT_EQ(Answer(Request("POST", "/engines/a/resume")).status, 200);
  EXPECT_EQ(EngineField("draining"), false);
  EXPECT_EQ(Answer(Request("GET", "/ready")).status, 200);
}

TEST_F(RouterApiTest, AReloadThatFailsSaysWhy) {
  Start();
  reloaded_ = Error{ErrorCode::kInvalid, "router.json: engines: must be a list"};
  const HttpResponse answer = Answer(Request("POST", "/reload"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("router.json: engines: must be a list"));
}

TEST_F(RouterApiTest, KeysDecideWhoMayDoWhat) {
  config_.login_failures_per_second = 0;
  registration_ = true;
  engine_.raw = {{kOk}};
  Start(kKeys);
  struct Row {
    const char *method, *path;
    int nobody, ann, root, engines;
  };
  constexpr Row kRows[] = {{"GET", "/health", 200, 200, 200, 200},
                           {"GET", "/ready", 200, 200, 200, 200},
                           {"GET", "/version", 401, 200, 200, 200},
                           {"GET", "/metrics", 401, 200, 200, 200},
                           {"GET", "/engines", 401, 403, 200, 403},
                           {"POST", "/reload", 401, 403, 200, 403},
                           {"POST", "/engines/a/drain", 401, 403, 200, 403},
                           {"POST", "/engines/a/resume", 401, 403, 200, 403},
                           {"PUT", "/engines/b", 401, 403, 400, 400},
                           {"GET", "/nothing", 401, 404, 404, 404},
                           {"POST", "/flush_cache", 401, 403, 404, 403},
                           {"GET", "/v1/loads", 401, 404, 404, 404},
                           {"GET", "/v1/models", 401, 200, 200, 200},
                           {"POST", "/v1/completions", 401, 200, 200, 200},
                           {"POST", "/route/v1/completions", 401, 200, 200, 200},
                           {"GET", "/route/v1/models", 401, 200, 200, 200}};
  for (const Row& row : kRows) {
    const auto status = [&](const char* key) {
      return Answer(Request(row.method, row.path, key)).status;
    };
    EXPECT_EQ(status(""), row.nobody) << row.path;
    EXPECT_EQ(status("key-of-bob"), row.nobody) << row.path;
    EXPECT_EQ(status("key-of-ann"), row.ann) << row.path;
    EXPECT_EQ(status("key-of-root"), row.root) << row.path;
    EXPECT_EQ(status("key-of-engines"), row.engines) << row.path;
  }
}

TEST_F(RouterApiTest, PagesOfOtherOriginsCauseNothing) {
  config_.cors_origins = {"https://a.example"};
  engine_.raw = {{kOk}};
  Start();
  const auto status = [&](const char* method, const char* path, const char* origin) {
    HttpRequest request = Request(method, path);
    request.origin = origin;
    return Answer(std::move(request)).status;
  };
  EXPECT_EQ(status("POST", "/v1/completions", "https://b.example"), 403);
  EXPECT_EQ(status("POST", "/v1/completions", "https://a.example"), 200);
  EXPECT_EQ(status("POST", "/route/v1/completions", "https://b.example"), 403);
  EXPECT_EQ(status("POST", "/engines/a/drain", "https://b.example"), 403);
  EXPECT_EQ(status("GET", "/v1/models", "https://b.example"), 200) << "it has no effect";
  EXPECT_EQ(status("GET", "/engines", "https://b.example"), 200);
  EXPECT_EQ(status("OPTIONS", "/v1/completions", "https://a.example"), 200) << "a preflight";
  EXPECT_EQ(status("OPTIONS", "/v1/completions", "https://b.example"), 403);
  EXPECT_EQ(status("OPTIONS", "/v1/completions", ""), 405);
  HttpRequest allowed = Request("GET", "/health");
  allowed.origin = "https://a.example";
  EXPECT_THAT(api_->Respond(std::move(allowed), {}).headers,
              HasSubstr("Access-Control-Allow-Origin: https://a.example\r\n"));
  HttpRequest rebound = Request("GET", "/v1/models");
  rebound.host = "evil.example";
  EXPECT_EQ(Answer(std::move(rebound)).status, 403);
  // What any page may cause is an answer, not a change of the router.
  config_.cors_origins = {"*"};
  EXPECT_EQ(status("POST", "/v1/completions", "https://b.example"), 200);
  EXPECT_EQ(status("POST", "/route/v1/completions", "https://b.example"), 200);
  EXPECT_EQ(status("POST", "/engines/a/drain", "https://b.example"), 403);
  EXPECT_EQ(EngineField("draining"), false);
}

TEST_F(RouterApiTest, ARequestIsPassedOnWithWhatTheEngineNeeds) {
  engine_.raw = {{kOk}, {kOk}, {"", true}};
  Start();
  HttpRequest request = Post("/v1/completions", "{\"prompt\": \"a\"}");
  request.query = "a=%20b";
  request.request_id = "mine";
  request.fields = "Host: localhost\r\nAuthorization: Bearer x\r\nOrigin: https://a\r\n";
  EXPECT_EQ(Answer(std::move(request)).body, "ok");
  EXPECT_EQ(Answer(Request("GET", "/v1/models")).body, "ok");
  ASSERT_EQ(engine_.requests.size(), 2u);
  const auto& seen = engine_.requests[0];
  EXPECT_EQ(seen.method_string(), "POST");
  EXPECT_EQ(seen.target(), "/v1/completions?a=%20b");
  EXPECT_EQ(seen.body(), "{\"prompt\": \"a\"}");
  EXPECT_EQ(seen["Authorization"], "Bearer x");
  EXPECT_EQ(seen["X-Request-Id"], "mine");
  EXPECT_EQ(seen.count("Origin"), 0u);
  EXPECT_EQ(engine_.requests[1].target(), "/v1/models");
  const std::string id(engine_.requests[1]["X-Request-Id"]);
  EXPECT_TRUE(id.starts_with("req-") && id.size() == 20) << id;
  EXPECT_NE(api_->Respond(Request("GET", "/health"), {}).request_id,
            api_->Respond(Request("GET", "/health"), {}).request_id);
  // Errors have the form of the API.
  EXPECT_THAT(Answer(Post("/v1/messages", "{}")).body, HasSubstr("{\"type\":\"error\""));
  EXPECT_THAT(Answer(Request("GET", "/v1/messages")).body, HasSubstr("accepts POST"));
}

TEST_F(RouterApiTest, ATenantHasAsManyRequestsAsItsKeyAllows) {
  engine_.raw = {{kOk}};
  Start(kKeys);
  const auto ask = [&](const char* key) {
    return api_->Respond(Post("/v1/completions", "{}", key), {});
  };
  Reply first = ask("key-of-ann");
  ASSERT_TRUE(std::holds_alternative<RelayPointer>(first.content));
  const Reply second = ask("key-of-ann");
  const auto* refused = std::get_if<HttpResponse>(&second.content);
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->status, 429);
  EXPECT_THAT(refused->body, HasSubstr("the key of ann has 1 requests, its limit"));
  EXPECT_THAT(refused->body, HasSubstr("\"code\":\"rate_limit_exceeded\""));
  EXPECT_TRUE(std::holds_alternative<RelayPointer>(ask("key-of-root").content));
  EXPECT_TRUE(std::holds_alternative<RelayPointer>(
      api_->Respond(Request("GET", "/v1/models", "key-of-ann"), {}).content))
      << "it generates nothing";
  first = {};
  EXPECT_TRUE(std::holds_alternative<RelayPointer>(ask("key-of-ann").content));
}

TEST_F(RouterApiTest, ARouterThatDrainsTakesNothingThatGenerates) {
  engine_.raw = {{kOk}};
  Start();
  api_->SetDraining();
  for (const char* path : {"/v1/completions", "/route/v1/completions"}) {
    const HttpResponse answer = Answer(Post(path, "{}"));
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.body, HasSubstr("\"code\":\"shutting_down\"")) << path;
  }
  EXPECT_EQ(Answer(Request("GET", "/v1/models")).status, 200);
  EXPECT_EQ(Answer(Request("GET", "/ready")).status, 503);
  EXPECT_EQ(Answer(Request("GET", "/health")).status, 200);
}

TEST_F(RouterApiTest, AGatewayIsToldAnEngineAndWhy) {
  Start({{.name = "ann", .key = "key-of-ann"}, {.name = "bob", .key = "key-of-bob"}});
  const std::string body = R"({"prompt": ")" + std::string(1100, 'a') + R"("})";
  const std::string at = engine_.Address("a").authority();
  HttpRequest asked = Post("/route/v1/completions", body, "key-of-ann");
  const HttpResponse answer = Answer(std::move(asked));
  EXPECT_EQ(answer.headers, "x-gateway-destination-endpoint: " + at + "\r\n");
  const json::value first = *ParseJson(answer.body, "x");
  EXPECT_EQ(first, (json::value{{"engine", "a"},
                                {"url", "http://" + at},
                                {"reason", "load"},
                                {"reused_tokens", 0},
                                {"computed_tokens", 275},
                                {"fallbacks", json::array()}}));
  const json::value again = Choice("/v1/completions", body, "key-of-ann");
  EXPECT_EQ(again.at("reason"), "prefix");
  EXPECT_EQ(again.at("reused_tokens"), 256);
  EXPECT_EQ(again.at("computed_tokens"), 275 - 256);
  EXPECT_EQ(Reason("/v1/completions", body, "key-of-bob"), "load") << "another tenant's blocks";
  EXPECT_TRUE(engine_.requests.empty()) << "the gateway sends it";
  const std::string metrics = Answer(Request("GET", "/metrics", "key-of-ann")).body;
  EXPECT_THAT(metrics, HasSubstr("prompt_tokens_total{kind=\"reused\"} 256\n"));
  EXPECT_THAT(metrics, HasSubstr("prompt_tokens_total{kind=\"computed\"} 569\n"));
  EXPECT_THAT(metrics, HasSubstr("placements_total{reason=\"load\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("placements_total{reason=\"prefix\"} 1\n"));
}

TEST_F(RouterApiTest, ASessionIsNamedByTheHeaderOfTheConfiguration) {
  Start();
  const std::string field = "X-Session-Id: s1\r\n", other = "X-Chat: s1\r\n";
  const std::string path = "/v1/completions";
  EXPECT_EQ(Reason(path, R"({"prompt": "a"})", "", field), "load");
  EXPECT_EQ(Reason(path, R"({"prompt": "b"})", "", field), "session");
  EXPECT_EQ(Reason(path, R"({"prompt": "c"})", "", other), "load");
  RouterConfig config = Engines();
  config.session_header = "x-chat";
  api_->Apply(config);
  EXPECT_EQ(Reason(path, R"({"prompt": "d"})", "", other), "session");
  EXPECT_EQ(Reason(path, R"({"prompt": "e"})", "", field), "load");
  // What is stored is where its response was made.
  api_->fleet().placer().Stored("resp_1", 0);
  EXPECT_EQ(Reason("/v1/responses/resp_1", ""), "stored");
  EXPECT_EQ(Reason("/v1/responses/resp_2", ""), "load");
  EXPECT_EQ(Reason("/v1/models/resp_1", ""), "load");
}

TEST_F(RouterApiTest, EnginesRegisterWhereTheConfigurationAllowsIt) {
  const auto registers = [&](const std::string& name, const std::string& body) {
    HttpRequest request = Request("PUT", "/engines/" + name);
    request.body = body;
    return Answer(std::move(request));
  };
  Registration registration;
  registration.address = {.name = "r", .host = "127.0.0.1", .port = 9, .key = {}, .events = {}};
  registration.generation = 1;
  registration.fingerprint = "x: y\n";
  const std::string body = EncodeRegistration(registration);
  Start();
  EXPECT_EQ(registers("r", body).status, 403);
  EXPECT_THAT(registers("r", body).body, HasSubstr("\"code\":\"registration_off\""));
  registration_ = true;
  api_->Apply(Engines());
  const HttpResponse lease = registers("r", body);
  EXPECT_EQ(lease.status, 200);
  EXPECT_EQ(ParseLease(lease.body)->lease_ms, 60'000);
  const auto refused = registers("a", body);
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("\"code\":\"registration_refused\""));
  EXPECT_THAT(refused.body, HasSubstr("is in the router's configuration"));
  EXPECT_EQ(registers("r", "{}").status, 400);
  EXPECT_EQ(registers("r", body + std::string(kRegistrationBytesMax - body.size(), ' ')).status,
            200);
  const auto large = registers("r", std::string(kRegistrationBytesMax + 1, ' '));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr("has at most 16384 bytes, got 16385"));
}

TEST_F(RouterApiTest, OnlyQuickRequestsRunOnTheNetworkThread) {
  config_.memory_bytes = 960;
  Start();
  const auto quick = [&](const char* method, const char* path, size_t bytes = 0) {
    HttpRequest request = Request(method, path);
    request.body.resize(bytes, ' ');
    return api_->IsQuick(request);
  };
  EXPECT_TRUE(quick("GET", "/engines"));
  EXPECT_TRUE(quick("PUT", "/engines/a", 20'000));
  EXPECT_FALSE(quick("POST", "/reload"));
  EXPECT_TRUE(quick("GET", "/reload")) << "only an error";
  EXPECT_FALSE(quick("POST", "/route/v1/completions"));
  EXPECT_TRUE(quick("GET", "/route/v1/models"));
  EXPECT_TRUE(quick("POST", "/v1/completions", 16 << 10));
  EXPECT_FALSE(quick("POST", "/v1/completions", (16 << 10) + 1));
  for (const char* path : {"/health", "/ready"}) EXPECT_TRUE(api_->IsProbe(path)) << path;
  for (const char* path : {"/version", "/engines", "/v1/models", "/none", "/reload"}) {
    EXPECT_FALSE(api_->IsProbe(path)) << path;
  }
  EXPECT_EQ(api_->PrepareTimesBody(), 8);
  EXPECT_EQ(api_->BodyBytesMax(), 960u / 2 / 8);
  EXPECT_EQ(api_->memory().stats().limit_bytes, 800);
}

TEST_F(RouterApiTest, WithATokenizerEveryBodyTakesTime) {
  config_.reader.emplace(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny"), std::nullopt);
  const RouterApi api(config_, Engines(), {});
  EXPECT_FALSE(api.IsQuick(Post("/v1/completions", "{}")));
  EXPECT_TRUE(api.IsQuick(Request("GET", "/v1/models")));
  EXPECT_EQ(api.PrepareTimesBody(), limits::kPrepareTimesBody);
}

TEST_F(RouterApiTest, ARequestThatDoesNotGetAsFarIsRefusedAndCounted) {
  Start();
  const HttpResponse refused = api_->Refuse(431, "too many headers");
  EXPECT_EQ(refused.status, 431);
  EXPECT_TRUE(refused.close);
  EXPECT_THAT(refused.body, HasSubstr("too many headers"));
  EXPECT_THAT(Metrics(), HasSubstr("rejections_total 1\n"));
}

TEST_F(RouterApiTest, TheLogHasALinePerRequest) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("braid_router_api_test_" + std::to_string(getpid()));
  auto log = RequestLog::Open(path, true);
  ASSERT_TRUE(log);
  config_.request_log = log->get();
  engine_.raw = {{kOk}};
  Start(kKeys);
  HttpRequest request = Post("/v1/completions", "{}", "key-of-ann");
  request.request_id = "mine";
  request.query = "q";
  EXPECT_EQ(Answer(std::move(request)).status, 200);
  EXPECT_EQ(Answer(Request("GET", "/v1/none", "key-of-root")).status, 404);
  EXPECT_EQ(Answer(Request("GET", "/v1/models")).status, 401);
  log->reset();
  const std::string text = *ReadFile(path, 1 << 20);
  std::filesystem::remove(path);
  std::vector<json::value> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(*ParseJson(text.substr(at, text.find('\n', at) - at), "line"));
  }
  ASSERT_EQ(lines.size(), 3u);
  SCOPED_TRACE(text);
  EXPECT_EQ(lines[0].at("path"), "/v1/completions");
  EXPECT_EQ(lines[0].at("method"), "POST");
  EXPECT_EQ(lines[0].at("status"), 200);
  EXPECT_EQ(lines[0].at("tenant"), "ann");
  EXPECT_EQ(lines[0].at("id"), "mine");
  EXPECT_LT(lines[0].at("total_ms").as_double(), 20'000);
  EXPECT_EQ(lines[1].at("status"), 404);
  EXPECT_EQ(lines[1].at("tenant"), "root");
  EXPECT_EQ(lines[2].at("status"), 401);
}

}  // namespace
}  // namespace braid
