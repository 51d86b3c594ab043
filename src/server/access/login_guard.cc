// The sets are cleared when they are full, which bounds the memory under attack.
#include "server/access/login_guard.h"

#include <iterator>

namespace braid {

std::string LoginGuard::Login(const std::string& address, const std::string& name) {
  return address + '\n' + name;
}

bool LoginGuard::Allows(const std::string& address, const std::string& name, int64_t now_us) {
  if (per_second_ == 0) return true;
  std::lock_guard lock(mutex_);
  const auto at = failures_.find(address);
  if (at == failures_.end() || at->second.Has(1, now_us)) return true;
  return !name.empty() && succeeded_.contains(Login(address, name));
}

void LoginGuard::Failed(const std::string& address, int64_t now_us) {
  if (per_second_ == 0) return;
  std::lock_guard lock(mutex_);
  if (failures_.size() >= kAddressesMax) {
    for (auto at = failures_.begin(); at != failures_.end();) {
      at = at->second.full(now_us) ? failures_.erase(at) : std::next(at);
    }
    // So many addresses at once are an attack; forgetting them bounds the memory.
    if (failures_.size() >= kAddressesMax) failures_.clear();
  }
  failures_.try_emplace(address, per_second_, per_second_, now_us).first->second.Take(1, now_us);
}

void LoginGuard::Succeeded(const std::string& address, const std::string& name) {
  if (per_second_ == 0) return;
  std::lock_guard lock(mutex_);
  if (succeeded_.size() >= kAddressesMax) succeeded_.clear();
  succeeded_.insert(Login(address, name));
}

}  // namespace braid
