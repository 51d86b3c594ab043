// Questions to an engine go over a connection of their own, so that they do not wait behind work.
#include "router/fleet.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/text/named_lines.h"
#include "server/http/await.h"

namespace braid {
namespace {

using State = FleetEngine::State;
using asio::ip::tcp;
constexpr int64_t kBlocksUntilKnown = 1 << 17;
constexpr int64_t kBlocksMax = 1 << 22;
constexpr size_t kIdleMax = 1024;
constexpr int64_t kUnreadMax = 1 << 24;  // hashes and tokens
constexpr std::chrono::milliseconds kUnreadWait{1};
// Engines close a connection that was idle for 75 s.
constexpr int64_t kIdleUs = 60'000'000;

// Of a batch of events: about what it takes in memory, in hashes and tokens.
int64_t SizeOf(const kv::EventBatch& batch) {
  constexpr int64_t kEmpty = 64;
  int64_t size = kEmpty;
  for (const auto& event : batch.events) {
    if (const auto* stored = std::get_if<kv::BlocksStored>(&event)) {
      size += kEmpty + std::ssize(stored->hashes) + std::ssize(stored->tokens);
    } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event)) {
      size += kEmpty + std::ssize(removed->hashes);
    } else {
      size += kEmpty;
    }
  }
  return size;
}

std::string_view NameOf(State state) {
  constexpr std::string_view kNames[] = {"unknown", "ready", "not_ready", "lost"};
  return kNames[static_cast<size_t>(state)];
}

std::string Question(const FleetEngine& engine, std::string_view path) {
  const std::string& key = engine.address.key;
  return fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n{}\r\n", path, engine.address.authority(),
                     key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", key));
}

// The sum of a number over the ranks of a /v1/loads.
int64_t SumOf(const json::value& loads, std::string_view name) {
  int64_t sum = 0;
  const json::value* list = loads.is_object() ? loads.get_object().if_contains("loads") : nullptr;
  if (list == nullptr || !list->is_array()) return 0;
  for (const json::value& rank : list->get_array()) {
    const json::value* number = rank.is_object() ? rank.get_object().if_contains(name) : nullptr;
    if (number != nullptr && number->is_int64()) sum += std::max<int64_t>(0, number->get_int64());
  }
  return sum;
}

// The number in a label: num_gpu_blocks="120"; 0: none.
int64_t LabelNumber(std::string_view line, std::string_view label) {
  const std::string start = fmt::format("{}=\"", label);
  const size_t at = line.find(start);
  if (at == std::string_view::npos) return 0;
  int64_t number = 0;
  const char* first = line.data() + at + start.size();
  const auto [end, code] = std::from_chars(first, line.data() + line.size(), number);
  return code == std::errc() && number > 0 ? number : 0;
}

// The tokens that an engine's cache holds, from its metrics, under its name or vLLM's; 0: unknown.
int64_t CapacityTokens(std::string_view metrics) {
  const size_t at = metrics.find(":cache_config_info{");
  if (at == std::string_view::npos) return 0;
  const std::string_view line = metrics.substr(at, metrics.find('\n', at) - at);
  const int64_t blocks = LabelNumber(line, "num_gpu_blocks");
  const int64_t size = LabelNumber(line, "block_size");
  return blocks > (int64_t{1} << 40) || size > (1 << 20) ? 0 : blocks * size;
}

}  // namespace

Stay::Stay(FleetEngine& engine, int64_t tokens)
    : engine_(engine), tokens_(tokens), trial_(engine.breaker.Begin(MonotonicUs())) {
  engine_.stays.insert(this);
  engine_.backlog_tokens += tokens_;
  engine_.metrics.requests->Increment();
}

Stay::~Stay() {
  FirstByte();
  engine_.breaker.Withdraw(trial_, MonotonicUs());
  engine_.stays.erase(this);
  engine_.metrics.requests->Decrement();
  // An engine that is gone from the configuration is waited for by its watch.
  if (engine_.removed && engine_.stays.empty()) engine_.AskNow();
}

void Stay::FirstByte() {
  engine_.backlog_tokens -= tokens_;
  tokens_ = 0;
}

void Stay::Succeeded() { engine_.breaker.Succeeded(std::exchange(trial_, Breaker::kNone)); }

void Stay::Failed() {
  engine_.breaker.Failed(std::exchange(trial_, Breaker::kNone), MonotonicUs());
}

void Stay::EngineLost() {
  lost_ = true;
  if (upstream_ != nullptr) upstream_->Close();
}

Fleet::Fleet(RouterConfig config, RouterMetrics& metrics)
    : config_(std::move(config)), metrics_(metrics), placer_(config_.policy) {}

void Fleet::Start(const asio::any_io_executor& executor) {
  executor_ = executor;
  for (const EngineAddress& address : config_.engines) Add(address);
}

FleetEngine& Fleet::Add(const EngineAddress& address) {
  engines_.push_back(
      std::make_unique<FleetEngine>(next_number_++, address, metrics_.ForEngine(address.name)));
  FleetEngine& engine = *engines_.back();
  placer_.AddEngine(engine.number, kBlocksUntilKnown);
  engine.metrics.ready->Set(0);
  asio::co_spawn(executor_, Watch(engine), asio::detached);
  ReadEvents(engine);
  return engine;
}

void Fleet::ReadEvents(FleetEngine& engine) {
  IgnoreEvents(engine);
  if (engine.address.events.events.empty() || engine.removed || no_events_ || closed_) return;
  if (subscriber_ == nullptr) {
    auto started = kv::Subscriber::Start([this](int32_t source, kv::EventBatch batch) {
      // Behind a network thread that is busy, publishers' sockets fill up.
      while (unread_ >= kUnreadMax && !ignores_) std::this_thread::sleep_for(kUnreadWait);
      const int64_t size = SizeOf(batch);
      unread_ += size;
      asio::post(executor_, [this, source, size, read = std::move(batch)] {
        unread_ -= size;
        const auto engine = sources_.find(source);
        if (engine != sources_.end()) placer_.Held(engine->second, read);
      });
    });
    if (!started) {
      LogWarning("caches are known by what was sent there only: {}", started.error().message);
      no_events_ = true;
      return;
    }
    subscriber_ = *std::move(started);
  }
  engine.source = next_source_++;
  sources_[engine.source] = engine.number;
  subscriber_->Add(engine.source, engine.address.events);
}

void Fleet::IgnoreEvents(const FleetEngine& engine) {
  if (sources_.erase(engine.source) == 0) return;
  subscriber_->Remove(engine.source);
  placer_.Held(engine.number, {.dp_rank = -1, .events = {kv::BlocksCleared{}}});
}

void Fleet::Remove(FleetEngine& engine, std::string_view why) {
  IgnoreEvents(engine);
  LogInfo("engine {} gets no more requests: {}", engine.address.name, why);
  engine.removed = true;
  engine.idle.clear();
  engine.metrics.ready->Set(0);
  engine.AskNow();
}

void Fleet::Apply(RouterConfig config) {
  config_ = std::move(config);
  placer_.SetPolicy(config_.policy);
  for (const auto& engine : engines_) {
    if (engine->removed) continue;
    const auto at = std::ranges::find_if(config_.engines, [&](const EngineAddress& address) {
      return address.name == engine->address.name ||
             address.authority() == engine->address.authority();
    });
    const bool there = at != config_.engines.end();
    const bool same =
        there && at->name == engine->address.name && at->authority() == engine->address.authority();
    if (engine->registration) {
      engine->address.key = config_.engine_key;
      if (there) {
        Remove(*engine, "the configuration has its name or address");
      } else if (!config_.registration) {
        Remove(*engine, "registration is off");
      }
    } else if (same) {
      engine->address.key = at->key;
      if (at->events != engine->address.events) {
        engine->address.events = at->events;
        placer_.Forget(engine->number);
        ReadEvents(*engine);
      }
    } else {
      Remove(*engine, "it is gone from the configuration");
    }
    engine->AskNow();
  }
  for (const EngineAddress& address : config_.engines) {
    if (Find(address.name) == nullptr) Add(address);
  }
}

FleetEngine* Fleet::Find(std::string_view name) {
  const auto at = std::ranges::find_if(engines_, [&](const auto& engine) {
    return !engine->removed && engine->address.name == name;
  });
  return at == engines_.end() ? nullptr : at->get();
}

void Fleet::EndRegistrations() {
  const int64_t now_us = MonotonicUs();
  for (const auto& engine : engines_) {
    if (engine->removed || !engine->registration || now_us < engine->registered_until_us) continue;
    Remove(*engine, "it has not renewed its registration");
  }
}

// Whether it goes together with the engines that are there. Those that it takes the place of,
// former processes at its address, leave.
Status Fleet::CheckRegistration(const Registration& registration) {
  const EngineAddress& at = registration.address;
  const auto no = [](std::string why) { return Error{ErrorCode::kInvalid, std::move(why)}; };
  std::vector<FleetEngine*> former;
  size_t others = 0;
  for (const auto& engine : engines_) {
    if (engine->removed) continue;
    const bool same_name = engine->address.name == at.name;
    const bool same_url = engine->address.authority() == at.authority();
    if (!engine->registration) {
      if (same_name || same_url) {
        return no(fmt::format("engine {} at http://{} is in the router's configuration",
                              engine->address.name, engine->address.authority()));
      }
      ++others;
      continue;
    }
    const Registration& other = *engine->registration;
    const bool later = same_url && registration.generation > other.generation;
    const bool renews = same_url && same_name && registration.generation == other.generation;
    if (later) former.push_back(engine.get());
    if (later || renews) continue;
    if (same_url) {
      return no(fmt::format("{} registered at http://{} after this engine's start",
                            engine->address.name, at.authority()));
    }
    if (same_name) {
      return no(
          fmt::format("another engine, at http://{}, is registered as {}; each needs a "
                      "--register-name of its own",
                      engine->address.authority(), at.name));
    }
    const auto differs = FirstDifference(registration.fingerprint, other.fingerprint);
    if (differs) {
      return no(
          fmt::format("{} is {} here and {} at engine {}; all engines of a router serve the "
                      "same model",
                      differs->name, differs->first, differs->second, other.address.name));
    }
    ++others;
  }
  if (others >= kEnginesMax) return no(fmt::format("the router has {} engines, its most", others));
  for (FleetEngine* engine : former) Remove(*engine, "another process runs at its address");
  return {};
}

Result<RegistrationLease> Fleet::Register(const Registration& registration) {
  // The server listens a moment before the fleet starts.
  if (!executor_) return Error{ErrorCode::kUnavailable, "the router is starting; try again"};
  EndRegistrations();
  FleetEngine* known = Find(registration.address.name);
  if (registration.leaves) {
    const bool itself = known != nullptr && known->registration &&
                        known->registration->generation == registration.generation &&
                        known->address.authority() == registration.address.authority();
    if (itself) Remove(*known, "it leaves");
    return RegistrationLease{.lease_ms = config_.lease_ms, .prefills = {}};
  }
  RETURN_IF_ERROR(CheckRegistration(registration));
  known = Find(registration.address.name);
  if (known == nullptr) {
    EngineAddress address = registration.address;
    address.key = config_.engine_key;
    known = &Add(address);
    LogInfo("engine {} registered from http://{}", address.name, address.authority());
  }
  known->registration = registration;
  known->registered_until_us = MonotonicUs() + int64_t{config_.lease_ms} * 1000;
  RegistrationLease lease{.lease_ms = config_.lease_ms, .prefills = {}};
  for (const auto& engine : engines_) {
    const bool prefills = engine->registration && engine->registration->prefills;
    if (prefills && !engine->removed) lease.prefills.push_back(engine->registration->handoff);
  }
  return lease;
}

void Fleet::Close() {
  closed_ = true;
  ignores_ = true;
  sources_.clear();
  subscriber_.reset();
  for (const auto& engine : engines_) {
    engine->idle.clear();
    engine->timer = nullptr;  // it ends with its watch, and that with the network's thread
  }
}

asio::awaitable<UpstreamPointer> Fleet::Connect(FleetEngine& engine, bool fresh, std::string* why) {
  const int64_t oldest_us = MonotonicUs() - kIdleUs;
  while (!fresh && !engine.idle.empty()) {
    UpstreamPointer upstream = std::move(engine.idle.back());
    engine.idle.pop_back();
    if (upstream->idle_since_us < oldest_us) {
      engine.idle.clear();  // those before it are older
    } else if (!upstream->Stale()) {
      upstream->reused = true;
      co_return upstream;
    }
  }
  auto upstream = std::make_unique<Upstream>(executor_);
  *why = co_await upstream->Open(engine.endpoints, config_.connect_ms);
  if (!why->empty()) co_return nullptr;
  co_return upstream;
}

void Fleet::Return(FleetEngine& engine, UpstreamPointer upstream) {
  if (closed_ || engine.removed || engine.idle.size() >= kIdleMax) return;
  upstream->idle_since_us = MonotonicUs();
  engine.idle.push_back(std::move(upstream));
}

void Fleet::Count(Stay& stay, RouterMetrics::Failure failure) {
  FleetEngine& engine = stay.engine();
  engine.metrics.failures[static_cast<size_t>(failure)]->Increment();
  if (failure == RouterMetrics::Failure::kRefused) return;
  stay.Failed();
  // The watch finds out sooner whether the engine is there at all.
  engine.AskNow();
}

bool Fleet::SetDraining(std::string_view name, bool draining) {
  FleetEngine* engine = Find(name);
  if (engine == nullptr) return false;
  engine->draining = draining;
  return true;
}

json::array Fleet::Json() const {
  json::array list;
  const int64_t now_us = MonotonicUs();
  for (const auto& engine : engines_) {
    const bool ready = engine->state == State::kReady;
    const auto& registration = engine->registration;
    // Rounded up: 0 says that it takes nothing new.
    const int64_t left_us = std::max<int64_t>(0, engine->registered_until_us - now_us);
    const int64_t left_ms = (left_us + 999) / 1000;
    list.push_back(
        json::object{{"name", engine->address.name},
                     {"url", fmt::format("http://{}", engine->address.authority())},
                     {"state", NameOf(engine->state)},
                     {"reason", ready ? json::value(nullptr) : json::value(engine->why)},
                     {"draining", engine->draining},
                     {"removed", engine->removed},
                     {"registered", registration.has_value()},
                     {"registered_ms_left", registration ? json::value(left_ms) : nullptr},
                     {"version", registration ? json::value(registration->program) : nullptr},
                     {"prefills", registration && registration->prefills},
                     {"breaker_open", !engine->breaker.closed()},
                     {"requests", engine->stays.size()},
                     {"other_requests", engine->others_requests},
                     {"load_status", engine->load_status},
                     {"backlog_tokens", engine->backlog_tokens},
                     {"idle_connections", engine->idle.size()},
                     {"prefix_blocks", placer_.prefix_blocks(engine->number)},
                     {"held_blocks", placer_.held_blocks(engine->number)}});
  }
  return list;
}

void Fleet::SetState(FleetEngine& engine, State state, std::string why) {
  if (engine.state != state) {
    if (state == State::kReady) {
      LogInfo("engine {} is ready", engine.address.name);
    } else {
      LogWarning("engine {} is {}: {}", engine.address.name, NameOf(state), why);
    }
  }
  engine.state = state;
  engine.why = std::move(why);
  // Another engine may have its name by now.
  if (!engine.removed) engine.metrics.ready->Set(state == State::kReady ? 1 : 0);
  if (state == State::kLost) engine.idle.clear();
}

int32_t Fleet::LeftMs(const FleetEngine& engine) const {
  // Up, so that who waited so long finds the lease ended.
  const int64_t left_ms = (engine.lease_until_us - MonotonicUs() + 999) / 1000;
  if (left_ms > 0) return static_cast<int32_t>(left_ms);
  return engine.state == State::kLost ? config_.lease_ms
                                      : std::min(config_.probe_ms, config_.lease_ms);
}

asio::awaitable<void> Fleet::Watch(FleetEngine& engine) {
  Upstream upstream(executor_);
  asio::steady_timer timer(executor_);
  engine.timer = &timer;
  engine.lease_until_us = MonotonicUs() + int64_t{config_.lease_ms} * 1000;
  // An engine that was removed is watched until it has finished what it has.
  while (!closed_ && !(engine.removed && engine.stays.empty())) {
    engine.ask_now = false;
    co_await Ask(engine, upstream);
    EndRegistrations();
    if (engine.ask_now) continue;
    timer.expires_after(std::chrono::milliseconds(config_.probe_ms));
    co_await timer.async_wait(kTuple);
  }
  engine.timer = nullptr;
  EraseIfGone(&engine);
}

void Fleet::EraseIfGone(FleetEngine* engine) {
  if (closed_ || !engine->removed) return;
  const std::string name = engine->address.name;
  LogInfo("engine {} has finished and is forgotten", name);
  placer_.RemoveEngine(engine->number);
  std::erase_if(engines_, [&](const auto& other) { return other.get() == engine; });
  const bool again =
      std::ranges::any_of(engines_, [&](const auto& other) { return other->address.name == name; });
  if (!again) metrics_.Forget(name);
}

// Opens the connection if it is not. Why it cannot; empty: it is open.
asio::awaitable<std::string> Fleet::Reach(FleetEngine& engine, Upstream& upstream) {
  if (upstream.socket.is_open() && !upstream.Stale()) co_return std::string();
  const HostPort host_port{engine.address.host, engine.address.port};
  std::string why =
      co_await FindEndpoints(engine.names, host_port, std::min(config_.connect_ms, LeftMs(engine)),
                             &engine.endpoints);
  if (!why.empty()) co_return why;
  why = co_await upstream.Open(engine.endpoints, std::min(config_.connect_ms, LeftMs(engine)));
  if (why.empty()) {
    boost::system::error_code ended;
    const tcp::endpoint at = upstream.socket.remote_endpoint(ended);
    if (!ended) engine.reached = EngineAddress{{}, at.address().to_string(), at.port()}.authority();
    // Requests go there without trying those that do not answer.
    std::ranges::stable_partition(engine.endpoints, [&](const auto& one) { return one == at; });
  }
  co_return why;
}

asio::awaitable<void> Fleet::Ask(FleetEngine& engine, Upstream& upstream) {
  const std::string why = co_await Reach(engine, upstream);
  bool alive = why.empty();
  if (alive) alive = co_await AskReady(engine, upstream);
  if (alive) {
    engine.lease_until_us = MonotonicUs() + int64_t{config_.lease_ms} * 1000;
    if (engine.state == State::kReady) {
      co_await AskLoad(engine, upstream);
      if (!engine.capacity_known) co_await AskCapacity(engine, upstream);
    }
    co_return;
  }
  upstream.Close();
  const bool nobody = why == boost::system::error_code(asio::error::connection_refused).message();
  if (nobody && engine.state != State::kLost) {
    // The process is gone and its cache with it.
    placer_.Forget(engine.number);
    ReadEvents(engine);
    engine.capacity_known = false;
  }
  if (!nobody && MonotonicUs() < engine.lease_until_us) co_return;
  SetState(engine, State::kLost,
           !why.empty() ? why : fmt::format("silent for {} ms", config_.lease_ms));
  // An engine that drains does not listen any more and finishes the requests that it has: their
  // connections end with its process.
  for (Stay* stay : engine.stays) {
    if (!nobody || !stay->connected()) stay->EngineLost();
  }
}

// False if it does not answer.
asio::awaitable<bool> Fleet::AskReady(FleetEngine& engine, Upstream& upstream) {
  const SmallAnswer answer =
      co_await AskSmall(upstream, Question(engine, "/ready"), LeftMs(engine));
  if (answer.status == 0) co_return false;
  if (answer.status == 200) {
    SetState(engine, State::kReady, "");
  } else {
    SetState(engine, State::kNotReady, ErrorIn(answer, "/ready"));
  }
  co_return true;
}

asio::awaitable<void> Fleet::AskLoad(FleetEngine& engine, Upstream& upstream) {
  if (!upstream.socket.is_open()) co_return;
  const SmallAnswer answer =
      co_await AskSmall(upstream, Question(engine, "/v1/loads"), LeftMs(engine));
  if (answer.status == 0) upstream.Close();
  engine.load_status = answer.status;
  if (answer.status != 200) co_return;
  const Result<json::value> loads = ParseJson(answer.body, "loads");
  if (!loads) co_return;
  const int64_t all = SumOf(*loads, "num_running_reqs") + SumOf(*loads, "num_waiting_reqs");
  engine.others_requests = std::max<int64_t>(0, all - std::ssize(engine.stays));
}

asio::awaitable<void> Fleet::AskCapacity(FleetEngine& engine, Upstream& upstream) {
  if (!upstream.socket.is_open()) co_return;
  const SmallAnswer answer =
      co_await AskSmall(upstream, Question(engine, "/metrics"), LeftMs(engine));
  if (answer.status == 0) upstream.Close();
  const int64_t tokens = CapacityTokens(answer.body);
  if (answer.status != 200 || tokens < kTextBlockTokens) co_return;
  engine.capacity_known = true;
  placer_.SetCapacity(engine.number, std::min(tokens / kTextBlockTokens, kBlocksMax));
}

}  // namespace braid
