// A coroutine for each router. What is said of a router is logged when it changes.
#include "router/registration/announcer.h"

#include <fmt/core.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/system/file.h"
#include "router/upstream.h"
#include "server/http/await.h"

namespace braid {
namespace {

constexpr int32_t kConnectMs = 1000, kAnswerMs = 2000, kLeaveMs = 400, kStopMs = 1000;
constexpr int32_t kAgainMs = 1000;  // after a failure
constexpr size_t kKeyFileBytesMax = 512;

std::string HostPortOf(const std::string& host, uint16_t port) {
  return EngineAddress{.name = {}, .host = host, .port = port, .key = {}}.authority();
}

// The address at which others reach a listener: `own` where it listens at all.
std::string Reachable(const std::string& host, const std::string& own) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host, error);
  return host == "*" || (!error && address.is_unspecified()) ? own : host;
}

// The same of "tcp://HOST:PORT".
std::string ReachableUrl(const std::string& url, const std::string& own) {
  constexpr std::string_view kScheme = "tcp://";
  EngineAddress at;
  if (!ReadEngineUrl("http" + url.substr(std::min<size_t>(3, url.size())), "", &at)) return url;
  return fmt::format("{}{}", kScheme, HostPortOf(Reachable(at.host, own), at.port));
}

}  // namespace

struct Announcer::State {
  struct Router {
    EngineAddress address;
    std::string said;                        // in the log, last
    int32_t lease_ms = 0;                    // > 0: it has this engine
    std::vector<std::string> prefills = {};  // that it named last
    asio::steady_timer timer;
    Upstream::Endpoints endpoints = {};  // where it was last: a later lookup may be slow
    std::unique_ptr<NameLookup> names;   // its own: a name without answer delays no other router
  };

  explicit State(AnnouncerOptions o) : options(std::move(o)) {
    for (const EngineAddress& address : options.routers) {
      routers.push_back(std::make_unique<Router>(
          Router{.address = address,
                 .said = {},
                 .timer = asio::steady_timer(io),
                 .names = std::make_unique<NameLookup>([] {}, options.resolver)}));
    }
  }
  asio::awaitable<void> Announce(Router& router);
  asio::awaitable<void> Renew(Router& router);
  asio::awaitable<std::string> Tell(Router& router);
  std::vector<std::string> Prefills() const;
  std::string Request(const Router& router, const std::string& own_host) const;
  void Say(Router& router, bool good, const std::string& what);

  AnnouncerOptions options;
  asio::io_context io;
  std::vector<std::unique_ptr<Router>> routers;
  bool leaves = false;
  size_t ended = 0;  // of the routers' coroutines
  asio::steady_timer last{io};
  std::thread thread;
};

std::string Announcer::State::Request(const Router& router, const std::string& own_host) const {
  Registration registration = options.registration;
  registration.leaves = leaves;
  registration.address.host = Reachable(registration.address.host, own_host);
  if (options.handoff_port != 0) {
    registration.prefills = true;
    registration.handoff =
        HostPortOf(Reachable(options.handoff_host, own_host), options.handoff_port);
  }
  for (std::string* url :
       {&registration.address.events.events, &registration.address.events.replay}) {
    *url = ReachableUrl(*url, own_host);
  }
  std::string key;
  if (!options.key_file.empty()) {
    if (const Result<std::string> text = ReadFile(options.key_file, kKeyFileBytesMax)) key = *text;
    std::erase_if(key, [](char c) { return c <= ' ' || c >= 127; });
  }
  const std::string body = EncodeRegistration(registration);
  return fmt::format(
      "PUT /engines/{} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      registration.address.name, router.address.authority(),
      key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", key), body.size(), body);
}

void Announcer::State::Say(Router& router, bool good, const std::string& what) {
  if (router.said == what) return;
  router.said = what;
  const std::string line = fmt::format("router {}: {}", router.address.authority(), what);
  good ? LogInfo("{}", line) : LogWarning("{}", line);
}

// Why the router does not have this engine; empty: it has.
asio::awaitable<std::string> Announcer::State::Tell(Router& router) {
  const HostPort at{router.address.host, router.address.port};
  std::string why = co_await FindEndpoints(*router.names, at, leaves ? kLeaveMs / 2 : kConnectMs,
                                           &router.endpoints);
  if (!why.empty() && router.endpoints.empty()) co_return why;
  Upstream upstream(io.get_executor());
  why = co_await upstream.Open(router.endpoints, leaves ? kLeaveMs : kConnectMs);
  if (!why.empty()) co_return why;
  boost::system::error_code failed;
  const auto own = upstream.socket.local_endpoint(failed);
  if (failed) co_return failed.message();
  const SmallAnswer answer = co_await AskSmall(upstream, Request(router, own.address().to_string()),
                                               leaves ? kLeaveMs : kAnswerMs);
  if (answer.status == 0) co_return "it does not answer";
  if (answer.status != 200) co_return ErrorIn(answer, "PUT /engines/…");
  Result<RegistrationLease> lease = ParseLease(answer.body);
  if (!lease) co_return "its answer is none to a registration: " + lease.error().message;
  router.lease_ms = lease->lease_ms;
  router.prefills = std::move(lease->prefills);
  if (options.on_prefills && !leaves) options.on_prefills(Prefills());
  co_return "";
}

// Of all routers, each once.
std::vector<std::string> Announcer::State::Prefills() const {
  std::set<std::string> all;
  for (const auto& router : routers) all.insert(router->prefills.begin(), router->prefills.end());
  return {all.begin(), all.end()};
}

asio::awaitable<void> Announcer::State::Announce(Router& router) {
  co_await Renew(router);
  if (router.lease_ms > 0) {
    const std::string why = co_await Tell(router);
    if (!why.empty()) Say(router, false, "it does not know that this engine leaves: " + why);
  }
  if (++ended == routers.size()) io.stop();
}

// Until the engine leaves.
asio::awaitable<void> Announcer::State::Renew(Router& router) {
  while (!leaves) {
    const std::string why = co_await Tell(router);
    int32_t wait_ms = router.lease_ms / 3;
    if (why.empty()) {
      Say(router, true,
          fmt::format("this engine is registered there as {}", options.registration.address.name));
    } else {
      wait_ms = router.lease_ms == 0 ? kAgainMs : std::min(kAgainMs, wait_ms);
      Say(router, false, fmt::format("this engine is not registered there: {}", why));
    }
    if (leaves) break;
    router.timer.expires_after(std::chrono::milliseconds(std::max(wait_ms, 1)));
    co_await router.timer.async_wait(kTuple);
  }
}

Announcer::Announcer(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<Announcer> Announcer::Start(AnnouncerOptions options) {
  auto state = std::make_unique<State>(std::move(options));
  State* running = state.get();
  for (const auto& router : state->routers) {
    asio::co_spawn(state->io, running->Announce(*router), asio::detached);
  }
  state->thread = std::thread([running] {
    ::pthread_setname_np(::pthread_self(), "braid-register");
    running->io.run();
  });
  return std::unique_ptr<Announcer>(new Announcer(std::move(state)));
}

Announcer::~Announcer() {
  asio::post(state_->io, [s = state_.get()] {
    s->leaves = true;
    for (const auto& router : s->routers) router->timer.cancel();
    s->last.expires_after(std::chrono::milliseconds(kStopMs));
    s->last.async_wait([s](const boost::system::error_code&) { s->io.stop(); });
  });
  state_->thread.join();
}

}  // namespace braid
