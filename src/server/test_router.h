// A router over an engine that answers nothing, and keys of three tenants. One thread, but for
// those that compile grammars.
// Tests only.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/router.h"

namespace braid {

// Requests are queued and never run.
struct IdleExecutor : Executor {
  void Launch(Plan, EventSink&) override {}
};

inline constexpr int32_t kContext = 100, kPages = 4;

inline Scheduler SmallScheduler() {
  SchedulerConfig config{.context_tokens_max = kContext, .vocabulary = 4073};
  config.cache = {.groups = {{.name = "attention", .kind = GroupKind::kFull, .block_bytes = 64}},
                  .page_bytes = 64,
                  .pages = kPages};
  return *Scheduler::Create(config);
}

inline const std::vector<ApiKey> kKeys = {{.name = "ann", .key = "key-of-ann"},
                                          {.name = "bob", .key = "key-of-bob", .requests_max = 1},
                                          {.name = "root", .key = "key-of-root", .admin = true}};

class RouterTest : public testing::Test {
 protected:
  RouterTest()
      : tokenizer_(*Tokenizer::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        chat_(*ChatTemplate::Load(BRAID_SOURCE_DIR "/models/braid-tiny")),
        driver_(SmallScheduler(), executor_, {}) {
    config_.page_html = "<p>page</p>";
    config_.seed_base = 1;
    config_.login_failures_per_second = 0;
  }

  // The router, made with config_ at first use.
  Router& router() {
    if (!router_) router_.emplace(config_);
    return *router_;
  }
  void MakeReady(GrammarLibrary* grammars = nullptr) {
    router().SetReady({.driver = driver_,
                       .tokenizer = &tokenizer_,
                       .chat = &chat_,
                       .grammars = grammars,
                       .card = {.name = "tiny",
                                .context_tokens_max = kContext,
                                .vocabulary = 4073,
                                .eos_tokens = {4064, 4066}}});
  }

  static HttpRequest Request(std::string method, std::string path, std::string body = "") {
    HttpRequest request{.method = std::move(method), .path = std::move(path)};
    request.body = std::move(body);
    request.peer = {.address = "192.0.2.1", .loopback_listener = true};
    return request;
  }
  HttpResponse Send(HttpRequest request, std::string_view key = "") {
    if (!key.empty()) request.authorization = fmt::format("Bearer key-of-{}", key);
    Reply reply = router().Respond(std::move(request), [] {});
    auto* response = std::get_if<HttpResponse>(&reply.content);
    EXPECT_NE(response, nullptr) << "an answer that is being made";
    return response == nullptr ? HttpResponse{.status = 0} : *response;
  }
  HttpResponse Get(const std::string& path, std::string_view key = "") {
    return Send(Request("GET", path), key);
  }
  HttpResponse Post(const std::string& path, const std::string& body, std::string_view key = "") {
    return Send(Request("POST", path, body), key);
  }
  // An answer in the making.
  std::unique_ptr<Answer> Start(const std::string& path, const std::string& body,
                                std::string_view key = "", std::string request_id = "") {
    HttpRequest request = Request("POST", path, body);
    request.request_id = std::move(request_id);
    if (!key.empty()) request.authorization = fmt::format("Bearer key-of-{}", key);
    Reply reply = router().Respond(std::move(request), [] {});
    auto* answer = std::get_if<std::unique_ptr<Answer>>(&reply.content);
    if (answer == nullptr) {
      ADD_FAILURE() << std::get<HttpResponse>(reply.content).body;
      return nullptr;
    }
    return std::move(*answer);
  }

  static std::string CodeOf(const HttpResponse& response) {
    const json::value body = *ParseJson(response.body, "response");
    const json::value& code = body.at("error").at("code");
    return code.is_null() ? "" : std::string(code.as_string());
  }
  // The ids that a key sees in /v1/running.
  std::vector<std::string> IdsSeenBy(std::string_view key) {
    std::vector<std::string> ids;
    const json::value body = *ParseJson(Get("/v1/running", key).body, "list");
    for (const json::value& entry : body.at("data").as_array()) {
      ids.emplace_back(entry.at("id").as_string());
    }
    return ids;
  }

  ServerConfig config_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  IdleExecutor executor_;
  Driver driver_;
  std::optional<Router> router_;
};

}  // namespace braid
