// A server with connections over real sockets and an API of the test behind it.
#pragma once

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>
#include <tuple>

#include "server/http/connection.h"
#include "server/http/http_server.h"
#include "server/http/limits.h"
#include "server/http/relay.h"

namespace braid {

inline constexpr size_t kBodyMax = 1000;

inline void LibraryThrows() { std::ignore = std::string().at(1); }

// What an answer in the making gives next, and what became of it. Shared with the test's thread.
struct Script {
  std::mutex mutex;
  std::vector<AnswerStep> steps;  // given one at a time
  std::optional<ReplyContent> settled;
  size_t pending_bytes = 0;
  bool pending = false, streams = true;
  Wake wake;
  std::vector<EndReason> ended;
  std::atomic<bool> destroyed = false;
  std::atomic<bool> frees_body = false;  // a relay may free the body of its request
};

// Gives a comment first, then an event when it has freed the body.
class ScriptedRelay final : public Relay {
 public:
  explicit ScriptedRelay(Script& script) : script_(script) {}

  asio::awaitable<End> Run(ClientOutput& client) override {
    client.Begin(200, "Content-Type: text/event-stream\r\n", std::nullopt);
    co_await client.Write(": ping\n\n");
    asio::steady_timer timer(co_await asio::this_coro::executor);
    while (!script_.frees_body) {
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
    client.BodyFreed();
    co_await client.Write("data: 1\n\n");
    co_return End{.complete = true};
  }
  void Stop(EndReason) override {}

 private:
  Script& script_;
};

class ScriptedAnswer final : public Answer {
 public:
  explicit ScriptedAnswer(Script& script) : script_(script) {}
  ~ScriptedAnswer() override { script_.destroyed = true; }

  bool Pending() const override { return script_.pending; }
  std::optional<ReplyContent> Settle() override {
    std::lock_guard lock(script_.mutex);
    return std::exchange(script_.settled, std::nullopt);
  }
  bool Streams() const override { return script_.streams; }
  AnswerStep Take() override {
    std::lock_guard lock(script_.mutex);
    if (script_.steps.empty()) return {};
    AnswerStep step = std::move(script_.steps.front());
    script_.steps.erase(script_.steps.begin());
    if (!script_.steps.empty()) script_.wake();
    return step;
  }
  void End(EndReason reason) override {
    std::lock_guard lock(script_.mutex);
    script_.ended.push_back(reason);
    script_.pending_bytes = 0;
    script_.steps = {{.events = "data: ended\n\n", .last = true}};
  }
  std::optional<EndReason> Overdue(int64_t) const override { return std::nullopt; }
  size_t PendingBytes() const override {
    std::lock_guard lock(script_.mutex);
    return script_.pending_bytes;
  }

 private:
  Script& script_;
};

// Answers every request with its line and body, with the script's answer at /answer, or with a
// relay at /relay. /block keeps its thread until Release, /hold until LetGo.
class EchoApi final : public HttpApi {
 public:
  size_t BodyBytesMax() const override {
    if (body_bytes_max_throws.exchange(false)) LibraryThrows();
    return body_bytes_max;
  }
  MemoryBudget& memory() override {
    if (memory_throws.exchange(false)) LibraryThrows();
    return memory_;
  }
  bool IsQuick(const HttpRequest& request) const override { return request.method == "GET"; }
  bool IsProbe(std::string_view path) const override { return path == "/probe"; }
  Reply Respond(HttpRequest request, Wake wake) override {
    if (request.path == "/block") {
      blocked_ = true;
      blocked_.notify_all();
      released_.wait(false);
    }
    if (request.path == "/hold") held_.wait(true);
    if (respond_throws.exchange(false)) LibraryThrows();
    std::lock_guard lock(mutex_);
    Reply reply{.request_id = request.request_id.empty() ? "made" : request.request_id,
                .headers = "X-Reply: 1\r\n",
                .content = response_};
    if (request.path == "/answer") {
      script.wake = std::move(wake);
      reply.content = std::make_unique<ScriptedAnswer>(script);
    } else if (request.path == "/relay") {
      reply.content = RelayPointer(new ScriptedRelay(script));
    } else if (response_.body.empty()) {
      std::get<HttpResponse>(reply.content).body = request.method + " " + request.body;
    }
    seen_.push_back(std::move(request));
    return reply;
  }
  HttpResponse Refuse(int status, std::string message) override {
    return {.status = status, .body = std::move(message), .close = true};
  }
  void SetResponse(HttpResponse response) {
    std::lock_guard lock(mutex_);
    response_ = std::move(response);
  }
  std::vector<HttpRequest> seen() {
    std::lock_guard lock(mutex_);
    return seen_;
  }

  void WaitUntilBlocked() { blocked_.wait(false); }
  void Release() {
    released_ = true;
    released_.notify_all();
  }

  void LetGo() {
    held_ = false;
    held_.notify_all();
  }

  Script script;
  size_t body_bytes_max = kBodyMax;
  mutable std::atomic<bool> body_bytes_max_throws = false, memory_throws = false,
                            respond_throws = false;  // once

 private:
  MemoryBudget memory_{{.server_bytes = int64_t{1} << 20}};
  std::atomic<bool> blocked_ = false, released_ = false, held_ = true;
  std::mutex mutex_;
  HttpResponse response_;
  std::vector<HttpRequest> seen_;
};

class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Client(Client&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), read_(std::move(other.read_)) {}
  ~Client() { Close(); }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void Send(std::string_view bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads until `end` has come.
  std::string ReadTo(std::string_view end) {
    while (read_.find(end) == std::string::npos) {
      if (!ReadSome()) return std::exchange(read_, {}) + "<closed>";
    }
    const size_t size = read_.find(end) + end.size();
    std::string text = read_.substr(0, size);
    read_.erase(0, size);
    return text;
  }
  // Drops the next bytes, fewer where the server closes before; returns how many.
  size_t Skip(size_t bytes) {
    while (read_.size() < bytes && ReadSome()) continue;
    const size_t skipped = std::min(bytes, read_.size());
    read_.erase(0, skipped);
    return skipped;
  }
  // Reads until the server closes.
  std::string ReadAll() {
    while (ReadSome()) continue;
    return std::exchange(read_, {});
  }

 private:
  bool ReadSome() {
    char buffer[4096];
    const ssize_t got = ::recv(socket_, buffer, sizeof(buffer), 0);
    EXPECT_FALSE(got < 0 && errno == EAGAIN) << "the server is silent";
    if (got > 0) read_.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }

  int socket_;
  std::string read_;
};

// A request as it is sent.
inline std::string Framed(std::string_view line, std::string_view fields = "",
                          std::string_view body = "") {
  return fmt::format("{}\r\nHost: a\r\n{}\r\n{}", line, fields, body);
}

class HttpConnectionTest : public testing::Test {
 protected:
  ~HttpConnectionTest() override {
    if (server_) server_->Stop();
  }
  Client Connect() {
    options_.port = 0;
    if (!server_) {
      auto started = HttpServer::Start(options_, api_);
      EXPECT_TRUE(started) << started.error().message;
      server_ = *std::move(started);
    }
    return Client(server_->port());
  }
  // The whole answer to one request after which the connection closes.
  std::string Answer(std::string_view line, std::string_view fields = "",
                     std::string_view body = "") {
    Client client = Connect();
    client.Send(Framed(line, fmt::format("Connection: close\r\n{}", fields), body));
    return client.ReadAll();
  }

  HttpOptions options_;
  EchoApi api_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace braid
