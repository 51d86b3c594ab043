// One mutex guards what the ends share: their inboxes, who is connected to whom, and which sends
// are not over. A part's bytes are copied under it, so the sender's memory is there meanwhile.
#include "tests/handoff/loopback.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace braid::handoff {

class Loopback::End final : public Transport {
 public:
  End(Loopback& hub, Owner& owner, int64_t id)
      : hub_(hub), owner_(owner), id_(id), rng_(hub.faults_.seed + static_cast<uint64_t>(id)) {}
  ~End() override {
    while (!connections_.empty()) Close(connections_.begin()->first);
    std::lock_guard lock(hub_.mutex_);
    std::erase_if(hub_.listening_, [this](const auto& entry) { return entry.second == this; });
    hub_.ends_.erase(id_);
  }

  Result<uint16_t> Listen(const HostPort&) override {
    std::lock_guard lock(hub_.mutex_);
    const uint16_t port = hub_.ports_++;
    hub_.listening_[port] = this;
    return port;
  }

  Result<ConnectionId> Connect(const HostPort& to) override {
    std::lock_guard lock(hub_.mutex_);
    const ConnectionId here(connected_++);
    const auto at = hub_.listening_.find(to.port);
    if (at == hub_.listening_.end()) {
      connections_[here] = {};
      Put({Item::kLost, here});
      return here;
    }
    End& other = *at->second;
    const ConnectionId there(other.connected_++);
    connections_[here] = {&other, there};
    other.connections_[there] = {this, here};
    other.Put({Item::kAccepted, there});
    return here;
  }

  void Send(ConnectionId to, std::string message) override {
    std::lock_guard lock(hub_.mutex_);
    const auto at = connections_.find(to);
    if (at == connections_.end() || at->second.other == nullptr) return;
    const auto listens = [this](const auto& entry) { return entry.second == this; };
    if (hub_.mute && std::ranges::any_of(hub_.listening_, listens)) return;
    at->second.other->Put({Item::kMessage, at->second.there, std::move(message)});
  }

  void SendData(ConnectionId to, std::string header, Data data) override {
    std::lock_guard lock(hub_.mutex_);
    const auto at = connections_.find(to);
    if (at == connections_.end() || at->second.other == nullptr) {
      Item over{Item::kSent, to};
      over.send = data.cookie;
      return Put(std::move(over));
    }
    const uint64_t id = ++hub_.sends_;
    hub_.sending_[id] = {this, to, data};
    hub_.sending_most =
        std::max<int64_t>(hub_.sending_most, static_cast<int64_t>(hub_.sending_.size()));
    Item item{Item::kData, at->second.there, std::move(header)};
    item.send = id;
    item.size = data.size;
    at->second.other->Put(std::move(item));
  }

  void Trust(ConnectionId connection) override {
    std::lock_guard lock(hub_.mutex_);
    const auto at = connections_.find(connection);
    if (at != connections_.end()) at->second.trusted = true;
  }

  void Close(ConnectionId connection) override {
    std::lock_guard lock(hub_.mutex_);
    const auto at = connections_.find(connection);
    if (at == connections_.end()) return;
    const Link link = at->second;
    if (link.other != nullptr) {
      link.other->connections_[link.there].other = nullptr;
      link.other->Put({Item::kLost, link.there});
    }
    Forget(connection);
  }

  void Progress() override {
    ++turn_;
    for (size_t i = 0; i < writes_.size();) {
      if ((hub_.held || writes_[i].due > turn_) && Stands(writes_[i].at)) {
        ++i;
        continue;
      }
      const Write write = std::move(writes_[i]);
      writes_.erase(writes_.begin() + static_cast<std::ptrdiff_t>(i));
      const bool whole = Arrive(write);
      if (hub_.faults_.again)
        again_.push_back({turn_ + 1 + rng_.Below(40), write.at, write.head, write.size});
      owner_.OnReceived(write.place.cookie, whole);
    }
    for (size_t i = 0; i < again_.size();) {
      if (again_[i].due > turn_) {
        ++i;
        continue;
      }
      const Again again = std::move(again_[i]);
      again_.erase(again_.begin() + static_cast<std::ptrdiff_t>(i));
      ComeAgain(again);
    }
    std::set<ConnectionId> waiting;
    std::erase_if(held_, [&](const Item& item) {
      if (!waiting.contains(item.at) && TakeData(item)) return true;
      waiting.insert(item.at);
      return false;
    });
    while (std::optional<Item> item = Take()) Deliver(*item);
  }

  void Wait(int32_t most_ms) override {
    const auto most = writes_.empty() && again_.empty() && held_.empty()
                          ? std::chrono::microseconds(most_ms * 1000)
                          : std::chrono::microseconds(100);
    std::unique_lock lock(hub_.mutex_);
    changed_.wait_for(lock, most, [this] { return woken_ || !inbox_.empty(); });
    woken_ = false;
  }
  void Wake() override {
    std::lock_guard lock(hub_.mutex_);
    woken_ = true;
    changed_.notify_all();
  }

  // The mutex is held.
  void CutAll() {
    for (auto& [id, link] : connections_) {
      if (link.other == nullptr) continue;
      link.other = nullptr;
      Put({Item::kLost, id});
    }
  }

 private:
  struct Item {
    enum Kind : uint8_t { kAccepted, kLost, kMessage, kData, kSent };
    Kind kind;
    ConnectionId at;
    std::string text;   // or the head
    uint64_t send = 0;  // kSent: the cookie
    size_t size = 0;
    bool whole = false;
  };
  struct Link {
    End* other = nullptr;  // null: it does not stand
    ConnectionId there;
    bool trusted = false;
  };
  // A part that has a place and waits for its bytes.
  struct Write {
    int64_t due;
    ConnectionId at;
    std::string head;
    uint64_t send;
    size_t size;
    Place place;
  };
  struct Again {
    int64_t due;
    ConnectionId at;
    std::string head;
    size_t size;
  };

  void Put(Item item) {
    inbox_.push_back(std::move(item));
    changed_.notify_all();
  }
  std::optional<Item> Take() {
    std::lock_guard lock(hub_.mutex_);
    if (inbox_.empty()) return {};
    Item item = std::move(inbox_.front());
    inbox_.pop_front();
    return item;
  }
  bool Stands(ConnectionId connection) {
    std::lock_guard lock(hub_.mutex_);
    return connections_.contains(connection);
  }
  bool Trusted(ConnectionId connection) {
    std::lock_guard lock(hub_.mutex_);
    const auto at = connections_.find(connection);
    return at != connections_.end() && at->second.trusted;
  }
  // The connection, and with it what it sends. The mutex is held.
  void Forget(ConnectionId connection) {
    connections_.erase(connection);
    for (auto at = hub_.sending_.begin(); at != hub_.sending_.end();) {
      if (at->second.from != this || at->second.at != connection) {
        ++at;
        continue;
      }
      Item over{Item::kSent, connection};
      over.send = at->second.data.cookie;
      Put(std::move(over));
      at = hub_.sending_.erase(at);
    }
  }

  // Whether the bytes are in their place now.
  bool Arrive(const Write& write) {
    std::lock_guard lock(hub_.mutex_);
    const auto at = hub_.sending_.find(write.send);
    if (at == hub_.sending_.end() || !connections_.contains(write.at)) return false;
    const Sending sending = at->second;
    std::memcpy(write.place.data, sending.data.bytes, write.size);
    const int32_t damaged = hub_.faults_.damaged;
    if (damaged > 0 && rng_.Below(damaged) == 0) write.place.data[write.size / 2] ^= std::byte{8};
    hub_.written += static_cast<int64_t>(write.size);
    EndSend(at);
    return true;
  }
  void EndSend(std::map<uint64_t, Sending>::iterator at) {
    Item over{Item::kSent, at->second.at};
    over.send = at->second.data.cookie;
    over.whole = true;
    at->second.from->Put(std::move(over));
    hub_.sending_.erase(at);
  }

  void ComeAgain(const Again& again) {
    if (!Stands(again.at)) return;
    const Place place = owner_.OnData(again.at, again.head, again.size);
    ++(place.data == nullptr ? hub_.refused : hub_.taken);
    if (place.data == nullptr) return;
    std::memset(place.data, 0x5a, again.size);
    owner_.OnReceived(place.cookie, true);
  }

  void Deliver(const Item& item) {
    if (item.kind == Item::kSent) return owner_.OnSent(item.send, item.whole);
    if (!Stands(item.at)) return;
    switch (item.kind) {
      case Item::kAccepted:
        return owner_.OnAccepted(item.at);
      case Item::kMessage:
        return owner_.OnMessage(item.at, item.text);
      case Item::kLost: {
        {
          std::lock_guard lock(hub_.mutex_);
          Forget(item.at);
        }
        return owner_.OnLost(item.at, "the connection was cut");
      }
      default:
        break;
    }
    const auto of_it = [&](const Item& held) { return held.at == item.at; };
    if (std::ranges::any_of(held_, of_it) || !TakeData(item)) held_.push_back(item);
  }

  // False: it waits.
  bool TakeData(const Item& item) {
    if (!Stands(item.at)) return true;
    CHECK(Trusted(item.at), "pages on a connection that is not paired");
    const Place place = owner_.OnData(item.at, item.text, item.size);
    if (place.later) {
      ++hub_.waited;
      return false;
    }
    if (place.data != nullptr) {
      const int64_t due = turn_ + 1 + rng_.Below(hub_.faults_.delay_turns + 1);
      writes_.push_back({due, item.at, item.text, item.send, item.size, place});
      return true;
    }
    std::lock_guard lock(hub_.mutex_);
    const auto at = hub_.sending_.find(item.send);
    if (at != hub_.sending_.end()) EndSend(at);
    return true;
  }

  Loopback& hub_;
  Owner& owner_;
  const int64_t id_;
  Rng rng_;
  int64_t turn_ = 0;
  std::vector<Write> writes_;
  std::deque<Item> held_;  // parts for which there was no place yet
  std::vector<Again> again_;
  // Guarded by the mutex.
  std::condition_variable changed_;
  std::deque<Item> inbox_;
  std::map<ConnectionId, Link> connections_;
  int64_t connected_ = 0;
  bool woken_ = false;
};

Loopback::~Loopback() { CHECK(ends_.empty(), "{} transports outlive their hub", ends_.size()); }

Loopback::Maker Loopback::maker() {
  return [this](Transport::Owner& owner) -> Result<std::unique_ptr<Transport>> {
    std::lock_guard lock(mutex_);
    auto end = std::make_unique<End>(*this, owner, made_++);
    ends_[made_ - 1] = end.get();
    return std::unique_ptr<Transport>(std::move(end));
  };
}

void Loopback::Cut() {
  std::lock_guard lock(mutex_);
  for (const auto& [id, end] : ends_) end->CutAll();
}

}  // namespace braid::handoff
