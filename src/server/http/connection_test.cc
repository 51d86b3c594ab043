// One connection over a real socket, with an API of the test behind it: what of a request reaches
// the API, how answers are framed, and when the connection ends.
#include "server/http/connection.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>
#include <tuple>

#include "server/http/http_server.h"
#include "server/http/limits.h"
#include "server/http/relay.h"

namespace braid {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr size_t kBodyMax = 1000;

void LibraryThrows() { std::ignore = std::string().at(1); }

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
// relay at /relay. /block keeps the network thread until Release.
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

  Script script;
  size_t body_bytes_max = kBodyMax;
  mutable std::atomic<bool> body_bytes_max_throws = false, memory_throws = false;  // once

 private:
  MemoryBudget memory_{{.server_bytes = int64_t{1} << 20}};
  std::atomic<bool> blocked_ = false, released_ = false;
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

std::string Request(std::string_view line, std::string_view fields = "",
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
    client.Send(Request(line, fmt::format("Connection: close\r\n{}", fields), body));
    return client.ReadAll();
  }

  HttpOptions options_;
  EchoApi api_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpConnectionTest, TheApiSeesTheRequestAsItWasSent) {
  Answer("POST /path?a=1&b=?2 HTTP/1.1",
         "Authorization: Bearer k\r\nx-api-key: other\r\nContent-Type: text/x\r\n"
         "Content-Encoding: br\r\nOrigin: o\r\nSec-Fetch-Site: none\r\n"
         "Access-Control-Request-Headers: h\r\nX-Request-Id: id-1\r\nContent-Length: 4\r\n",
         "body");
  ASSERT_EQ(api_.seen().size(), 1U);
  const HttpRequest request = api_.seen()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/path");
  EXPECT_EQ(request.query, "a=1&b=?2");
  EXPECT_EQ(request.authorization, "Bearer k");
  EXPECT_EQ(request.api_key, "other");
  EXPECT_EQ(request.content_type, "text/x");
  EXPECT_EQ(request.content_encoding, "br");
  EXPECT_EQ(request.host, "a");
  EXPECT_EQ(request.origin, "o");
  EXPECT_EQ(request.fetch_site, "none");
  EXPECT_EQ(request.asked_headers, "h");
  EXPECT_EQ(request.request_id, "id-1");
  EXPECT_EQ(request.body, "body");
  EXPECT_EQ(request.peer.address, "127.0.0.1");
  EXPECT_TRUE(request.peer.loopback_listener);
  EXPECT_FALSE(request.peer.admin_listener);
  EXPECT_GT(request.received_us, 0);
}

TEST_F(HttpConnectionTest, AnIllFormedRequestIdIsLeftOut) {
  Answer("GET /x HTTP/1.1", "X-Request-Id: a b\r\n");
  EXPECT_EQ(api_.seen().at(0).request_id, "");
}

TEST_F(HttpConnectionTest, HeadIsAskedLikeGetAndHasNoBody) {
  const std::string answer = Answer("HEAD /x?q HTTP/1.1");
  EXPECT_EQ(api_.seen().at(0).method, "GET");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n")) << "of \"GET \"";
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
  EXPECT_TRUE(Answer("GET /x HTTP/1.1").ends_with("\r\n\r\nGET "));
}

TEST_F(HttpConnectionTest, AResponseIsWrittenWithItsHeaders) {
  api_.SetResponse({.status = 405,
                    .content_type = "text/x",
                    .body = "no",
                    .retry_after_seconds = 7,
                    .allow = "GET, POST",
                    .headers = "X-Own: 2\r\n"});
  EXPECT_EQ(Answer("GET /x HTTP/1.1"),
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/x\r\nContent-Length: 2\r\n"
            "X-Content-Type-Options: nosniff\r\nX-Request-Id: made\r\nRetry-After: 7\r\n"
            "X-Own: 2\r\nX-Reply: 1\r\nAllow: GET, POST\r\nConnection: close\r\n\r\nno");
}

TEST_F(HttpConnectionTest, PipelinedRequestsAreAnsweredInOrderOnOneConnection) {
  Client client = Connect();
  client.Send(Request("POST /1 HTTP/1.1", "Content-Length: 3\r\n", "one") +
              Request("POST /2 HTTP/1.1", "Content-Length: 3\r\n", "two"));
  const std::string first = client.ReadTo("POST one"), second = client.ReadTo("POST two");
  EXPECT_THAT(first, Not(HasSubstr("Connection:"))) << "HTTP/1.1 stays open unsaid";
  EXPECT_THAT(second, StartsWith("HTTP/1.1 200 OK\r\n"));
  client.Send(Request("GET /3 HTTP/1.1", "Connection: close\r\n"));
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpConnectionTest, Http10ClosesUnlessItAsksToStay) {
  Client client = Connect();
  client.Send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.ReadTo("\r\n\r\nGET "), HasSubstr("Connection: keep-alive\r\n"));
  client.Send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpConnectionTest, AResponseThatClosesEndsTheConnection) {
  api_.SetResponse({.body = "bye", .close = true});
  Client client = Connect();
  client.Send(Request("GET /x HTTP/1.1"));
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpConnectionTest, BodiesAreTakenUpToTheLimit) {
  const std::string largest(kBodyMax, 'x');
  const auto chunked = [](std::string_view body) {
    return fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
  };
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1000\r\n", largest),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n", chunked(largest)),
              StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(api_.seen().at(1).body, largest);
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1001\r\n", largest + "x"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n", chunked(largest + "x")),
              StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(api_.seen().size(), 2U) << "the API is not asked";
}

TEST_F(HttpConnectionTest, ChunkExtensionsAreTakenUpToTheirLimit) {
  const auto answer = [&](size_t bytes) {
    return Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n",
                  fmt::format("1;{}\r\na\r\n0\r\n\r\n", std::string(bytes - 1, 'e')));
  };
  EXPECT_THAT(answer(limits::kChunkExtensionBytesMax), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer(limits::kChunkExtensionBytesMax + 1), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpConnectionTest, AClientThatWaitsForContinueGetsItBeforeItsBody) {
  Client client = Connect();
  client.Send(Request("POST /x HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 2\r\n"));
  EXPECT_EQ(client.ReadTo("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hi");
  EXPECT_THAT(client.ReadTo("POST hi"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, ABodyThatMemoryHasNoRoomForIsRefusedAndAReadOneGivesItsRoomBack) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "x"),
                StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(api_.memory().stats().used_bytes, 0);
  // Room for the body itself, not for the preparation of the largest one beside it.
  const auto most = static_cast<int64_t>(kBodyMax) * limits::kPrepareTimesBody;
  api_.memory().SetLimits({.server_bytes = most});
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "x"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 200")) << "it needs none";
  api_.memory().SetLimits({.server_bytes = most + 1});
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "x"), StartsWith("HTTP/1.1 200"));
}

// Room for one of the largest bodies beside the preparation of another.
constexpr int64_t kRoomForOne = static_cast<int64_t>(kBodyMax) * (limits::kPrepareTimesBody + 1);

TEST_F(HttpConnectionTest, AnnouncedBytesTakeNoMemoryFromThoseThatArrive) {
  api_.memory().SetLimits({.server_bytes = kRoomForOne});
  Connect();
  std::list<Client> slow;
  for (int i = 0; i < 4; ++i) {
    slow.emplace_back(server_->port());
    slow.back().Send(Request("POST /x HTTP/1.1", "Content-Length: 900\r\n", "x"));
    slow.emplace_back(server_->port());
    slow.back().Send(Request("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n"));
  }
  while (api_.memory().stats().used_bytes < 8) std::this_thread::yield();
  EXPECT_EQ(api_.memory().stats().used_bytes, 8) << "what has arrived";
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 992\r\n", std::string(992, 'y')),
              StartsWith("HTTP/1.1 200"));
  slow.back().Send("0\r\n\r\n");
  EXPECT_THAT(slow.back().ReadTo("POST x"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(api_.memory().stats().shed, 0);
}

TEST_F(HttpConnectionTest, ABodyThatOutgrowsTheMemoryIsRefusedOnItsWay) {
  api_.memory().SetLimits({.server_bytes = kRoomForOne});
  Client first = Connect(), second = Connect();
  first.Send(Request("POST /x HTTP/1.1", "Content-Length: 1000\r\n", std::string(600, 'x')));
  while (api_.memory().stats().used_bytes != 600) std::this_thread::yield();
  second.Send(Request("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n",
                      "191\r\n" + std::string(0x191, 'y')));
  EXPECT_THAT(second.ReadAll(), StartsWith("HTTP/1.1 503"));
  first.Send(std::string(400, 'x'));
  EXPECT_THAT(first.ReadTo("POST xx"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, ABodyOnItsWayIsNotRefusedForWhatIsPreparedMeanwhile) {
  api_.memory().SetLimits({.server_bytes = kRoomForOne});
  Client client = Connect();
  client.Send(Request("POST /x HTTP/1.1", "Content-Length: 1000\r\n", "x"));
  while (api_.memory().stats().used_bytes != 1) std::this_thread::yield();
  {
    constexpr int64_t kPreparing = 20'000;
    const auto preparing = api_.memory().Take(kPreparing, 0);
    ASSERT_TRUE(preparing);
    client.Send(std::string(500, 'x'));
    while (api_.memory().stats().used_bytes == kPreparing + 1) std::this_thread::yield();
    EXPECT_EQ(api_.memory().stats().used_bytes, kPreparing + 501);
  }
  client.Send(std::string(499, 'x'));
  EXPECT_THAT(client.ReadTo("POST xx"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, ARelayedBodyIsCountedUntilTheRelayHasFreedIt) {
  Client client = Connect();
  client.Send(Request("POST /relay HTTP/1.1", "Content-Length: 500\r\n", std::string(500, 'x')));
  client.ReadTo(": ping\n\n");
  EXPECT_EQ(api_.memory().stats().used_bytes, 500) << "a comment is no answer";
  api_.script.frees_body = true;
  client.ReadTo("data: 1\n\n");
  EXPECT_EQ(api_.memory().stats().used_bytes, 0);
}

TEST_F(HttpConnectionTest, TheHeadOfAChunkHasAnEnd) {
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n",
                     "1;" + std::string(limits::kHeadBytesMax + (64 << 10), 'e')),
              StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpConnectionTest, AnAmbiguousHeadIsRefusedAndEndsTheConnection) {
  Client client = Connect();
  client.Send(Request("POST /x HTTP/1.1", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n") +
              "0\r\n\r\n" + Request("GET /smuggled HTTP/1.1"));
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos);
  EXPECT_TRUE(api_.seen().empty());
}

TEST_F(HttpConnectionTest, HeadersThatDoNotArriveInTimeAreRefused) {
  options_.header_seconds_max = 1;
  Client client = Connect();
  client.Send("GET /x HTTP/1.1\r\nHost:");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
}

TEST_F(HttpConnectionTest, ABodyThatDoesNotArriveInTimeIsRefused) {
  options_.body_seconds_base = 1;
  Client client = Connect();
  client.Send(Request("POST /x HTTP/1.1", "Content-Length: 2\r\n", "x"));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
}

// The bytes are more than one read takes: when the deadline is looked at, the second read has ended
// and cannot be cancelled.
TEST_F(HttpConnectionTest, ADeadlineThatPassesAsBytesComeIsNotLost) {
  options_.header_seconds_max = options_.body_seconds_base = 1;
  api_.body_bytes_max = 20'000;
  const std::string name(7000, 'n'),
      fields = name + ": 1\r\n" + name + ": 2\r\n" + name + ": 3\r\n";
  Client head = Connect(), body = Connect(), late = Connect(), other = Connect();
  head.Send("GET /x HTTP/1.1\r\nHost: a\r\n");
  body.Send(Request("POST /x HTTP/1.1", "Content-Length: 19000\r\n", "x"));
  late.Send("GET /late HTTP/1.1\r\nHost: a\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  other.Send(Request("GET /block HTTP/1.1"));
  api_.WaitUntilBlocked();
  head.Send(fields);
  body.Send(std::string(18'000, 'x'));
  late.Send(fields + "Connection: close\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  api_.Release();
  EXPECT_THAT(head.ReadAll(), StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(body.ReadAll(), StartsWith("HTTP/1.1 408"));
  // All of it is there, unless the deadline was looked at before the bytes were.
  EXPECT_THAT(late.ReadAll(), AnyOf(StartsWith("HTTP/1.1 200"), HasSubstr("the headers did not")));
}

TEST_F(HttpConnectionTest, AnExceptionAsAConnectionBeginsEndsThatConnectionAlone) {
  options_.connections_per_address_max = 1;
  api_.body_bytes_max_throws = true;
  EXPECT_EQ(Connect().ReadAll(), "");
  EXPECT_FALSE(api_.body_bytes_max_throws);
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, AnExceptionAsDeadlinesAreCheckedEndsThatCheckAlone) {
  options_.idle_seconds_max = 1;
  Client client = Connect();
  client.Send(Request("GET /x HTTP/1.1"));
  client.ReadTo("\r\n\r\nGET ");
  api_.memory_throws = true;
  while (api_.memory_throws) std::this_thread::yield();
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpConnectionTest, AnIdleConnectionIsClosedWithoutAWord) {
  options_.idle_seconds_max = 1;
  Client client = Connect();
  client.Send(Request("GET /x HTTP/1.1"));
  client.ReadTo("\r\n\r\nGET ");
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpConnectionTest, AStreamComesInChunksAndTheConnectionStays) {
  api_.script.steps = {{.events = "data: 1\n\n"}, {.events = "data: 2\n\n", .last = true}};
  Client client = Connect();
  client.Send(Request("GET /answer HTTP/1.1"));
  const std::string head = client.ReadTo("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Request-Id: made\r\nX-Reply: 1\r\n"));
  EXPECT_EQ(client.ReadTo("0\r\n\r\n"), "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  client.Send(Request("GET /x HTTP/1.1"));
  EXPECT_THAT(client.ReadTo("\r\n\r\nGET "), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, AStreamToHttp10IsPlainAndEndsWithTheConnection) {
  api_.script.steps = {{.events = "data: 1\n\n"}, {.events = "data: 2\n\n", .last = true}};
  Client client = Connect();
  client.Send("GET /answer HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadTo("\r\n\r\n"), HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(client.ReadAll(), "data: 1\n\ndata: 2\n\n");
}

TEST_F(HttpConnectionTest, AnAnswerThatDoesNotStreamIsOneResponse) {
  api_.script.streams = false;
  api_.script.steps = {{}, {.response = HttpResponse{.status = 503, .body = "late"}, .last = true}};
  EXPECT_THAT(Answer("GET /answer HTTP/1.1"), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpConnectionTest, AQuietStreamHasHeartbeatsAndAQuietAnswerHasNone) {
  options_.heartbeat_seconds = 1;
  Client stream = Connect();
  stream.Send(Request("GET /answer HTTP/1.1"));
  EXPECT_THAT(stream.ReadTo(": ping\n\n"), HasSubstr("8\r\n: ping"));
}

TEST_F(HttpConnectionTest, APendingAnswerBecomesWhatItSettlesTo) {
  api_.script.pending = true;
  Client client = Connect();
  client.Send(Request("GET /answer HTTP/1.1"));
  while (api_.seen().empty()) std::this_thread::yield();
  {
    std::lock_guard lock(api_.script.mutex);
    api_.script.settled = HttpResponse{.status = 400, .body = "refused"};
  }
  api_.script.wake();
  EXPECT_THAT(client.ReadTo("refused"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpConnectionTest, AClientThatLeavesEndsItsAnswer) {
  Client client = Connect();
  client.Send(Request("GET /answer HTTP/1.1"));
  client.ReadTo("\r\n\r\n");
  EXPECT_FALSE(api_.script.destroyed);
  client.Close();
  while (!api_.script.destroyed) std::this_thread::yield();
}

TEST_F(HttpConnectionTest, AnAnswerThatIsNotReadIsEndedForItsSlowReader) {
  Client client = Connect();
  client.Send(Request("GET /answer HTTP/1.1"));
  client.ReadTo("\r\n\r\n");
  {
    std::lock_guard lock(api_.script.mutex);
    api_.script.pending_bytes = limits::kUnsentBytesMax + 1;
  }
  while (true) {
    std::lock_guard lock(api_.script.mutex);
    if (!api_.script.ended.empty()) break;
  }
  EXPECT_EQ(api_.script.ended.at(0), EndReason::kSlowReader);
}

TEST_F(HttpConnectionTest, DrainingEndsWhatIsBeingMadeAfterItsTimeAndIdleConnectionsAtOnce) {
  Client idle = Connect(), busy = Connect();
  idle.Send(Request("GET /x HTTP/1.1"));
  idle.ReadTo("\r\n\r\nGET ");
  busy.Send(Request("GET /answer HTTP/1.1"));
  busy.ReadTo("\r\n\r\n");
  std::thread drain([&] { server_->Drain(1); });
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_THAT(busy.ReadAll(), HasSubstr("data: ended"));
  drain.join();
  std::lock_guard lock(api_.script.mutex);
  EXPECT_EQ(api_.script.ended.at(0), EndReason::kDrained);
}

TEST_F(HttpConnectionTest, AboveTheLimitProbesAreAnsweredAndOthersRefused) {
  options_.connections_max = 1;
  Client first = Connect();
  first.Send(Request("GET /x HTTP/1.1"));
  first.ReadTo("\r\n\r\nGET ");
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Answer("GET /probe?x HTTP/1.1"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(api_.seen().size(), 2U);
  first.Close();
  std::string again;
  while (!again.starts_with("HTTP/1.1 200")) again = Answer("GET /x HTTP/1.1");
}

TEST_F(HttpConnectionTest, ThereAreAsManyConnectionsAsTheMemoryHasRoomFor) {
  const auto prepare = static_cast<int64_t>(kBodyMax) * limits::kPrepareTimesBody;
  const auto count = static_cast<size_t>(limits::kConnectionsMin);
  const int64_t more = 2 * (limits::kConnectionsMin + 3) * limits::kConnectionBytes;
  std::list<Client> clients;
  const auto open = [&] {
    clients.emplace_back(Connect()).Send(Request("GET /x HTTP/1.1"));
    return clients.back().ReadTo("\r\n\r\n").substr(0, 12);
  };
  api_.memory().SetLimits({.server_bytes = prepare});
  while (clients.size() < count) EXPECT_EQ(open(), "HTTP/1.1 200") << "some there always are";
  EXPECT_EQ(open(), "HTTP/1.1 503");
  clients.pop_back();
  api_.memory().SetLimits({.server_bytes = prepare + more});
  while (clients.size() < count + 3) EXPECT_EQ(open(), "HTTP/1.1 200");
  EXPECT_EQ(open(), "HTTP/1.1 503");
}

TEST(HttpLimits, ConnectionsHaveHalfOfTheMemoryOfBodies) {
  EXPECT_EQ(limits::ConnectionsIn(int64_t{256} << 20, false), 5461);
  EXPECT_EQ(limits::ConnectionsIn(int64_t{256} << 20, true), 1170);
  EXPECT_EQ(limits::ConnectionsIn(0, true), limits::kConnectionsMin);
}

TEST_F(HttpConnectionTest, OneAddressHasNoMoreConnectionsThanItsLimit) {
  options_.connections_per_address_max = 1;
  Client first = Connect();
  first.Send(Request("GET /x HTTP/1.1"));
  first.ReadTo("\r\n\r\nGET ");
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpConnectionTest, Http2IsRefusedInItsOwnFrames) {
  Client client = Connect();
  client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9), headers("\0\0\0\1\5\0\0\0\3", 9);
  client.Send(settings + headers);
  EXPECT_THAT(client.ReadAll(), HasSubstr("this server speaks HTTP/1.1 only"));
  EXPECT_TRUE(api_.seen().empty());
}

}  // namespace
}  // namespace braid
