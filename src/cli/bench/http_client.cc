// One io_context on the calling thread; each of `concurrency` coroutines takes the next call when
// it has ended its last. A connection per call: servers that close after a stream need no special
// case.
#include "cli/bench/http_client.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>

#include "base/clock.h"

namespace braid {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr size_t kBodyBytesMax = size_t{64} << 20;

// A completion token: the coroutine goes on, and the error is a value.
auto Into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

struct Run {
  const HttpLoad& load;
  const std::vector<HttpCall>& calls;
  int64_t began_us;
  asio::ip::tcp::resolver::results_type addresses;
  size_t next = 0;
};

http::request<http::string_body> RequestOf(const HttpLoad& load, const HttpCall& call) {
  http::request<http::string_body> request;
  request.method(call.body.empty() ? http::verb::get : http::verb::post);
  request.target(load.endpoint.path + call.target);
  request.version(11);
  request.set(http::field::host, load.endpoint.host + ":" + load.endpoint.port);
  request.set(http::field::user_agent, "braid-bench");
  request.set(http::field::connection, "close");
  if (!load.api_key.empty()) request.set(http::field::authorization, "Bearer " + load.api_key);
  if (!call.body.empty()) request.set(http::field::content_type, "application/json");
  request.body() = call.body;
  request.prepare_payload();
  return request;
}

// Reads the body as it comes: events to on_event, anything else into the outcome.
asio::awaitable<void> ReadBody(Run& run, size_t index, beast::tcp_stream& stream,
                               HttpOutcome& outcome, error_code& error) {
  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  co_await http::async_read_header(stream, buffer, parser, Into(error));
  if (error) co_return;
  outcome.status = static_cast<int>(parser.get().result_int());
  const bool events = parser.get()[http::field::content_type].starts_with("text/event-stream") &&
                      run.load.on_event != nullptr;
  EventSplitter splitter;
  char bytes[16384];
  while (!parser.is_done()) {
    parser.get().body().data = bytes;
    parser.get().body().size = sizeof(bytes);
    co_await http::async_read_some(stream, buffer, parser, Into(error));
    if (error == http::error::need_buffer) error = {};
    if (error) co_return;
    const std::string_view got(bytes, sizeof(bytes) - parser.get().body().size);
    if (events) {
      const int64_t now_us = MonotonicUs();
      splitter.Push(got, [&](std::string_view data) { run.load.on_event(index, data, now_us); });
    } else if (outcome.body.size() + got.size() <= kBodyBytesMax) {
      outcome.body += got;
    } else {
      error = http::error::body_limit;
      co_return;
    }
  }
}

asio::awaitable<HttpOutcome> MakeCall(Run& run, size_t index) {
  HttpOutcome outcome;
  error_code error;
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  stream.expires_after(std::chrono::seconds(run.load.timeout_seconds));
  outcome.sent_us = MonotonicUs();
  co_await stream.async_connect(run.addresses, Into(error));
  if (!error) {
    const auto request = RequestOf(run.load, run.calls[index]);
    co_await http::async_write(stream, request, Into(error));
  }
  if (!error) co_await ReadBody(run, index, stream, outcome, error);
  outcome.ended_us = MonotonicUs();
  if (error) {
    outcome.error = error.message();
    outcome.status = 0;
  }
  co_return outcome;
}

asio::awaitable<void> TakeCalls(Run& run) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (run.next < run.calls.size()) {
    const size_t index = run.next++;
    const int64_t wait_us = run.began_us + run.calls[index].start_after_us - MonotonicUs();
    if (wait_us > 0) {
      timer.expires_after(std::chrono::microseconds(wait_us));
      error_code ignored;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    HttpOutcome outcome = co_await MakeCall(run, index);
    run.load.on_end(index, std::move(outcome));
  }
}

}  // namespace

void RunCalls(const HttpLoad& load, const std::vector<HttpCall>& calls) {
  asio::io_context context(1);
  asio::ip::tcp::resolver resolver(context);
  error_code error;
  Run run{.load = load, .calls = calls, .began_us = MonotonicUs(), .addresses = {}};
  run.addresses = resolver.resolve(load.endpoint.host, load.endpoint.port, error);
  if (error) {
    for (size_t i = 0; i < calls.size(); ++i) {
      load.on_end(i, {.error = fmt::format("{}: {}", load.endpoint.host, error.message()),
                      .sent_us = run.began_us,
                      .ended_us = MonotonicUs()});
    }
    return;
  }
  const size_t coroutines = std::min(calls.size(), static_cast<size_t>(load.concurrency));
  for (size_t i = 0; i < coroutines; ++i) {
    asio::co_spawn(context, TakeCalls(run), asio::detached);
  }
  context.run();
}

}  // namespace braid
