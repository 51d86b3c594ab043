// The order of the checks: how often this address was wrong, the key, then administration.
#include "server/access/gate.h"

#include <fmt/core.h>

#include "base/clock.h"

namespace braid {

// Admin routes need a caller's key to be an admin's, and the listener for administration if there
// is one.
ApiStatus Gate::CheckAdmin(const HttpRequest& request, const Caller& caller) const {
  if (config_.http.admin_port >= 0 && !request.peer.admin_listener) {
    return ApiError{404, fmt::format("{} is served on the admin port only", request.path)};
  }
  // Without keys every caller is an admin; one at a loopback address has an account here.
  if (keys_.empty() && !request.peer.admin_listener && !request.peer.loopback_listener) {
    return ApiError{403,
                    fmt::format("{} needs a key at an address that is not loopback; start "
                                "the server with --admin-api-key, or with --admin-port",
                                request.path),
                    {},
                    "admin_key_required"};
  }
  if (caller.admin) return {};
  return ApiError{
      403, fmt::format("{} needs an admin's key", request.path), {}, "admin_key_required"};
}

// An engine gets everybody's prompts, so nobody is one without a key but at a loopback address.
ApiStatus Gate::CheckEngine(const HttpRequest& request, const Caller& caller) const {
  const bool known = caller.engine || (caller.admin && !keys_.empty());
  if (known || (keys_.empty() && request.peer.loopback_listener)) return {};
  return ApiError{403,
                  fmt::format("{} needs a key with \"engine\": true of the router's --api-key-file",
                              request.path),
                  {},
                  "engine_key_required"};
}

Result<Caller, ApiError> Gate::Authorize(const HttpRequest& request, Access access,
                                         const std::optional<Caller>& caller) {
  if (access == Access::kPublic) return caller.value_or(Caller{});
  const int64_t now_us = MonotonicUs();
  if (!logins_.Allows(request.peer.address, caller ? caller->name : "", now_us)) {
    return ApiError{429, "too many wrong API keys from this address", {}, "too_many_logins"};
  }
  if (!caller) {
    if (!PresentedKey(request).empty()) logins_.Failed(request.peer.address, now_us);
    return ApiError{401,
                    "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                    {},
                    "invalid_api_key"};
  }
  logins_.Succeeded(request.peer.address, caller->name);
  if (access == Access::kAdmin) RETURN_IF_ERROR(CheckAdmin(request, *caller));
  if (access == Access::kEngine) RETURN_IF_ERROR(CheckEngine(request, *caller));
  return *caller;
}

}  // namespace braid
