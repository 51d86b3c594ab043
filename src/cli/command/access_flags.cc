// Signals: the first drains, the second stops at once, SIGHUP reads files again.
#include "cli/command/access_flags.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/system/file.h"

namespace braid {
namespace {

constexpr int kLookEveryMs = 50;
// After --drain-seconds: for errors of requests that are ended, and for files that are written.
constexpr int64_t kFinishUs = 60'000'000;

// An orderly stop waits for running work; this does not.
void EndSoon() {
  const auto kOrderly = std::chrono::milliseconds(700);
  std::thread([kOrderly] {
    std::this_thread::sleep_for(kOrderly);
    LogWarning("some work did not end in time; the process ends without it");
    std::_Exit(0);
  }).detach();
}

bool Stops(int signal) { return signal == SIGINT || signal == SIGTERM; }

}  // namespace

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void Announce(int descriptor, std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(descriptor, text.data(), text.size());
}

void AccessFlags::AddTo(Flags& flags) {
  flags.Text("--host", host_, "Address to listen on; :: for all addresses");
  flags.Number("--port", port_, {0, 65535}, "Port to listen on; 0: any free port");
  flags.Number("--drain-seconds", drain_seconds_, {0, 86400},
               "Seconds that running requests may continue after SIGTERM");
  flags.Choice("--log-level", log_level_, {"debug", "info", "warning", "error", "off"},
               "Lowest level that is logged to standard error");
  flags.Switch("--log-json", log_json_, "Log in JSON, one object per line");
  flags.NonEmpty("--api-key", api_key_,
                 "Key that clients must send; it also allows administration");
  flags.NonEmpty("--api-key-file", api_key_file_,
                 "JSON file of keys with names and limits; SIGHUP reloads it");
  flags.NonEmpty("--admin-api-key", admin_api_key_,
                 "Key for administration; --api-key then no longer allows it");
  flags.Number("--admin-port", admin_port_, {0, 65535},
               "Serve administration (abort, flush, pause) only on this port");
  flags.Text("--admin-host", admin_host_, "Address that --admin-port listens on");
  flags.Number("--login-failures", login_failures_, {0, 1 << 20},
               "Wrong keys per second from one address before it is blocked; 0: no limit");
  flags.NonEmpty("--tls-cert", tls_certificate_,
                 "PEM file with the certificate chain; turns on HTTPS; SIGHUP reloads it");
  flags.NonEmpty("--tls-key", tls_key_, "PEM file with the private key of --tls-cert");
  flags.Text("--request-log", request_log_,
             "Log each request, without its text, to this file; -: standard output");
  flags.Text("--cors-origins", cors_origins_,
             "Origins whose web pages may use the API: https://a.example,… or *");
  flags.Text("--allowed-hosts", allowed_hosts_,
             "Host names accepted on a loopback address besides localhost: a.example,… or * for "
             "any");
}

Status AccessFlags::Start() {
  constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
  uint8_t level = 0;
  while (kNames[level] != log_level_) ++level;
  InitLog(static_cast<LogLevel>(level), log_json_);
  if (request_log_.empty()) return {};
  ASSIGN_OR_RETURN(log_, RequestLog::Open(request_log_, log_json_));
  return {};
}

Status AccessFlags::Fill(AccessConfig& config) const {
  config.http.host = host_;
  config.http.port = static_cast<uint16_t>(port_);
  config.http.admin_host = admin_host_;
  config.http.admin_port = admin_port_.value_or(-1);
  config.http.tls.certificate = tls_certificate_;
  config.http.tls.key = tls_key_;
  config.login_failures_per_second = login_failures_;
  config.cors_origins = SplitList(cors_origins_);
  config.allowed_hosts = SplitList(allowed_hosts_);
  // An origin that no browser sends would silently allow nothing.
  for (const std::string& origin : config.cors_origins) {
    const size_t at = origin.find("://");
    const bool whole = at != std::string::npos && at > 0 && at + 3 < origin.size() &&
                       origin.find('/', at + 3) == std::string::npos;
    if (whole || origin == "*" || origin == "null") continue;
    return Error{ErrorCode::kInvalid,
                 fmt::format("--cors-origins {}: must be scheme://host[:port] without a path, as "
                             "browsers send it, or *",
                             origin)};
  }
  return {};
}

Result<std::vector<ApiKey>> AccessFlags::ReadKeys() const {
  std::vector<ApiKey> keys;
  if (!api_key_file_.empty()) {
    constexpr size_t kBytesMax = 4 << 20;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(api_key_file_, kBytesMax));
    ASSIGN_OR_RETURN(keys, ParseApiKeys(text, api_key_file_));
  }
  const bool two = !admin_api_key_.empty();
  if (!api_key_.empty()) keys.push_back({.name = "default", .key = api_key_, .admin = !two});
  if (two) keys.push_back({.name = "admin", .key = admin_api_key_, .admin = true});
  RETURN_IF_ERROR(CheckLimits(keys));
  return keys;
}

void AccessFlags::ReadAgain(const std::function<Status()>& set_keys,
                            const std::function<Status()>& reload_tls) const {
  if (const Status status = set_keys(); status) {
    LogInfo("the API keys were read again");
  } else {
    LogError("the API keys stay as they were: {}", status.error().message);
  }
  if (const Status status = reload_tls(); !status) {
    LogError("the certificate stays as it was: {}", status.error().message);
  }
  if (log_ != nullptr) log_->Reopen();
}

void AccessFlags::WaitForStop(SignalQueue& signals, const std::function<void()>& reload,
                              const std::function<bool()>& ended) const {
  while (!ended || !ended()) {
    const int signal = signals.Wait(ended ? kLookEveryMs : -1);
    if (Stops(signal)) return;
    if (signal == SIGHUP) reload();
  }
}

void AccessFlags::Drain(SignalQueue& signals, const std::function<void(int32_t seconds)>& drain,
                        const std::function<void()>& stop) const {
  LogInfo("draining for up to {} s; a second signal stops at once", drain_seconds_);
  const int64_t end_us = MonotonicUs() + int64_t{drain_seconds_} * 1'000'000;
  std::atomic<bool> drained{false}, stopping{false}, stopped{false};
  const auto stop_once = [&] {
    if (!stopping.exchange(true)) stop();
  };
  std::thread ending([&] {
    drain(drain_seconds_);
    drained = true;
    stop_once();
    stopped = true;
  });
  bool ends_soon = false;
  while (!stopped) {
    const bool asked = Stops(signals.Wait(kLookEveryMs));
    // A text that is still being tokenised, at low priority, does not notice that its time is over.
    const bool late = MonotonicUs() >= end_us + (drained ? 0 : kFinishUs);
    if (ends_soon || !(asked || late)) continue;
    ends_soon = true;
    EndSoon();
    if (!asked) continue;
    LogInfo("stopping at once");
    stop_once();
  }
  ending.join();
}

}  // namespace braid
