// Listening, the table of connections, deadlines and draining.
#include "server/http/http_server.h"

#include <fmt/core.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <deque>
#include <limits>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "server/http/await.h"
#include "server/http/connection.h"
#include "server/http/limits.h"
#include "server/http/tls.h"

namespace braid {
namespace {

using asio::ip::tcp;
constexpr auto kSweepEvery = std::chrono::milliseconds(100);
constexpr int64_t kFlushSeconds = 2;  // after draining, to send the error events
constexpr int kBacklog = 1024;
constexpr int64_t kFilesKept = 512;  // file descriptors kept for other uses
// Connections above the limits, for probes; a new one replaces the oldest.
constexpr size_t kReservedMax = 64;
constexpr int64_t kTrimBytes = 4 << 20;
constexpr int64_t kTrimEveryUs = 1'000'000;
constexpr int kTrims = 8;  // at most, after large holds

int64_t ConnectionsMax(const HttpOptions& options) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return options.connections_max;
  int64_t soft = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, 1 << 30));
  int64_t usable = soft > 2 * kFilesKept ? soft - kFilesKept : soft / 2;
  return std::min<int64_t>(options.connections_max, usable);
}

// How many connections the memory of the server has room for at present.
int64_t ConnectionsThatFit(HttpApi& api, bool tls) {
  const int64_t prepare = api.PrepareTimesBody() * static_cast<int64_t>(api.BodyBytesMax());
  return limits::ConnectionsIn(api.memory().stats().limit_bytes - prepare, tls);
}

}  // namespace

// One listening port.
struct Listener {
  explicit Listener(asio::io_context& io, bool admin) : acceptor(io), admin(admin) {}

  Status Open(asio::io_context& io, const std::string& host, uint16_t port);
  uint16_t port() const {
    boost::system::error_code error;
    return acceptor.local_endpoint(error).port();
  }

  tcp::acceptor acceptor;
  const bool admin;
  bool loopback = false;
};

bool IsLoopback(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

Status Listener::Open(asio::io_context& io, const std::string& host, uint16_t port) {
  const char* flag = admin ? "--admin-host" : "--host";
  boost::system::error_code error;
  tcp::resolver resolver(io);
  auto found = resolver.resolve(host, std::to_string(port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} {}: no address of this machine ({})", flag, host, error.message()),
                 "host"};
  }
  tcp::endpoint endpoint = *found.begin();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kBacklog, error);
  loopback = IsLoopback(endpoint.address());
  if (!error) return {};
  return Error{ErrorCode::kUnavailable,
               fmt::format("cannot listen on {}:{}: {}; choose another with {}, or 0 for any "
                           "free one",
                           host, port, error.message(), admin ? "--admin-port" : "--port"),
               "port"};
}

struct HttpServer::State {
  State(const HttpOptions& http_options, HttpApi& api)
      : options(http_options),
        connections_max(ConnectionsMax(http_options)),
        pool(static_cast<size_t>(http_options.prepare_threads)),
        bulk_pool(1),
        answer_pool(1),
        host{.options = http_options,
             .api = api,
             .pool = pool,
             .bulk_pool = bulk_pool,
             .answer_pool = answer_pool,
             .make_wake = [this](int64_t id) { return MakeWake(id); }},
        open_port(io, false),
        admin_port(io, true),
        sweeper(io) {}

  Wake MakeWake(int64_t id) {
    return [this, id] {
      asio::post(io, [this, id] {
        if (auto it = connections.find(id); it != connections.end()) it->second->Wake();
      });
    };
  }

  class Seat;
  Status Listen();
  asio::awaitable<void> Accept(Listener& listener);
  asio::awaitable<void> SweepForever();
  void Begin(tcp::socket socket, const Listener& listener);
  void BeginReserved(tcp::socket socket, HttpPeer peer);
  void Leave(int64_t id, const std::string& address);
  void Ended(const std::exception_ptr& failure);
  template <class Work>
  void Survive(Work work);
  void BeginDrain(int32_t seconds);
  void SweepOnce();
  void FinishDrainIfEmpty();
  void WatchMemory(int64_t now_us);

  const HttpOptions& options;
  const int64_t connections_max;
  asio::thread_pool pool, bulk_pool, answer_pool;
  // Raw pointers: a connection lives in its coroutine, which removes it here when it ends.
  std::unordered_map<int64_t, HttpConnection*> connections;
  std::unordered_map<std::string, int32_t> per_address;
  std::deque<int64_t> reserved;  // of `connections`, those beyond the limits, oldest first
  ConnectionHost host;
  asio::io_context io{1};
  Listener open_port, admin_port;
  asio::steady_timer sweeper;
  int64_t next_id = 0;
  int64_t drain_end_us = 0;  // 0: not draining
  int64_t next_trim_us = 0;
  int64_t kept_bytes = std::numeric_limits<int64_t>::max();  // resident after the last trim
  bool trimmed = false;                                      // since kept_bytes was measured
  int trims_due = 0;
  bool failed = false;  // a library has thrown in Survive
  bool ended_answers = false;
  bool drain_done = false;
  std::function<void()> on_drained;
  std::thread thread;
};

// What a connection counts for in the tables of the server, until it has ended.
class HttpServer::State::Seat {
 public:
  // `address` is empty beyond the limits.
  Seat(State& state, int64_t id, std::string address)
      : state_(state), id_(id), address_(std::move(address)) {
    if (!address_.empty()) ++state_.per_address[address_];
  }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat() { state_.Leave(id_, address_); }

 private:
  State& state_;
  const int64_t id_;
  const std::string address_;
};

Status HttpServer::State::Listen() {
  if (!options.tls.certificate.empty()) {
    ASSIGN_OR_RETURN(host.tls, LoadTls(options.tls));
  }
  RETURN_IF_ERROR(open_port.Open(io, options.host, options.port));
  if (options.admin_port < 0) return {};
  return admin_port.Open(io, options.admin_host, static_cast<uint16_t>(options.admin_port));
}

asio::awaitable<void> HttpServer::State::Accept(Listener& listener) {
  while (listener.acceptor.is_open()) {
    auto [error, socket] = co_await listener.acceptor.async_accept(kTuple);
    if (!error) {
      Survive([&] { Begin(std::move(socket), listener); });
    } else if (listener.acceptor.is_open()) {
      // Out of descriptors or a connection that was reset before we saw it.
      asio::steady_timer pause(io, std::chrono::milliseconds(50));
      co_await pause.async_wait(kTuple);
    }
  }
}

void HttpServer::State::Begin(tcp::socket socket, const Listener& listener) {
  boost::system::error_code error;
  tcp::endpoint remote = socket.remote_endpoint(error);
  if (error) return;
  HttpPeer peer{remote.address().to_string(), listener.admin, listener.loopback};
  const auto served = static_cast<int64_t>(connections.size() - reserved.size());
  const auto same = per_address.find(peer.address);
  const int64_t most = std::min(connections_max, ConnectionsThatFit(host.api, host.tls != nullptr));
  if (served >= most ||
      (same != per_address.end() && same->second >= options.connections_per_address_max)) {
    BeginReserved(std::move(socket), std::move(peer));
    return;
  }
  const int64_t id = next_id++;
  std::string address = peer.address;
  auto connection = std::make_unique<HttpConnection>(id, std::move(socket), std::move(peer), host);
  auto seat = std::make_unique<Seat>(*this, id, std::move(address));
  connections[id] = connection.get();
  auto run = [](std::unique_ptr<HttpConnection> self) -> asio::awaitable<void> {
    co_await self->Run();
  };
  auto end = [this, seat = std::move(seat)](const std::exception_ptr& failure) mutable {
    seat.reset();
    Ended(failure);
  };
  asio::co_spawn(io, run(std::move(connection)), std::move(end));
}

void HttpServer::State::BeginReserved(tcp::socket socket, HttpPeer peer) {
  if (reserved.size() >= kReservedMax) {
    connections.at(reserved.front())->Drop();
    reserved.pop_front();
  }
  const int64_t id = next_id++;
  auto connection = std::make_unique<HttpConnection>(id, std::move(socket), std::move(peer), host);
  auto seat = std::make_unique<Seat>(*this, id, std::string());
  connections[id] = connection.get();
  reserved.push_back(id);
  auto run = [](std::unique_ptr<HttpConnection> self) -> asio::awaitable<void> {
    co_await self->RunReserved("too many connections; try again");
  };
  auto end = [this, seat = std::move(seat)](const std::exception_ptr& failure) mutable {
    seat.reset();
    Ended(failure);
  };
  asio::co_spawn(io, run(std::move(connection)), std::move(end));
}

void HttpServer::State::Leave(int64_t id, const std::string& address) {
  connections.erase(id);
  std::erase(reserved, id);
  const auto it = per_address.find(address);
  if (it != per_address.end() && --it->second == 0) per_address.erase(it);
}

void HttpServer::State::Ended(const std::exception_ptr& failure) {
  if (failure) LogError("a library threw an exception; its connection was closed");
  FinishDrainIfEmpty();
}

// Libraries throw where memory is short. That must not end a loop that serves all connections.
template <class Work>
void HttpServer::State::Survive(Work work) {
  try {
    work();
  } catch (const std::exception& failure) {
    if (std::exchange(failed, true)) return;
    LogError("a library threw an exception: {}; the server goes on and does not log this again",
             failure.what());
  }
}

asio::awaitable<void> HttpServer::State::SweepForever() {
  for (;;) {
    sweeper.expires_after(kSweepEvery);
    co_await sweeper.async_wait(kTuple);
    Survive([&] { SweepOnce(); });
  }
}

void HttpServer::State::SweepOnce() {
  int64_t now_us = MonotonicUs();
  for (auto& [id, connection] : connections) connection->Sweep(now_us);
  WatchMemory(now_us);
  if (drain_end_us == 0 || now_us < drain_end_us) return;
  if (!ended_answers) {
    ended_answers = true;
    for (auto& [id, connection] : connections) connection->EndAnswer(EndReason::kDrained);
    drain_end_us = now_us + kFlushSeconds * 1'000'000;
  } else if (!drain_done) {
    drain_done = true;
    on_drained();
  }
}

// After many large requests the allocator keeps fragmented free memory, which malloc_trim returns.
// A hold ends before all that it stands for is freed, on several threads: the allocator is trimmed
// again as long as more is resident than a second after the last time.
void HttpServer::State::WatchMemory(int64_t now_us) {
  MemoryBudget& memory = host.api.memory();
  const int64_t resident = ResidentBytes();
  memory.NoteResident(resident);
  if (memory.TakePeak() > kTrimBytes) trims_due = kTrims;
  if (now_us < next_trim_us) return;
  if (std::exchange(trimmed, false)) kept_bytes = resident;
  kept_bytes = std::min(kept_bytes, resident);
  const MemoryBudget::Stats stats = memory.stats();
  const bool crowded =
      stats.process_limit_bytes > 0 && stats.resident_bytes > stats.process_limit_bytes / 10 * 9;
  const bool grown = stats.used_bytes < kTrimBytes && resident - kept_bytes > kTrimBytes;
  if (!crowded && !(grown && trims_due > 0)) return;
  next_trim_us = now_us + kTrimEveryUs;
  trimmed = true;
  trims_due = std::max(0, trims_due - 1);
  asio::post(bulk_pool, [] { ::malloc_trim(0); });
}

void HttpServer::State::BeginDrain(int32_t seconds) {
  if (drain_end_us != 0) return;
  boost::system::error_code ignored;
  open_port.acceptor.close(ignored);
  admin_port.acceptor.close(ignored);
  host.draining = true;
  drain_end_us = MonotonicUs() + int64_t{seconds} * 1'000'000 + 1;
  for (auto& [id, connection] : connections) connection->CloseIfIdle();
  FinishDrainIfEmpty();
}

void HttpServer::State::FinishDrainIfEmpty() {
  if (drain_end_us == 0 || drain_done || !connections.empty()) return;
  drain_done = true;
  on_drained();
}

std::string UrlOf(const HttpOptions& options, uint16_t port) {
  const std::string& host = options.host;
  const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return fmt::format("{}://{}:{}", options.tls.certificate.empty() ? "http" : "https", shown, port);
}

HttpServer::HttpServer(std::unique_ptr<State> state)
    : port_(state->open_port.port()),
      admin_port_(state->admin_port.port()),
      state_(std::move(state)) {
  state_->on_drained = [this] { FinishDrain(); };
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, HttpApi& api) {
  auto state = std::make_unique<State>(options, api);
  RETURN_IF_ERROR(state->Listen());
  State& started = *state;
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(state)));
  asio::co_spawn(started.io, started.Accept(started.open_port), asio::detached);
  if (options.admin_port >= 0) {
    asio::co_spawn(started.io, started.Accept(started.admin_port), asio::detached);
  }
  asio::co_spawn(started.io, started.SweepForever(), asio::detached);
  started.thread = std::thread([&started] {
    ::pthread_setname_np(::pthread_self(), "braid-http");
    started.io.run();
  });
  return server;
}

HttpServer::~HttpServer() { Stop(); }

asio::io_context::executor_type HttpServer::executor() const { return state_->io.get_executor(); }

void HttpServer::FinishDrain() {
  std::lock_guard lock(mutex_);
  drained_ = true;
  drained_changed_.notify_all();
}

void HttpServer::Drain(int32_t seconds) {
  std::unique_lock lock(mutex_);
  if (!state_) return;
  asio::post(state_->io, [state = state_.get(), seconds] { state->BeginDrain(seconds); });
  drained_changed_.wait(lock, [this] { return drained_; });
}

Status HttpServer::ReloadTls(const HttpOptions& options) {
  ASSIGN_OR_RETURN(auto loaded, LoadTls(options.tls));
  std::lock_guard lock(mutex_);
  if (!state_) return {};
  asio::post(state_->io, [state = state_.get(), loaded = std::move(loaded)]() mutable {
    state->host.tls = std::move(loaded);
  });
  return {};
}

void HttpServer::Stop() {
  std::unique_ptr<State> state;
  {
    std::lock_guard lock(mutex_);
    state = std::move(state_);
  }
  if (!state) return;
  state->io.stop();
  state->thread.join();
  state->pool.join();
  state->bulk_pool.join();
  state->answer_pool.join();
  FinishDrain();
}

}  // namespace braid
