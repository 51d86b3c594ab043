// One client connection: reads a request, asks the API, writes the answer, again until either side
// closes. A coroutine on the network thread; requests of one connection are served one after the
// other. While an answer is being made the socket is read on, so that a client that left is noticed
// at once. (A client that only shuts down its sending side looks the same and is treated the same.)
#pragma once

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
#include "server/http/types.h"

namespace braid {

namespace asio = boost::asio;

// What the connections of a server share. Network thread only, but for `options` and `api`.
struct ConnectionHost {
  const HttpOptions& options;
  HttpApi& api;
  asio::thread_pool& pool;       // prepares requests
  asio::thread_pool& bulk_pool;  // those with large bodies, one after the other
  std::function<Wake(int64_t connection)> make_wake;
  std::unique_ptr<asio::ssl::context> tls = nullptr;  // of connections that begin; null: none
  bool draining = false;
};

class HttpConnection {
 public:
  HttpConnection(int64_t id, asio::ip::tcp::socket socket, HttpPeer peer, ConnectionHost& host);

  // Serves until the connection ends. The object must live until then.
  asio::awaitable<void> Run();
  // For a server that is full: answers one probe (HttpApi::IsProbe) and refuses anything else.
  asio::awaitable<void> RunReserved(std::string message);

  // The answer in work may have something new.
  void Wake();
  // Called a few times a second: ends what has passed its deadline.
  void Sweep(int64_t now_us);
  // Draining: an idle connection closes.
  void CloseIfIdle();
  // Its place is needed: whatever it does ends without a word.
  void Drop();
  // Draining is over: the answer in work ends now.
  void EndAnswer(EndReason reason);

 private:
  struct Incoming {
    HttpRequest request;
    std::optional<MemoryBudget::Hold> body_hold;  // until the request is prepared
    bool head = false;
    bool keep_alive = false;
    bool http_1_1 = false;
    std::string reply_headers;
  };

  asio::awaitable<bool> AwaitFirstByte();
  asio::awaitable<std::optional<HttpRefusal>> ReadHead(std::string* head);
  asio::awaitable<std::optional<Incoming>> ReadRequest();
  asio::awaitable<bool> ReadBody(std::string head, Incoming* incoming);
  asio::awaitable<bool> Serve(Incoming incoming);
  asio::awaitable<Reply> Ask(HttpRequest request);
  Reply Prepare(HttpRequest request, braid::Wake wake);
  asio::awaitable<bool> SendAnswer(const Incoming& incoming, const std::string& request_id);
  asio::awaitable<void> WatchClient();
  asio::awaitable<bool> WriteResponse(const HttpResponse& response, const Incoming& incoming,
                                      const std::string& request_id);
  asio::awaitable<void> Refuse(int status, std::string message);
  asio::awaitable<void> RefuseHttp2();
  asio::awaitable<bool> Write(std::string_view bytes);
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
  int64_t deadline_us_ = 0;  // 0: none; passing it cancels what the socket does
  bool timed_out_ = false;
  bool idle_ = false;
  bool woken_ = false;
  bool gone_ = false;      // the client has left
  bool reserved_ = false;  // see RunReserved
  bool dropped_ = false;
};

}  // namespace braid
