// A client's socket, with or without TLS: what a connection reads from and writes to.
// Network thread only; one read and one write may be in flight at the same time.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>

namespace braid {

class ClientStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;

  // `tls` may be null: no TLS.
  ClientStream(Socket socket, boost::asio::ssl::context* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }

  // The TLS handshake, if there is TLS. False if it fails or is cancelled.
  boost::asio::awaitable<bool> Open();
  // Tells the client that no more data follows.
  boost::asio::awaitable<void> CloseSending();

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto handler, const Buffers& into) {
          if (tls_) {
            tls_->async_read_some(into, std::move(handler));
          } else {
            socket_.async_read_some(into, std::move(handler));
          }
        },
        token, buffers);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls_) {
            tls_->async_write_some(from, std::move(handler));
          } else {
            socket_.async_write_some(from, std::move(handler));
          }
        },
        token, buffers);
  }

 private:
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace braid
