// The engines behind the router: whether each is ready, its connections, its load, and the choice
// among them. Asks every engine again and again; each answer is a lease, and an engine whose lease
// has run out is lost: what runs there ends at once. One at whose address nobody listens gets
// nothing new, and what runs there ends with its connections. Engines are those of the
// configuration and those that registered; one that does not renew its registration leaves, and
// finishes what it has.
// Network thread only, but for the constructor.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "router/breaker.h"
#include "router/placement/placer.h"
#include "router/registration/registration.h"
#include "router/router_config.h"
#include "router/router_metrics.h"
#include "router/upstream.h"

namespace braid {

class Stay;

struct FleetEngine {
  enum class State : uint8_t { kUnknown, kReady, kNotReady, kLost };

  FleetEngine(int32_t engine, EngineAddress engine_address,
              RouterMetrics::Engine& metrics_of_engine)
      : number(engine), address(std::move(engine_address)), metrics(metrics_of_engine) {}
  // Its watch asks it now, or again as soon as the question under way has ended.
  void AskNow() {
    ask_now = true;
    if (timer != nullptr) timer->cancel();
  }
  // IP:PORT, for gateways, which resolve no names.
  std::string destination() const { return reached.empty() ? address.authority() : reached; }

  const int32_t number;
  int32_t source = -1;  // of its events, since their address was told last
  EngineAddress address;
  std::optional<Registration> registration;  // none: it is in the configuration
  int64_t registered_until_us = 0;
  RouterMetrics::Engine& metrics;
  State state = State::kUnknown;
  std::string why = "not asked yet";  // why it is not ready
  bool draining = false;              // an admin keeps new requests away
  bool removed = false;               // it gets nothing more and is forgotten when it is done
  bool capacity_known = false;
  Breaker breaker;
  int64_t lease_until_us = 0;
  NameLookup names{[] {}};  // its own: a name that has no answer delays no other engine
  Upstream::Endpoints endpoints;
  std::string reached;  // which of them it answered at, as "10.0.0.1:8000"
  std::vector<UpstreamPointer> idle;
  std::set<Stay*> stays;
  int64_t backlog_tokens = 0;           // of our requests there, before their first bytes
  int64_t others_requests = 0;          // requests there that are not ours
  int32_t load_status = 0;              // of its last answer about its load; 401: its key is wrong
  asio::steady_timer* timer = nullptr;  // of its watch: until it is asked again
  bool ask_now = false;                 // since its last question began
};

// A request's stay at an engine: part of its load, and ended when the engine is lost.
class Stay {
 public:
  // `tokens` of its prompt are to be computed.
  Stay(FleetEngine& engine, int64_t tokens);
  ~Stay();
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

  // The connection that is closed when the engine is lost; null: none.
  void Use(Upstream* upstream) { upstream_ = upstream; }
  bool connected() const { return upstream_ != nullptr; }
  void FirstByte();
  // How it ended, for the breaker; a stay that ends without either says nothing.
  void Succeeded();
  void Failed();
  void EngineLost();
  bool lost() const { return lost_; }
  FleetEngine& engine() { return engine_; }

 private:
  FleetEngine& engine_;
  Upstream* upstream_ = nullptr;
  int64_t tokens_;
  Breaker::Trial trial_;
  bool lost_ = false;
};

class Fleet {
 public:
  Fleet(RouterConfig config, RouterMetrics& metrics);

  // Begins to ask the engines. Once.
  void Start(const asio::any_io_executor& executor);
  // Uses another configuration. Engines that stay keep what is known of them; those that are gone
  // finish what they have.
  void Apply(RouterConfig config);
  // An engine registers, renews its registration, or ends it. The error says why it may not.
  Result<RegistrationLease> Register(const Registration& registration);
  // Closes the idle connections and keeps none from now on; nothing more is read of caches.
  void Close();

  const RouterConfig& config() const { return config_; }
  RouterMetrics& metrics() { return metrics_; }
  Placer& placer() { return placer_; }

  struct Chosen {
    FleetEngine* engine = nullptr;  // null: none is ready
    Placer::Choice choice;
  };
  // Not one of `tried`.
  Chosen Choose(const PromptKeys& prompt, std::span<const int32_t> tried);
  // Whether Choose would find another one.
  bool HasOther(std::span<const int32_t> tried) const;
  // The engines whose destination is none of these, separated by commas; as `tried`, they bound a
  // choice to the rest.
  std::vector<int32_t> Outside(std::string_view destinations) const;
  // Of the engines that may take a request and are not `tried`, those with the fewest requests
  // first: their destinations.
  std::vector<std::string> Others(std::span<const int32_t> tried) const;
  // Whether an engine that says that it is ready gets nothing now, because its connections fail.
  bool HasPaused() const;

  // An open connection, from those that are idle or a new one; null: `why` says why not.
  asio::awaitable<UpstreamPointer> Connect(FleetEngine& engine, bool fresh, std::string* why);
  void Return(FleetEngine& engine, UpstreamPointer upstream);

  void Count(Stay& stay, RouterMetrics::Failure failure);
  // Why no engine but those excluded can take a request: "a: connection refused; b: loading".
  std::string WhyNone(std::span<const int32_t> excluded = {}) const;
  bool AnyReady() const;
  // Keeps new requests away from an engine, or no longer. False: there is no such engine.
  bool SetDraining(std::string_view name, bool draining);
  json::array Json() const;

 private:
  bool MayTake(const FleetEngine& engine, int64_t now_us) const;
  FleetEngine& Add(const EngineAddress& address);
  // Keeps new requests away for good; the watch forgets it when its last answer has ended.
  void Remove(FleetEngine& engine, std::string_view why);
  void EndRegistrations();
  // Reads what it says of its cache, from the beginning; or no longer.
  void ReadEvents(FleetEngine& engine);
  void IgnoreEvents(const FleetEngine& engine);
  Status CheckRegistration(const Registration& registration);
  FleetEngine* Find(std::string_view name);
  asio::awaitable<void> Watch(FleetEngine& engine);
  asio::awaitable<void> Ask(FleetEngine& engine, Upstream& upstream);
  asio::awaitable<std::string> Reach(FleetEngine& engine, Upstream& upstream);
  asio::awaitable<bool> AskReady(FleetEngine& engine, Upstream& upstream);
  asio::awaitable<void> AskLoad(FleetEngine& engine, Upstream& upstream);
  asio::awaitable<void> AskCapacity(FleetEngine& engine, Upstream& upstream);
  void SetState(FleetEngine& engine, FleetEngine::State state, std::string why);
  void EraseIfGone(FleetEngine* engine);
  // How long it may take to answer: until the end of its lease, or as long as one if it has none.
  int32_t LeftMs(const FleetEngine& engine) const;

  RouterConfig config_;
  RouterMetrics& metrics_;
  Placer placer_;
  asio::any_io_executor executor_;
  std::vector<std::unique_ptr<FleetEngine>> engines_;
  int32_t next_number_ = 0;
  bool closed_ = false;
  bool no_events_ = false;          // the library for them is not there
  std::atomic<int64_t> unread_{0};  // size of the events on their way to the network thread
  std::atomic<bool> ignores_{false};
  // Engines by sources: what comes late of a source that an engine had before concerns nobody.
  std::map<int32_t, int32_t> sources_;
  int32_t next_source_ = 0;
  std::unique_ptr<kv::Subscriber> subscriber_;  // null: no engine has events
};

}  // namespace braid
