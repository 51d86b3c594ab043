// See the header.
#include "base/system/name_lookup.h"

#include <fmt/format.h>
#include <netdb.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace braid {

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
  std::lock_guard lock(state_.mutex);
  state_.ends = true;
  state_.changed.notify_all();
}

Result<std::optional<NetAddress>> NameLookup::Next(const HostPort& at) {
  ASSIGN_OR_RETURN(const std::vector<NetAddress> one, Take(at, 1));
  return one.empty() ? std::nullopt : std::optional(one.front());
}

Result<std::vector<NetAddress>> NameLookup::Take(const HostPort& at, size_t count) {
  if (auto numeric = Resolve(at, true)) return numeric;
  State& s = state_;
  std::lock_guard lock(s.mutex);
  const auto known = s.answers.find(at);
  if (known != s.answers.end()) {
    Answer& answer = known->second;
    if (!answer.addresses) {
      const Error error = answer.addresses.error();
      s.answers.erase(known);
      return error;
    }
    if (answer.given < answer.addresses->size() && MonotonicUs() - answer.at_us < kHoldsUs) {
      const auto first = answer.addresses->begin() + static_cast<std::ptrdiff_t>(answer.given);
      count = std::min(count, answer.addresses->size() - answer.given);
      answer.given += count;
      return std::vector(first, first + static_cast<std::ptrdiff_t>(count));
    }
    s.answers.erase(known);
  }
  if (std::ranges::find(s.questions, at) == s.questions.end()) s.questions.push_back(at);
  if (owned_) std::thread([owned = std::move(owned_)] { owned->Run(); }).detach();
  s.changed.notify_all();
  return std::vector<NetAddress>();
}

void NameLookup::State::Run() {
  ::pthread_setname_np(::pthread_self(), "braid-names");
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return ends || !questions.empty(); });
    if (ends) return;
    const HostPort at = questions.front();
    lock.unlock();
    Result<std::vector<NetAddress>> addresses = resolver(at);
    lock.lock();
    if (ends) return;
    questions.pop_front();
    std::erase_if(answers, [](const auto& answer) {
      return MonotonicUs() - answer.second.at_us >= kHoldsUs;
    });
    answers.insert_or_assign(at, Answer{std::move(addresses), MonotonicUs()});
    wake();
  }
}

}  // namespace braid
