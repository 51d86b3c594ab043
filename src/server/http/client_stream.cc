// Boost.Asio's TLS stream refers to the socket beside it.
#include "server/http/client_stream.h"

#include "server/http/await.h"

namespace braid {

namespace asio = boost::asio;

asio::awaitable<bool> ClientStream::Open() {
  if (!tls_) co_return true;
  auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kTuple);
  co_return !error;
}

asio::awaitable<void> ClientStream::CloseSending() {
  if (tls_) {
    // Waits for the client's close_notify, at most until the caller's deadline.
    co_await tls_->async_shutdown(kTuple);
  }
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

}  // namespace braid
