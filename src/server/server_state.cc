// Seeds are the clock's unless the configuration fixes them.
#include "server/server_state.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/http/framing.h"

namespace braid {
namespace {

uint64_t SeedBase(const ServerConfig& config) {
  if (config.seed_base != 0) return config.seed_base;
  return MixBits(static_cast<uint64_t>(UnixSeconds()) ^
                 (static_cast<uint64_t>(MonotonicUs()) << 20));
}

}  // namespace

ServerState::ServerState(const ServerConfig& server_config)
    : config(server_config),
      seed_base(SeedBase(server_config)),
      memory({.server_bytes = RequestMemory(server_config, 0)}),
      gate(server_config) {}

void ServerState::SetLoading(std::string reason) {
  std::lock_guard lock(mutex_);
  loading_reason_ = std::move(reason);
}

ApiError ServerState::Loading() const {
  std::lock_guard lock(mutex_);
  return {503, loading_reason_, {}, "loading"};
}

size_t ServerState::BodyBytesMax() const {
  const Service* service = ready.load();
  return limits::BodyBytesMax(service == nullptr ? 0 : service->context.card.context_tokens_max);
}

std::string ServerState::NewRequestId() {
  return fmt::format("req-{:016x}", RandomBits(seed_base ^ 1, next_request_.fetch_add(1)));
}

void ServerState::NoteResponse(const HttpRequest& request, const HttpResponse& response,
                               const std::string& id, const std::string& tenant) {
  const std::string path = Printable(request.path);
  if (response.status >= 400) {
    if (Service* service = ready.load()) service->metrics.CountRejection(response.status);
    LogDebug("{} {} {} {}", request.method, path, response.status, id);
  }
  if (config.request_log == nullptr) return;
  config.request_log->Add({.unix_seconds = UnixSeconds(),
                           .method = request.method,
                           .path = path,
                           .status = response.status,
                           .id = id,
                           .tenant = tenant,
                           .finish = {},
                           .total_us = MonotonicUs() - request.received_us});
}

}  // namespace braid
