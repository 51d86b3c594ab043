// Deadlines are timers that race with the operation.
#include "router/upstream.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/json.h"
#include "server/http/await.h"

namespace braid {

namespace http = boost::beast::http;
using asio::experimental::awaitable_operators::operator||;

namespace {

constexpr uint64_t kSmallBytesMax = 8 << 20;

// Ends a connection whose machine is gone, or was started again, while an answer is waited for. No
// probes are sent while a request is not acknowledged: the other limit holds then.
void KeepAlive(int socket) {
  constexpr unsigned kUnheardMs = 30'000;
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnheardMs, sizeof(kUnheardMs));
  constexpr int kOn = 1, kIdleSeconds = 5, kEverySeconds = 5, kProbes = 3;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof(kOn));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof(kIdleSeconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &kEverySeconds, sizeof(kEverySeconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
}

asio::awaitable<SmallAnswer> Exchange(Upstream& upstream, const std::string& request) {
  auto [write_error, written] =
      co_await asio::async_write(upstream.socket, asio::buffer(request), kTuple);
  if (write_error) co_return SmallAnswer{};
  http::response_parser<http::string_body> parser;
  parser.body_limit(kSmallBytesMax);
  auto [error, bytes] = co_await http::async_read(upstream.socket, upstream.buffer, parser, kTuple);
  if (error) co_return SmallAnswer{};
  if (!parser.keep_alive()) upstream.Close();
  co_return SmallAnswer{static_cast<int>(parser.get().result_int()),
                        std::move(parser.get().body())};
}

}  // namespace

// Polls, because what the lookup's thread woke could be gone by then.
asio::awaitable<std::string> FindEndpoints(NameLookup& names, const HostPort& at, int32_t ms,
                                           Upstream::Endpoints* out) {
  constexpr int32_t kPollMsMax = 50;
  constexpr size_t kAddressesMax = 64;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  const int64_t end_us = MonotonicUs() + int64_t{ms} * 1000;
  for (int32_t poll_ms = 1;; poll_ms = std::min(2 * poll_ms, kPollMsMax)) {
    const Result<std::vector<NetAddress>> found = names.Take(at, kAddressesMax);
    if (!found) co_return found.error().message;
    if (!found->empty()) {
      out->clear();
      for (const NetAddress& address : *found) {
        auto& endpoint = out->emplace_back();
        std::memcpy(endpoint.data(), &address.bytes, address.size);
        endpoint.resize(address.size);
      }
      co_return std::string();
    }
    if (MonotonicUs() >= end_us) {
      co_return fmt::format("{}: its name is not looked up within {} ms", at.host, ms);
    }
    timer.expires_after(std::chrono::milliseconds(poll_ms));
    co_await timer.async_wait(kTuple);
  }
}

asio::awaitable<std::string> Upstream::Open(Endpoints endpoints, int32_t ms) {
  const int64_t end_us = MonotonicUs() + int64_t{ms} * 1000;
  std::string why = "its name has no address";
  for (size_t i = 0; i < endpoints.size(); ++i) {
    const int64_t left_us = end_us - MonotonicUs();
    if (left_us <= 0) break;
    Close();
    // One that does not answer leaves as much time to each of those behind it.
    const int64_t wait_us = left_us / static_cast<int64_t>(endpoints.size() - i);
    asio::steady_timer timer(socket.get_executor(), std::chrono::microseconds(wait_us));
    auto winner = co_await (socket.async_connect(endpoints[i], kTuple) || timer.async_wait(kTuple));
    boost::system::error_code error = asio::error::timed_out;
    if (winner.index() == 0) error = std::get<0>(std::get<0>(winner));
    if (!error) {
      socket.set_option(asio::ip::tcp::no_delay(true), error);
      KeepAlive(socket.native_handle());
      co_return std::string();
    }
    why = error.message();
  }
  Close();
  co_return why;
}

bool Upstream::Stale() {
  char byte = 0;
  const ssize_t got = ::recv(socket.native_handle(), &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

void Upstream::Close() {
  boost::system::error_code ignored;
  socket.close(ignored);
  buffer.clear();
}

asio::awaitable<SmallAnswer> AskSmall(Upstream& upstream, std::string request, int32_t ms) {
  asio::steady_timer timer(upstream.socket.get_executor(), std::chrono::milliseconds(ms));
  auto winner = co_await (Exchange(upstream, request) || timer.async_wait(kTuple));
  if (winner.index() == 0) co_return std::get<0>(std::move(winner));
  co_return SmallAnswer{};
}

std::string ErrorIn(const SmallAnswer& answer, std::string_view path) {
  const Result<json::value> value = ParseJson(answer.body, "answer");
  const json::value* error =
      value && value->is_object() ? value->get_object().if_contains("error") : nullptr;
  const json::value* message =
      error != nullptr && error->is_object() ? error->get_object().if_contains("message") : nullptr;
  if (message != nullptr && message->is_string()) return std::string(message->get_string());
  return fmt::format("{} answers {}", path, answer.status);
}

}  // namespace braid
