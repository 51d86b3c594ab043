// See the header.
#include "handoff/name_lookup.h"

#include <fmt/format.h>
#include <netdb.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/clock.h"

namespace braid::handoff {

Result<std::vector<NetAddress>> Resolve(const HostPort& at, bool numeric) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = numeric ? AI_NUMERICHOST : 0;
  const int code = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &list);
  if (code != 0) {
    return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", at.host, ::gai_strerror(code))};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  std::vector<NetAddress> addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    NetAddress& address = addresses.emplace_back();
    std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
  }
  return addresses;
}

NameLookup::~NameLookup() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  asked_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<std::optional<NetAddress>> NameLookup::Next(const HostPort& at) {
  if (const auto numeric = Resolve(at, true)) return std::optional(numeric->front());
  std::lock_guard lock(mutex_);
  const auto known = answers_.find(at);
  if (known != answers_.end()) {
    Answer& answer = known->second;
    if (!answer.addresses) {
      const Error error = answer.addresses.error();
      answers_.erase(known);
      return error;
    }
    if (answer.given < answer.addresses->size() && MonotonicUs() - answer.at_us < kHoldsUs) {
      return std::optional((*answer.addresses)[answer.given++]);
    }
    answers_.erase(known);
  }
  if (std::ranges::find(questions_, at) == questions_.end()) questions_.push_back(at);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  asked_.notify_all();
  return std::optional<NetAddress>();
}

void NameLookup::Run() {
  ::pthread_setname_np(::pthread_self(), "braid-names");
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [this] { return ends_ || !questions_.empty(); });
    if (ends_) return;
    const HostPort at = questions_.front();
    lock.unlock();
    Result<std::vector<NetAddress>> addresses = resolver_(at);
    lock.lock();
    questions_.pop_front();
    std::erase_if(answers_, [](const auto& answer) {
      return MonotonicUs() - answer.second.at_us >= kHoldsUs;
    });
    answers_.insert_or_assign(at, Answer{std::move(addresses), MonotonicUs()});
    wake_();
  }
}

}  // namespace braid::handoff
