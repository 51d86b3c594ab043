// Who may call what: checks a request's Host and Origin, its key, and the rules for administration.
// `braid serve` and `braid router` share it. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/access/access_config.h"
#include "server/access/api_keys.h"
#include "server/access/browser_guard.h"
#include "server/access/login_guard.h"
#include "server/api/api_error.h"
#include "server/http/types.h"

namespace braid {

// Who may call a route: everybody, callers with a key, admins, or engines that register.
enum class Access : uint8_t { kPublic, kKey, kAdmin, kEngine };

class Gate {
 public:
  // `config` must outlive the object.
  explicit Gate(const AccessConfig& config)
      : config_(config), logins_(config.login_failures_per_second) {}

  // Without keys everybody is an admin without a name.
  void SetKeys(std::vector<ApiKey> keys) { keys_.Replace(std::move(keys)); }
  // The caller with the key that a request shows; nullopt: the key is missing or wrong.
  std::optional<Caller> Find(const HttpRequest& request) const {
    return keys_.Find(PresentedKey(request));
  }
  // `caller` is what Find gave. A path that does not exist needs `kKey`, so that nobody learns
  // without a key which paths exist.
  Result<Caller, ApiError> Authorize(const HttpRequest& request, Access access,
                                     const std::optional<Caller>& caller);

 private:
  ApiStatus CheckAdmin(const HttpRequest& request, const Caller& caller) const;
  ApiStatus CheckEngine(const HttpRequest& request, const Caller& caller) const;

  const AccessConfig& config_;
  ApiKeys keys_;
  LoginGuard logins_;
};

}  // namespace braid
