// The flags that `serve` and `router` share: where they listen, who may call, logs and signals.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/command/flags.h"
#include "cli/terminal/signals.h"
#include "server/access/access_config.h"
#include "server/access/api_keys.h"
#include "server/request_log.h"

namespace braid {

// "a,b" as its parts; empty ones do not count.
std::vector<std::string> SplitList(std::string_view text);

// Writes what a server says of itself to standard output (1) or error (2). The server goes on where
// that takes no more: on a full disk, or in a pipe without a reader.
void Announce(int descriptor, std::string_view text);

class AccessFlags {
 public:
  explicit AccessFlags(int32_t port) : port_(port) {}

  void AddTo(Flags& flags);
  // Starts the log and opens the request log. Before the first other thread.
  Status Start();
  // Into a configuration. kInvalid for an origin that no browser sends.
  Status Fill(AccessConfig& config) const;
  Result<std::vector<ApiKey>> ReadKeys() const;
  bool has_keys() const {
    return !api_key_.empty() || !api_key_file_.empty() || !admin_api_key_.empty();
  }
  RequestLog* request_log() const { return log_.get(); }
  bool has_admin_port() const { return admin_port_.has_value(); }

  // Waits for the first signal to stop; calls `reload` for each SIGHUP before it. Returns without a
  // signal when `ended`, if there is one, says so.
  void WaitForStop(SignalQueue& signals, const std::function<void()>& reload,
                   const std::function<bool()>& ended = nullptr) const;
  // Calls `drain`, then `stop`, which runs once; a second signal calls it at once. `drain` gives
  // running requests so many seconds, ends the others and writes files. The process ends within a
  // second of a second signal, of the end of a drain that took all its time, and of the minute that
  // `drain` may take beyond that.
  void Drain(SignalQueue& signals, const std::function<void(int32_t seconds)>& drain,
             const std::function<void()>& stop) const;
  // Reads the keys and the certificate again and opens the request log anew, for its rotation. What
  // cannot be read leaves the previous version in use.
  void ReadAgain(const std::function<Status()>& set_keys,
                 const std::function<Status()>& reload_tls) const;

 private:
  std::string host_ = "127.0.0.1";
  std::string log_level_ = "info";
  std::string api_key_, api_key_file_, admin_api_key_;
  std::string admin_host_ = "127.0.0.1";
  std::string tls_certificate_, tls_key_;
  std::string request_log_;
  std::string cors_origins_, allowed_hosts_;
  int32_t port_;
  int32_t drain_seconds_ = 30;
  int32_t login_failures_ = 10;
  std::optional<int32_t> admin_port_;
  bool log_json_ = false;
  std::unique_ptr<RequestLog> log_;
};

}  // namespace braid
