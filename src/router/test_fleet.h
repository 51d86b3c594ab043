// A fleet with two engines that are sockets of the test's own thread: what they answer is a table.
// Tests only.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "router/fleet.h"
#include "server/http/await.h"
#include "server/http/relay.h"

namespace braid {

// An engine as the router sees it.
class TestEngine {
 public:
  using Request = boost::beast::http::request<boost::beast::http::string_body>;

  explicit TestEngine(asio::io_context& io)
      : io_(io), acceptor_(io, {asio::ip::make_address("127.0.0.1"), 0}) {
    asio::co_spawn(io_, Accept(), asio::detached);
  }
  EngineAddress Address(std::string name) const {
    return {.name = std::move(name), .host = "127.0.0.1", .port = port_, .key = "k", .events = {}};
  }
  void Stop() {
    Refuse();
    for (const auto& connection : connections_) connection->socket.close();
  }
  // Further connections only: those that it has stay.
  void Refuse() { acceptor_.close(); }
  // As if it was gone, but for the requests that it has.
  void LeaveQuestions() {
    Refuse();
    for (const auto& connection : connections_) {
      if (connection->questions) connection->socket.close();
    }
  }

  // To the router's own questions, by path.
  std::map<std::string, std::pair<int, std::string>, std::less<>> answers = {
      {"/ready", {200, "{}"}}};
  std::map<std::string, int> asked;
  bool silent = false, any_key = false;
  bool heads_only = false;  // answers without having read bodies
  std::string shown_key;  // in the last question's Authorization
  // To requests, one after the other and the last one again and again: the bytes that are sent, and
  // whether the connection ends behind them.
  struct Raw {
    std::string bytes;
    bool ends = false;
  };
  std::vector<Raw> raw;
  std::vector<Request> requests;

 private:
  struct Connection {
    asio::ip::tcp::socket socket;
    bool questions = false;  // it has asked one
  };

  asio::awaitable<void> Accept() {
    for (;;) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      if (error) co_return;
      connections_.push_back(std::make_unique<Connection>(Connection{std::move(socket)}));
      asio::co_spawn(io_, Serve(*connections_.back()), asio::detached);
    }
  }
  asio::awaitable<void> Serve(Connection& at) {
    boost::beast::flat_buffer buffer;
    for (;;) {
      boost::beast::http::request_parser<boost::beast::http::string_body> parser;
      parser.body_limit(boost::none);
      auto [error, got] =
          co_await boost::beast::http::async_read_header(at.socket, buffer, parser, kTuple);
      if (!error && !heads_only) {
        auto [failed, more] =
            co_await boost::beast::http::async_read(at.socket, buffer, parser, kTuple);
        error = failed;
      }
      if (error || silent) co_return;
      Request request = parser.release();
      at.questions = IsQuestion(std::string(request.target()));
      const Raw answer = at.questions ? Answered(request) : Next(std::move(request));
      auto [failed, sent] =
          co_await asio::async_write(at.socket, asio::buffer(answer.bytes), kTuple);
      if (failed) co_return;
      if (answer.ends) {
        at.socket.close();
        co_return;
      }
    }
  }
  static bool IsQuestion(const std::string& path) {
    return path == "/ready" || path == "/v1/loads" || path == "/metrics";
  }
  Raw Answered(const Request& request) {
    const std::string path = request.target();
    ++asked[path];
    shown_key = std::string(request[boost::beast::http::field::authorization]);
    EXPECT_TRUE(any_key || shown_key == "Bearer k") << shown_key;
    const auto at = answers.find(path);
    const std::string body = at == answers.end() ? "" : at->second.second;
    return {fmt::format("HTTP/1.1 {} -\r\nContent-Length: {}\r\n\r\n{}",
                        at == answers.end() ? 404 : at->second.first, body.size(), body)};
  }
  Raw Next(Request request) {
    requests.push_back(std::move(request));
    return raw.at(std::min(requests.size(), raw.size()) - 1);
  }

  asio::io_context& io_;
  asio::ip::tcp::acceptor acceptor_;
  const uint16_t port_ = acceptor_.local_endpoint().port();
  std::vector<std::unique_ptr<Connection>> connections_;
};

// Keeps what a client gets.
class TestClient final : public ClientOutput {
 public:
  void Begin(int head_status, std::string_view head_fields,
             std::optional<uint64_t> body_length) override {
    EXPECT_EQ(status, 0) << "an answer begins once";
    status = head_status;
    fields = head_fields;
    length = body_length;
  }
  asio::awaitable<bool> Write(std::string_view piece) override {
    pieces.emplace_back(piece);
    body += piece;
    if (pieces.size() == leaves_after) left = true;
    co_return !left && pieces.size() != refuses_after;
  }
  void BodyFreed() override { ++freed; }
  bool gone() const override { return left; }

  int status = 0, freed = 0;
  std::string fields, body;
  std::optional<uint64_t> length;
  std::vector<std::string> pieces;
  size_t leaves_after = 0, refuses_after = 0;
  bool left = false;
};

class FleetTest : public testing::Test {
 protected:
  ~FleetTest() override {
    fleet_.Close();
    one_.Stop();
    two_.Stop();
    io_.run_for(std::chrono::milliseconds(50));
  }
  RouterConfig Config(const std::vector<EngineAddress>& engines) const {
    return {.engines = engines,
            .registration = true,
            .engine_key = "k",
            .policy = policy_,
            .probe_ms = probe_ms_,
            .lease_ms = lease_ms_,
            .connect_ms = 20'000,
            .attempts = attempts_};
  }
  void Start(const std::vector<EngineAddress>& engines) {
    fleet_.Start(io_.get_executor());
    fleet_.Apply(Config(engines));
  }
  template <class F>
  bool Until(F done) {
    const int64_t end_us = MonotonicUs() + 20'000'000;
    while (!done() && MonotonicUs() < end_us) io_.run_one_for(std::chrono::milliseconds(10));
    return done();
  }
  json::value Engines(size_t i, std::string_view field) {
    const json::array list = fleet_.Json();
    return i < list.size() ? list[i].at(field) : json::value("no such engine");
  }
  bool Is(size_t i, std::string_view state) {
    return Until([&] { return Engines(i, "state") == json::value(state); });
  }
  std::string Chosen(std::span<const int32_t> tried = {}) {
    const Fleet::Chosen chosen = fleet_.Choose(prompt_, tried);
    return chosen.engine == nullptr ? "" : chosen.engine->address.name;
  }
  UpstreamPointer Connect(FleetEngine& engine, bool fresh = false) {
    UpstreamPointer out;
    bool done = false;
    std::string why;
    asio::co_spawn(
        io_,
        [&]() -> asio::awaitable<void> {
          out = co_await fleet_.Connect(engine, fresh, &why);
          done = true;
        },
        asio::detached);
    EXPECT_TRUE(Until([&] { return done; }));
    EXPECT_EQ(why, "");
    return out;
  }
  // Whether the metrics have a line that is so after its common prefix.
  bool Has(std::string_view line) const {
    return metrics_.Text().find(fmt::format("\nbraid:router_{}\n", line)) != std::string::npos;
  }

  Policy policy_ = Policy::kPrefix;
  int32_t probe_ms_ = 5, lease_ms_ = 60'000, attempts_ = 3;
  asio::io_context io_;
  RouterMetrics metrics_;
  TestEngine one_{io_}, two_{io_};
  PromptKeys prompt_{.blocks = {1, 2, 3}, .tokens = 192, .generates = true};
  Fleet fleet_{Config({}), metrics_};
};

}  // namespace braid
