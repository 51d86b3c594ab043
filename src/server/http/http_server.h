// Accepts connections and owns the network thread and the preparation threads. The API behind it is
// an HttpApi; this file and http_connection are the only ones that know the network.
#pragma once

#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "server/http/options.h"
#include "server/http/types.h"

namespace braid {

class HttpServer {
 public:
  // Binds, listens and starts the threads. `options` and `api` must outlive the object.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, HttpApi& api);
  ~HttpServer();

  uint16_t port() const { return port_; }
  // Where work of the network thread may be posted, until Stop.
  boost::asio::io_context::executor_type executor() const;
  uint16_t admin_port() const { return admin_port_; }  // 0: there is none
  // Reads the certificate and the key again, for connections that begin from now on.
  Status ReloadTls(const HttpOptions& options);
  // See Server::Drain. Any thread but the network's own.
  void Drain(int32_t seconds);
  // Ends everything, joins the threads and destroys every connection with its answer; the second
  // call does nothing.
  void Stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  void FinishDrain();

  uint16_t port_ = 0, admin_port_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable drained_changed_;
  bool drained_ = false;
  std::unique_ptr<State> state_;  // null after Stop
};

}  // namespace braid
