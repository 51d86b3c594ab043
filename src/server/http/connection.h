// One client connection: reads a request, asks the API, writes the answer, and repeats until either
// side closes. A coroutine on the network thread; it serves its requests one after the other. It
// keeps reading while an answer is being made, to detect a client that disconnects at once. (A
// client that only shuts down its sending side looks the same and is treated the same.)
#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http/client_stream.h"
#include "server/http/framing.h"
#include "server/http/options.h"
#include "server/http/relay.h"
#include "server/http/types.h"

namespace braid {

namespace asio = boost::asio;

// What the connections of a server share. Network thread only, but for `options` and `api`.
struct ConnectionHost {
  const HttpOptions& options;
  HttpApi& api;
  asio::thread_pool& pool;         // prepares requests
  asio::thread_pool& bulk_pool;    // prepares large bodies, one at a time
  asio::thread_pool& answer_pool;  // writes answers that take long, one at a time
  std::function<Wake(int64_t connection)> make_wake;
  std::unique_ptr<asio::ssl::context> tls = nullptr;  // for new connections; null: no TLS
  bool draining = false;
  int64_t body_bytes = 0;  // memory that bodies hold, in all

  // What is to stay free of `spare` bytes beside bodies: whatever is prepared or answered has some.
  int64_t SpareLeft(int64_t spare) const {
    return std::max<int64_t>(0, spare - (api.memory().stats().used_bytes - body_bytes));
  }
};

// Memory for what has come of a body. It grows while all bodies together leave room to prepare the
// largest one, whatever is being prepared or answered.
class BodyHold {
 public:
  explicit BodyHold(ConnectionHost& host) : host_(host), hold_(host.api.memory(), 0) {}
  ~BodyHold() { host_.body_bytes -= hold_.bytes(); }
  BodyHold(const BodyHold&) = delete;
  BodyHold& operator=(const BodyHold&) = delete;
  // False if `more` bytes have no room beside `spare` ones for preparation.
  bool Grow(int64_t more, int64_t spare) {
    if (!hold_.Grow(more, host_.SpareLeft(spare))) return false;
    host_.body_bytes += more;
    return true;
  }
  int64_t bytes() const { return hold_.bytes(); }

 private:
  ConnectionHost& host_;
  MemoryBudget::Hold hold_;
};

class HttpConnection final : private ClientOutput {
 public:
  HttpConnection(int64_t id, asio::ip::tcp::socket socket, HttpPeer peer, ConnectionHost& host);

  // Serves until the connection ends. The object must live until then.
  asio::awaitable<void> Run();
  // Over the connection limit: answers one probe (HttpApi::IsProbe) and refuses other requests.
  asio::awaitable<void> RunReserved(std::string message);

  // The answer in progress may have new data.
  void Wake();
  // Called a few times a second: enforces deadlines.
  void Sweep(int64_t now_us);
  // While draining: closes the connection if it is idle.
  void CloseIfIdle();
  // Closes the connection at once, to make room for another.
  void Drop();
  // Ends the answer in progress.
  void EndAnswer(EndReason reason);

 private:
  struct Incoming {
    HttpRequest request;
    std::unique_ptr<BodyHold> body_hold;  // until the request is prepared or a relay has freed it
    bool head = false;
    bool keep_alive = false;
    bool http_1_1 = false;
    std::string reply_headers;
  };

  asio::awaitable<bool> AwaitFirstByte();
  asio::awaitable<std::optional<HttpRefusal>> ReadHead(std::string* head);
  asio::awaitable<std::optional<Incoming>> ReadRequest();
  asio::awaitable<bool> ReadBody(std::string head, Incoming* incoming);
  struct Body;
  asio::awaitable<std::optional<HttpRefusal>> Receive(Body& body, BodyHold& hold);
  asio::awaitable<bool> Serve(Incoming incoming);
  asio::awaitable<Reply> Ask(HttpRequest request);
  Reply Prepare(HttpRequest request, braid::Wake wake);
  Reply Respond(HttpRequest request, braid::Wake wake);
  asio::awaitable<AnswerStep> NextStep();
  asio::awaitable<bool> SendAnswer(const Incoming& incoming, const std::string& request_id);
  asio::awaitable<bool> SendRelayed(Incoming& incoming, const std::string& request_id);
  void Begin(int status, std::string_view fields, std::optional<uint64_t> length) override;
  asio::awaitable<bool> Write(std::string_view piece) override;
  void BodyFreed() override { relayed_->body_hold.reset(); }
  bool gone() const override { return gone_; }
  asio::awaitable<void> WatchClient();
  asio::awaitable<bool> WriteResponse(const HttpResponse& response, const Incoming& incoming,
                                      const std::string& request_id);
  asio::awaitable<void> Refuse(int status, std::string message);
  asio::awaitable<void> RefuseHttp2();
  asio::awaitable<bool> WriteBytes(std::string_view bytes, int64_t end_us = 0);
  asio::awaitable<void> Linger();
  std::string StreamHead(const Incoming& incoming, const std::string& request_id) const;
  void SetDeadline(int64_t seconds);

  int64_t id_;
  const HttpPeer peer_;
  ClientStream stream_;
  ConnectionHost& host_;
  asio::steady_timer signal_;
  boost::beast::flat_buffer buffer_;
  std::unique_ptr<Answer> answer_;
  bool working_ = false;                 // another thread has the answer
  std::optional<EndReason> ends_later_;  // when it has it no more
  // An answer from elsewhere, the request that it is for, and what of it has not been written yet.
  RelayPointer relay_;
  Incoming* relayed_ = nullptr;
  std::string relay_head_;
  bool relay_chunked_ = false;
  int64_t deadline_us_ = 0;  // 0: none; once it has passed, each sweep cancels what is in flight
  bool timed_out_ = false;   // the last deadline that was set has passed
  bool idle_ = false;
  bool woken_ = false;
  bool gone_ = false;      // the client has disconnected
  bool reserved_ = false;  // see RunReserved
  bool dropped_ = false;
};

}  // namespace braid
