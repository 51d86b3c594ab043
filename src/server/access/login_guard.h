// Limits how often an address may send a wrong key. Above the limit, only keys that the address has
// used before are accepted for a moment: it cannot try other keys, and users that share a proxy's
// address with an attacker are not locked out. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "server/access/rate_bucket.h"

namespace braid {

class LoginGuard {
 public:
  // 0: any number.
  explicit LoginGuard(int32_t failures_per_second) : per_second_(failures_per_second) {}

  // `name`: of the key that was sent, empty if there is no such key.
  bool Allows(const std::string& address, const std::string& name, int64_t now_us);
  void Failed(const std::string& address, int64_t now_us);
  void Succeeded(const std::string& address, const std::string& name);

 private:
  static constexpr size_t kAddressesMax = 4096;
  static std::string Login(const std::string& address, const std::string& name);

  const int32_t per_second_;
  std::mutex mutex_;
  std::unordered_map<std::string, RateBucket> failures_;  // of addresses that have failed lately
  std::unordered_set<std::string> succeeded_;             // Login() of each
};

}  // namespace braid
