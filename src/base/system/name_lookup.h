// Addresses of names, looked up on a thread of its own: an answer may take many seconds, and
// whoever asks has others to talk to. The thread begins with the first name.
//
// Calls come from one thread; `wake` is called on the other, and never after the end of the object.
#pragma once

#include <sys/socket.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace braid {

// A name or an address, and a port.
struct HostPort {
  std::string host;
  uint16_t port = 0;
  auto operator<=>(const HostPort&) const = default;
};

struct NetAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};
// All addresses, in the order in which they are to be tried; at least one. Waits for the answer
// unless `numeric`: then the host must be an address.
Result<std::vector<NetAddress>> Resolve(const HostPort& at, bool numeric = false);

class NameLookup {
 public:
  using Resolver = std::function<Result<std::vector<NetAddress>>(const HostPort&)>;
  // How long an answer holds.
  static constexpr int64_t kHoldsUs = 60'000'000;

  explicit NameLookup(
      std::function<void()> wake,
      Resolver resolver = [](const HostPort& at) { return Resolve(at); })
      : owned_(std::make_unique<State>(std::move(wake), std::move(resolver))),
        state_(*owned_) {}
  // Waits for no answer. A resolver that is at work then ends later.
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // The address to try next; each call gives another, and the name is looked up again when all have
  // been given. None: the answer is under way, and `wake` is called when it is there.
  Result<std::optional<NetAddress>> Next(const HostPort& at);
  // The same of at most `count` addresses, in order; empty: the answer is under way.
  Result<std::vector<NetAddress>> Take(const HostPort& at, size_t count);

 private:
  struct Answer {
    Result<std::vector<NetAddress>> addresses;
    int64_t at_us = 0;
    size_t given = 0;
  };
  struct State {
    State(std::function<void()> w, Resolver r) : wake(std::move(w)), resolver(std::move(r)) {}
    void Run();

    const std::function<void()> wake;
    const Resolver resolver;
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::deque<HostPort> questions;  // the first is under way
    std::map<HostPort, Answer> answers;
    bool ends = false;
  };

  std::unique_ptr<State> owned_;  // null: the thread has begun, which owns it until `ends`
  State& state_;
};

}  // namespace braid
