// The router as a whole: the HTTP server, the API behind it, and the engines. Life as Server's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "router/router_api.h"
#include "server/access/api_keys.h"

namespace braid {

class RouterServer {
 public:
  // Reads config.file, binds and listens.
  static Result<std::unique_ptr<RouterServer>> Start(RouterServerConfig config);
  ~RouterServer();

  uint16_t admin_port() const;  // 0: there is none
  std::string url() const;

  void SetKeys(std::vector<ApiKey> keys);
  Status ReloadTls();
  // Reads the file again; after an error the engines stay as they were. Not on the network thread.
  Status Reload();
  void Drain(int32_t seconds);
  void StopNow();

 private:
  struct State;
  explicit RouterServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace braid
