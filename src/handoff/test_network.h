// For tests: a network that the test plays. It sees what partners do and says what happens to them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "handoff/message.h"
#include "handoff/transport.h"

namespace braid::handoff {

// A part that the partners send.
struct SentPart {
  ConnectionId to;
  Message head;
  std::vector<std::byte> bytes;  // the first of them
  uint64_t cookie;
};

// What the partners did, and what is to happen to them.
struct Network {
  std::mutex mutex;
  std::deque<std::function<void(Transport::Owner&)>> events;
  std::map<ConnectionId, std::vector<Message>> sent;
  std::vector<SentPart> parts;
  std::set<ConnectionId> closed, trusted;
  std::vector<HostPort> called;  // to whom the partners connected
  int looked_up = 0;             // times that Connect is asked before the name is known
  int connects = 0;              // calls of it
  int64_t connections = 100;     // numbers of those that the partners begin

  void Post(std::function<void(Transport::Owner&)> event) {
    std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
  void Accept(int64_t id) {
    Post([id](Transport::Owner& owner) { owner.OnAccepted(ConnectionId(id)); });
  }
  void Say(int64_t id, Body body, SessionId session = SessionId(0)) {
    Post([id, bytes = Encode({session, std::move(body)})](Transport::Owner& owner) {
      owner.OnMessage(ConnectionId(id), bytes);
    });
  }
  // Returns when the partners do what they were told before: a turn may have begun by then.
  void AwaitTurn() {
    std::promise<void> turned;
    Post([&](Transport::Owner&) { turned.set_value(); });
    turned.get_future().wait();
  }
  template <class F>
  auto Look(F look) {
    std::lock_guard lock(mutex);
    return look(*this);
  }
  // A part has left.
  void Sent(size_t part) {
    const uint64_t cookie = Look([&](Network& n) { return n.parts.at(part).cookie; });
    Post([cookie](Transport::Owner& owner) { owner.OnSent(cookie, true); });
  }
  template <class F>
  bool Until(F holds) {
    const int64_t end_us = MonotonicUs() + 30'000'000;
    while (!Look(holds) && MonotonicUs() < end_us) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Look(holds);
  }
};

class PlayedTransport final : public Transport {
 public:
  PlayedTransport(Network& network, Owner& owner) : network_(network), owner_(owner) {}
  Result<uint16_t> Listen(const HostPort&) override { return uint16_t{1}; }
  Result<ConnectionId> Connect(const HostPort& to) override {
    std::lock_guard lock(network_.mutex);
    ++network_.connects;
    if (network_.looked_up-- > 0) return ConnectionId();
    network_.called.push_back(to);
    return ConnectionId(network_.connections++);
  }
  void Trust(ConnectionId id) override {
    std::lock_guard lock(network_.mutex);
    network_.trusted.insert(id);
  }
  void Send(ConnectionId to, std::string message) override {
    std::lock_guard lock(network_.mutex);
    network_.sent[to].push_back(*Decode(message));
  }
  void SendData(ConnectionId to, std::string header, Data data) override {
    std::lock_guard lock(network_.mutex);
    const size_t size = std::min<size_t>(data.size, 4096);
    network_.parts.push_back({to, *Decode(header), {data.bytes, data.bytes + size}, data.cookie});
  }
  void Close(ConnectionId id) override {
    std::lock_guard lock(network_.mutex);
    network_.closed.insert(id);
  }
  void Progress() override {
    std::deque<std::function<void(Owner&)>> now;
    {
      std::lock_guard lock(network_.mutex);
      now.swap(network_.events);
    }
    for (const auto& event : now) event(owner_);
  }
  void Wait(int32_t) override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
  void Wake() override {}

 private:
  Network& network_;
  Owner& owner_;
};

}  // namespace braid::handoff
