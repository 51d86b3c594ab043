// Accepts connections and owns the network thread and the preparation threads. The API behind it is
// an HttpApi; this file and http_connection are the only ones that know the network.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "server/http_types.h"
#include "server/server.h"

namespace braid {

class HttpServer {
 public:
  // Binds, listens and starts the threads. `config` and `api` must outlive the object.
  static Result<std::unique_ptr<HttpServer>> Start(const ServerConfig& config, HttpApi& api);
  ~HttpServer();

  uint16_t port() const;
  // See Server::Drain. Any thread but the network's own.
  void Drain(int32_t seconds);
  // Ends everything and joins the threads; the second call does nothing.
  void Stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
