// How often an address may send a wrong key (L-15): so often a second, then nothing that needs a
// key is answered for a moment, so that keys cannot be tried out. Thread-safe.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "server/rate_bucket.h"

namespace braid {

class LoginGuard {
 public:
  // 0: any number.
  explicit LoginGuard(int32_t failures_per_second) : per_second_(failures_per_second) {}

  bool Allows(const std::string& address, int64_t now_us);
  void Failed(const std::string& address, int64_t now_us);

 private:
  static constexpr size_t kAddressesMax = 4096;

  const int32_t per_second_;
  std::mutex mutex_;
  std::unordered_map<std::string, RateBucket> failures_;  // of addresses that have failed lately
};

}  // namespace braid
