// Beast parses requests; framing.h rejects ambiguous heads before that.
#include "server/http/connection.h"

#include <fmt/core.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/beast/http.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/system/priority.h"
#include "server/http/await.h"
#include "server/http/limits.h"
#include "server/http/run_on.h"

namespace braid {

namespace http = boost::beast::http;
using asio::experimental::awaitable_operators::operator||;

namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr size_t kReadBytes = 16 << 10;
constexpr int64_t kLingerSeconds = 2;
constexpr int64_t kReservedSeconds = 2;

// Answers of so many bytes are sent with their head; longer ones take a hold.
constexpr size_t kSmallAnswerBytes = 64 << 10;

constexpr std::string_view kNoRoom = "too many request bodies at once; try again";
constexpr int kOver = 0;  // the status of a refusal that nobody reads: the client has left

// A body in a string that grows as the bytes arrive, whatever Content-Length promises.
struct ArrivingBody : http::string_body {
  class reader : public http::string_body::reader {
   public:
    using http::string_body::reader::reader;
    void init(const boost::optional<uint64_t>&, boost::beast::error_code& error) { error = {}; }
  };
};

// Preparation runs at a lower priority than the engine, whose threads wait for each other, and
// large bodies at a lower one than small ones.
constexpr int kPrepareSteps = 5, kBulkSteps = 10;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// A parser error as an answer.
HttpRefusal RefusalOf(const boost::beast::error_code& error, uint64_t limit) {
  if (error == http::error::body_limit) {
    return {413, fmt::format("the body is longer than {} bytes", limit)};
  }
  return {400, fmt::format("not a valid HTTP/1.1 request: {}", error.message())};
}

// The API sees HEAD as GET.
HttpRequest RequestOf(http::request<ArrivingBody> message, std::string_view head) {
  std::string_view target = View(message.target());
  HttpRequest request;
  request.method = message.method() == http::verb::head ? std::string_view("GET")
                                                        : View(message.method_string());
  std::tie(request.path, request.query) = SplitTarget(target);
  request.content_type = View(message[http::field::content_type]);
  request.content_encoding = View(message[http::field::content_encoding]);
  request.host = View(message[http::field::host]);
  request.origin = View(message[http::field::origin]);
  request.fetch_site = View(message["Sec-Fetch-Site"]);
  request.asked_headers = View(message[http::field::access_control_request_headers]);
  request.authorization = View(message[http::field::authorization]);
  request.api_key = View(message["x-api-key"]);
  std::string_view request_id = View(message["X-Request-Id"]);
  if (IsRequestId(request_id)) request.request_id = request_id;
  const size_t line_end = head.find("\r\n") + 2;
  request.fields = head.substr(line_end, head.size() - line_end - 2);
  request.body = std::move(message.body());
  return request;
}

}  // namespace

void DeleteRelay::operator()(Relay* relay) const { delete relay; }

// A request of which the body is read.
struct HttpConnection::Body {
  http::request_parser<ArrivingBody> parser;
  uint64_t limit = 0;
  int64_t spare = 0;  // bytes of memory that must stay free beside it
};

HttpConnection::HttpConnection(int64_t id, asio::ip::tcp::socket socket, HttpPeer peer,
                               ConnectionHost& host)
    : id_(id),
      peer_(std::move(peer)),
      stream_(std::move(socket), host.tls.get()),
      host_(host),
      signal_(stream_.get_executor()) {}

void HttpConnection::Wake() {
  woken_ = true;
  signal_.cancel();
}

void HttpConnection::SetDeadline(int64_t seconds) {
  deadline_us_ = seconds > 0 ? MonotonicUs() + seconds * kSecondUs : 0;
  timed_out_ = false;
}

void HttpConnection::Sweep(int64_t now_us) {
  boost::system::error_code ignored;
  if (answer_ && !working_ && answer_->PendingBytes() > limits::kUnsentBytesMax) {
    answer_->End(EndReason::kSlowReader);
    stream_.socket().cancel(ignored);
  }
  if (answer_ && !working_) {
    if (const std::optional<EndReason> reason = answer_->Overdue(now_us)) EndAnswer(*reason);
  }
  if (deadline_us_ == 0 || now_us < deadline_us_) return;
  // An operation that has just completed cannot be cancelled, but the next one can: the deadline
  // stays until the coroutine clears it or sets another.
  timed_out_ = true;
  stream_.socket().cancel(ignored);
}

void HttpConnection::CloseIfIdle() {
  boost::system::error_code ignored;
  if (idle_) stream_.socket().cancel(ignored);
}

void HttpConnection::Drop() {
  boost::system::error_code ignored;
  dropped_ = true;
  stream_.socket().close(ignored);
}

void HttpConnection::EndAnswer(EndReason reason) {
  if (relay_) relay_->Stop(reason);
  if (!answer_) return;
  if (working_) {
    ends_later_ = reason;
    return;
  }
  answer_->End(reason);
  Wake();
}

asio::awaitable<void> HttpConnection::Run() {
  boost::system::error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  SetDeadline(host_.options.header_seconds_max);
  bool open = co_await stream_.Open();
  if (!open) co_return;
  for (int32_t served = 1; served <= limits::kRequestsPerConnectionMax; ++served) {
    std::optional<Incoming> incoming = co_await ReadRequest();
    if (!incoming) co_return;
    if (served == limits::kRequestsPerConnectionMax) incoming->keep_alive = false;
    bool keep = co_await Serve(std::move(*incoming));
    if (!keep) break;
  }
  SetDeadline(kLingerSeconds);
  co_await stream_.CloseSending();
}

asio::awaitable<void> HttpConnection::RunReserved(std::string message) {
  reserved_ = true;
  SetDeadline(kReservedSeconds);
  bool open = co_await stream_.Open();
  if (!open) co_return;
  std::string head;
  const std::optional<HttpRefusal> unread = co_await ReadHead(&head);
  if (dropped_) co_return;
  if (unread || CheckHead(head) || !host_.api.IsProbe(PathOfHead(head))) {
    co_await Refuse(503, std::move(message));
    co_return;
  }
  Incoming incoming;
  bool complete = co_await ReadBody(std::move(head), &incoming);
  if (!complete) co_return;
  incoming.keep_alive = false;
  co_await Serve(std::move(incoming));
  SetDeadline(kLingerSeconds);
  co_await stream_.CloseSending();
}

// False if the connection ends.
asio::awaitable<bool> HttpConnection::AwaitFirstByte() {
  if (buffer_.size() > 0) co_return true;
  buffer_.shrink_to_fit();  // it may have held long headers
  if (host_.draining) co_return false;
  idle_ = true;
  SetDeadline(reserved_ ? kReservedSeconds : host_.options.idle_seconds_max);
  auto [error, bytes] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
  idle_ = false;
  buffer_.commit(bytes);
  co_return !error;
}

// Consumes the head including its blank line. Otherwise returns why it could not, with status 0 if
// the connection is over.
asio::awaitable<std::optional<HttpRefusal>> HttpConnection::ReadHead(std::string* head) {
  bool alive = co_await AwaitFirstByte();
  if (!alive) co_return HttpRefusal{kOver, {}};
  if (!reserved_) SetDeadline(host_.options.header_seconds_max);
  size_t searched = 0;
  for (;;) {
    std::string_view seen(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    size_t end = seen.find("\r\n\r\n", searched);
    if (end != std::string_view::npos) {
      *head = seen.substr(0, end + 4);
      buffer_.consume(end + 4);
      deadline_us_ = 0;
      co_return std::nullopt;
    }
    if (auto refusal = CheckUnfinishedHead(seen)) co_return refusal;
    searched = seen.size() < 3 ? 0 : seen.size() - 3;
    auto [error, bytes] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    buffer_.commit(bytes);
    if (!error) continue;
    if (!timed_out_) co_return HttpRefusal{kOver, {}};
    co_return HttpRefusal{408, fmt::format("the headers did not arrive within {} s",
                                           host_.options.header_seconds_max)};
  }
}

asio::awaitable<std::optional<HttpConnection::Incoming>> HttpConnection::ReadRequest() {
  std::string head;
  std::optional<HttpRefusal> refusal = co_await ReadHead(&head);
  if (!refusal && head == kHttp2Preface) {
    co_await RefuseHttp2();
    co_return std::nullopt;
  }
  if (!refusal) refusal = CheckHead(head);
  if (refusal) {
    if (refusal->status != kOver) co_await Refuse(refusal->status, refusal->message);
    co_return std::nullopt;
  }
  Incoming incoming;
  bool complete = co_await ReadBody(std::move(head), &incoming);
  if (!complete) co_return std::nullopt;
  incoming.request.received_us = MonotonicUs();
  co_return incoming;
}

asio::awaitable<bool> HttpConnection::ReadBody(std::string head, Incoming* incoming) {
  Body body{.limit = host_.api.BodyBytesMax()};
  // Memory to prepare the largest body stays free, so that every body that is read can be prepared.
  body.spare = host_.api.PrepareTimesBody() * static_cast<int64_t>(body.limit);
  auto& parser = body.parser;
  parser.header_limit(static_cast<uint32_t>(head.size() + 1));
  parser.body_limit(body.limit);
  auto on_chunk = [](uint64_t, boost::beast::string_view extension,
                     boost::beast::error_code& error) {
    if (extension.size() > limits::kChunkExtensionBytesMax)
      error = http::error::bad_chunk_extension;
  };
  parser.on_chunk_header(on_chunk);
  boost::beast::error_code error;
  parser.put(asio::buffer(head), error);
  if (error == http::error::need_more) error = {};
  if (error || !parser.is_header_done()) {
    HttpRefusal refusal = RefusalOf(error, body.limit);
    co_await Refuse(refusal.status, refusal.message);
    co_return false;
  }
  const auto length = static_cast<int64_t>(parser.content_length().value_or(0));
  // A body that has no room now is not sent in vain.
  if (length > 0 && !host_.api.memory().HasRoom(length, host_.SpareLeft(body.spare))) {
    co_await Refuse(503, std::string(kNoRoom));
    co_return false;
  }
  if (!parser.get()[http::field::expect].empty() && parser.get().version() >= 11) {
    bool written = co_await WriteBytes("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return false;
  }
  const int64_t most = parser.chunked() ? static_cast<int64_t>(body.limit) : length;
  SetDeadline(host_.options.body_seconds_base +
              most / static_cast<int64_t>(limits::kBodyBytesPerSecond));
  incoming->body_hold = std::make_unique<BodyHold>(host_);
  const std::optional<HttpRefusal> refusal = co_await Receive(body, *incoming->body_hold);
  deadline_us_ = 0;
  if (refusal && refusal->status != kOver) co_await Refuse(refusal->status, refusal->message);
  if (refusal) co_return false;

  http::request<ArrivingBody> message = parser.release();
  incoming->http_1_1 = message.version() >= 11;
  incoming->keep_alive = message.keep_alive();
  incoming->head = message.method() == http::verb::head;
  incoming->request = RequestOf(std::move(message), head);
  incoming->request.peer = peer_;
  co_return true;
}

// Reads the rest of a body. The hold is of the bytes that have arrived: what clients announce and
// do not send takes no memory from others.
asio::awaitable<std::optional<HttpRefusal>> HttpConnection::Receive(Body& body, BodyHold& hold) {
  auto& parser = body.parser;
  for (;;) {
    boost::beast::error_code error;
    while (!error && !parser.is_done() && buffer_.size() > 0) {
      buffer_.consume(parser.put(buffer_.data(), error));
    }
    if (error && error != http::error::need_more) co_return RefusalOf(error, body.limit);
    const int64_t more = std::ssize(parser.get().body()) - hold.bytes();
    if (more > 0 && !hold.Grow(more, body.spare)) co_return HttpRefusal{503, std::string(kNoRoom)};
    if (parser.is_done()) co_return std::nullopt;
    // What is left is the unfinished head of a chunk, or of what follows the last one.
    if (buffer_.size() > limits::kHeadBytesMax) {
      co_return HttpRefusal{400, "the head of a chunk has no end"};
    }
    auto [failed, bytes] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    buffer_.commit(bytes);
    if (timed_out_) co_return HttpRefusal{408, "the body did not arrive in time"};
    if (failed) co_return HttpRefusal{kOver, {}};
  }
}

asio::awaitable<Reply> HttpConnection::Ask(HttpRequest request) {
  braid::Wake wake = host_.make_wake(id_);
  if (host_.api.IsQuick(request)) co_return Respond(std::move(request), std::move(wake));
  const bool bulk = request.body.size() > limits::kBulkBodyBytes;
  co_return co_await RunOn(bulk ? host_.bulk_pool : host_.pool, [&] {
    GiveWay(bulk ? kBulkSteps : kPrepareSteps);
    return Prepare(std::move(request), std::move(wake));
  });
}

// On a preparation thread. The body itself is already accounted for.
Reply HttpConnection::Prepare(HttpRequest request, braid::Wake wake) {
  const auto bytes = static_cast<int64_t>(request.body.size()) * host_.api.PrepareTimesBody();
  const std::optional<MemoryBudget::Hold> hold = host_.api.memory().Take(bytes, 0);
  if (!hold) {
    return {.request_id = request.request_id,
            .content = host_.api.Refuse(503, "no memory to prepare the request; try again")};
  }
  return Respond(std::move(request), std::move(wake));
}

// What a library throws is answered too: routers take an engine that closes a connection without an
// answer for a broken one.
Reply HttpConnection::Respond(HttpRequest request, braid::Wake wake) {
  const std::string id = request.request_id, path = Printable(request.path);
  try {
    return host_.api.Respond(std::move(request), std::move(wake));
  } catch (const std::exception& failure) {
    LogError("{}: a library threw an exception: {}; the answer is 500", path, failure.what());
  }
  return {.request_id = id,
          .content = host_.api.Refuse(500, "the server failed to prepare the request; its log has "
                                           "the reason, please report it")};
}

// True if the connection can serve another request.
asio::awaitable<bool> HttpConnection::Serve(Incoming incoming) {
  Reply reply = co_await Ask(std::move(incoming.request));
  incoming.reply_headers = reply.headers;
  gone_ = false;
  if (auto* relay = std::get_if<RelayPointer>(&reply.content)) {
    relay_ = std::move(*relay);
    auto winner = co_await (SendRelayed(incoming, reply.request_id) || WatchClient());
    relay_.reset();
    deadline_us_ = 0;
    const bool* keep = std::get_if<0>(&winner);
    co_return keep != nullptr && *keep && !gone_;
  }
  incoming.body_hold.reset();
  if (auto* response = std::get_if<HttpResponse>(&reply.content)) {
    co_return co_await WriteResponse(*response, incoming, reply.request_id);
  }
  answer_ = std::move(std::get<std::unique_ptr<Answer>>(reply.content));
  auto winner = co_await (SendAnswer(incoming, reply.request_id) || WatchClient());
  answer_.reset();
  deadline_us_ = 0;
  const bool* keep = std::get_if<0>(&winner);
  co_return keep != nullptr && *keep && !gone_;
}

// What takes long is done on a thread of its own: nobody else waits for this one.
asio::awaitable<AnswerStep> HttpConnection::NextStep() {
  AnswerStep step = answer_->Take();
  if (!step.work) co_return step;
  working_ = true;
  co_await RunOn(host_.answer_pool, [&] {
    GiveWay(kBulkSteps);
    std::exchange(step.work, nullptr)(step);
    return true;
  });
  working_ = false;
  if (const auto reason = std::exchange(ends_later_, std::nullopt)) EndAnswer(*reason);
  co_return step;
}

asio::awaitable<bool> HttpConnection::SendAnswer(const Incoming& incoming,
                                                 const std::string& request_id) {
  while (answer_->Pending()) {
    woken_ = false;
    if (std::optional<ReplyContent> settled = answer_->Settle()) {
      if (auto* response = std::get_if<HttpResponse>(&*settled)) {
        co_return co_await WriteResponse(*response, incoming, request_id);
      }
      answer_ = std::move(std::get<std::unique_ptr<Answer>>(*settled));
      break;
    }
    if (woken_) continue;
    signal_.expires_after(std::chrono::seconds(host_.options.heartbeat_seconds));
    co_await signal_.async_wait(kTuple);
    if (gone_) co_return false;
  }
  const bool streams = answer_->Streams();
  if (streams) {
    std::string head = StreamHead(incoming, request_id);
    bool written = co_await WriteBytes(head);
    if (!written) co_return false;
  }
  for (;;) {
    woken_ = false;
    AnswerStep step = co_await NextStep();
    if (gone_) co_return false;
    if (step.response) {
      co_return co_await WriteResponse(*step.response, incoming, request_id);
    }
    std::string bytes = std::move(step.events);
    if (incoming.http_1_1 && !bytes.empty()) bytes = HttpChunk(bytes);
    if (incoming.http_1_1 && step.last) bytes += kHttpLastChunk;
    bool written = co_await WriteBytes(bytes);
    if (!written || gone_) co_return false;
    if (step.last) co_return incoming.http_1_1&& incoming.keep_alive;
    if (woken_) continue;
    signal_.expires_after(std::chrono::seconds(host_.options.heartbeat_seconds));
    auto [error] = co_await signal_.async_wait(kTuple);
    if (gone_) co_return false;
    if (!error && streams) {
      bytes = incoming.http_1_1 ? HttpChunk(kSsePing) : std::string(kSsePing);
      written = co_await WriteBytes(bytes);
      if (!written) co_return false;
    }
  }
}

asio::awaitable<bool> HttpConnection::SendRelayed(Incoming& incoming,
                                                  const std::string& request_id) {
  relayed_ = &incoming;
  const Relay::End end = co_await relay_->Run(*this);
  if (gone_) co_return false;
  if (end.response) co_return co_await WriteResponse(*end.response, incoming, request_id);
  if (!end.complete) co_return false;
  std::string bytes = std::exchange(relay_head_, {});
  if (relay_chunked_) bytes += kHttpLastChunk;
  bool written = co_await WriteBytes(bytes);
  co_return written&& incoming.keep_alive;
}

void HttpConnection::Begin(int status, std::string_view fields, std::optional<uint64_t> length) {
  Incoming& incoming = *relayed_;
  relay_chunked_ = !length && incoming.http_1_1;
  if (!length && !relay_chunked_) incoming.keep_alive = false;
  if (host_.draining) incoming.keep_alive = false;
  relay_head_ = fmt::format("HTTP/1.1 {} {}\r\n{}{}", status, StatusText(status), fields,
                            incoming.reply_headers);
  if (length) relay_head_ += fmt::format("Content-Length: {}\r\n", *length);
  if (relay_chunked_) relay_head_ += "Transfer-Encoding: chunked\r\n";
  relay_head_ += !incoming.keep_alive ? "Connection: close\r\n\r\n"
                 : incoming.http_1_1  ? "\r\n"
                                      : "Connection: keep-alive\r\n\r\n";
  relay_chunked_ = relay_chunked_ && !incoming.head;
}

asio::awaitable<bool> HttpConnection::Write(std::string_view piece) {
  std::string bytes = std::exchange(relay_head_, {});
  if (relayed_->head) piece = {};
  if (relay_chunked_ && !piece.empty()) {
    bytes += HttpChunk(piece);
  } else {
    bytes += piece;
  }
  bool written = co_await WriteBytes(bytes);
  co_return written && !gone_;
}

// Returns when the client disconnects. Bytes of the next request stay in the buffer.
asio::awaitable<void> HttpConnection::WatchClient() {
  while (buffer_.size() < limits::kPipelinedBytesMax) {
    auto [error, bytes] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    buffer_.commit(bytes);
    if (error) {
      if (error != asio::error::operation_aborted) gone_ = true;
      co_return;
    }
  }
  asio::steady_timer never(stream_.get_executor(), asio::steady_timer::time_point::max());
  co_await never.async_wait(kTuple);
}

std::string HttpConnection::StreamHead(const Incoming& incoming,
                                       const std::string& request_id) const {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\nX-Request-Id: {}\r\n{}{}\r\n",
      request_id, incoming.reply_headers,
      !incoming.http_1_1    ? "Connection: close\r\n"
      : incoming.keep_alive ? "Transfer-Encoding: chunked\r\n"
                            : "Transfer-Encoding: chunked\r\nConnection: close\r\n");
}

asio::awaitable<bool> HttpConnection::WriteResponse(const HttpResponse& response,
                                                    const Incoming& incoming,
                                                    const std::string& request_id) {
  std::string_view body = incoming.head ? std::string_view() : response.body;
  // It stays in memory until its client has read it. Answers leave half to requests.
  MemoryBudget& memory = host_.api.memory();
  MemoryBudget::Hold hold(memory, 0);
  if (body.size() > kSmallAnswerBytes &&
      !hold.Grow(std::ssize(body), memory.stats().limit_bytes / 2)) {
    const HttpResponse refusal = host_.api.Refuse(503, "no memory to send the answer; try again");
    co_return co_await WriteResponse(refusal, incoming, request_id);
  }
  const int64_t seconds =
      host_.options.write_seconds_max + std::ssize(body) / host_.options.answer_bytes_per_second;
  const int64_t end_us = MonotonicUs() + seconds * kSecondUs;
  const bool keep = incoming.keep_alive && !response.close && !host_.draining;
  std::string bytes = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nX-Content-Type-Options: "
      "nosniff\r\n",
      response.status, StatusText(response.status), response.content_type, response.body.size());
  if (!request_id.empty()) bytes += fmt::format("X-Request-Id: {}\r\n", request_id);
  if (response.retry_after_seconds > 0) {
    bytes += fmt::format("Retry-After: {}\r\n", response.retry_after_seconds);
  }
  bytes += response.headers;
  bytes += incoming.reply_headers;
  if (!response.allow.empty()) bytes += fmt::format("Allow: {}\r\n", response.allow);
  if (!keep) {
    bytes += "Connection: close\r\n";
  } else if (!incoming.http_1_1) {
    bytes += "Connection: keep-alive\r\n";
  }
  bytes += "\r\n";
  if (body.size() <= kSmallAnswerBytes) bytes += std::exchange(body, {});
  bool written = co_await WriteBytes(bytes, end_us);
  if (written) written = co_await WriteBytes(body, end_us);
  co_return written&& keep;
}

// The parser's state is unknown after this, so the connection ends.
asio::awaitable<void> HttpConnection::Refuse(int status, std::string message) {
  HttpResponse response = host_.api.Refuse(status, std::move(message));
  Incoming incoming;
  bool written = co_await WriteResponse(response, incoming, "");
  if (written || !timed_out_) co_await Linger();
}

asio::awaitable<void> HttpConnection::RefuseHttp2() {
  SetDeadline(host_.options.header_seconds_max);
  uint32_t stream = 0;
  for (boost::system::error_code error; !error;) {
    stream = Http2RequestStream({static_cast<const char*>(buffer_.data().data()), buffer_.size()});
    if (stream != 0 || buffer_.size() > limits::kHeadBytesMax) break;
    auto [failed, bytes] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kTuple);
    buffer_.commit(bytes);
    error = failed;
  }
  const std::string frames = Http2Refusal(stream);
  bool written = co_await WriteBytes(frames);
  if (written) co_await Linger();
}

// Closing with unread input would reset the connection and could lose the response on its way. What
// the client sends is dropped as it comes from the socket: TLS reads nothing after its own end.
asio::awaitable<void> HttpConnection::Linger() {
  SetDeadline(kLingerSeconds);
  co_await stream_.CloseSending();
  buffer_.clear();
  for (;;) {
    auto [error, bytes] =
        co_await stream_.socket().async_read_some(buffer_.prepare(kReadBytes), kTuple);
    if (error || timed_out_) break;
  }
  deadline_us_ = 0;
}

// Writes all of `bytes` while the client makes progress, until `end_us` at most (0: no end).
asio::awaitable<bool> HttpConnection::WriteBytes(std::string_view bytes, int64_t end_us) {
  while (!bytes.empty()) {
    if (end_us > 0 && MonotonicUs() >= end_us) co_return false;
    SetDeadline(host_.options.write_seconds_max);
    if (end_us > 0) deadline_us_ = std::min(deadline_us_, end_us);
    std::string_view piece = bytes.substr(0, limits::kWriteBytesMax);
    auto [error, written] = co_await stream_.async_write_some(asio::buffer(piece), kTuple);
    deadline_us_ = 0;
    if (error) co_return false;
    bytes.remove_prefix(written);
  }
  co_return true;
}

}  // namespace braid
