// What an engine makes of the leases of several routers.
#include "router/registration/announcer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/system/file.h"

namespace braid {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Answers each registration in the same way.
class FixedRouter {
 public:
  explicit FixedRouter(RegistrationLease lease) : FixedRouter("200 OK", EncodeLease(lease)) {}
  FixedRouter(std::string status, std::string body)
      : status_(std::move(status)), body_(std::move(body)) {
    thread_ = std::thread([this] {
      while (true) {
        tcp::socket socket(io_);
        acceptor_.accept(socket);
        if (stopping_) return;
        std::string request;
        boost::system::error_code ignored;
        const size_t head =
            asio::read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", ignored);
        const size_t body = request.find("Content-Length: ") + 16;
        const size_t size = std::strtoul(request.c_str() + body, nullptr, 10);
        if (request.size() < head + size) {
          asio::read(socket, asio::dynamic_buffer(request),
                     asio::transfer_exactly(head + size - request.size()), ignored);
        }
        {
          std::lock_guard lock(mutex_);
          head_ = request.substr(0, head);
          said_ = request.substr(head);
        }
        asio::write(socket,
                    asio::buffer(fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n"
                                             "Connection: close\r\n\r\n{}",
                                             status_, body_.size(), body_)),
                    ignored);
      }
    });
  }
  ~FixedRouter() {
    stopping_ = true;
    tcp::socket socket(io_);
    boost::system::error_code ignored;
    socket.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  // The body of the last registration, and its head.
  std::string said() {
    std::lock_guard lock(mutex_);
    return said_;
  }
  std::string head() {
    std::lock_guard lock(mutex_);
    return head_;
  }
  EngineAddress address() const {
    return {.name = {},
            .host = "127.0.0.1",
            .port = acceptor_.local_endpoint().port(),
            .key = {},
            .events = {}};
  }

 private:
  const std::string status_, body_;
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::string head_, said_;
  std::thread thread_;
};

TEST(Announcer, TellsEachRouterWhereItIsAndNamesThePrefillEnginesOfAll) {
  FixedRouter first({.lease_ms = 30, .prefills = {"a:1", "b:2"}});
  FixedRouter second({.lease_ms = 30, .prefills = {"b:2", "c:3"}});
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::string>> named;
  AnnouncerOptions options;
  options.routers = {first.address(), second.address()};
  options.registration.address = {.name = "d",
                                  .host = "0.0.0.0",
                                  .port = 1,
                                  .key = {},
                                  .events = {"tcp://[::]:5557", "tcp://10.0.0.7:5558"}};
  options.registration.generation = 1;
  options.registration.fingerprint = "x";
  options.handoff_host = "::";
  options.handoff_port = 7000;
  options.on_prefills = [&](std::vector<std::string> prefills) {
    std::lock_guard lock(mutex);
    named.push_back(std::move(prefills));
    changed.notify_one();
  };
  auto announcer = Announcer::Start(std::move(options));
  const std::vector<std::string> all = {"a:1", "b:2", "c:3"};
  std::unique_lock lock(mutex);
  const auto several = [&] { return std::ranges::count(named, all) >= 6; };
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), several));
  // Once both have answered, no answer of one hides what the other has named.
  const auto begin = std::ranges::find(named, all);
  EXPECT_EQ(std::count(begin, named.end(), all), named.end() - begin);
  lock.unlock();
  // Where all of a machine's addresses are meant, routers are told the one that they reach.
  auto told = ParseRegistration("d", first.said());
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(told->address.host, "127.0.0.1");
  EXPECT_EQ(told->address.events, (kv::EventSource{"tcp://127.0.0.1:5557", "tcp://10.0.0.7:5558"}));
  EXPECT_EQ(told->handoff, "127.0.0.1:7000");
  EXPECT_TRUE(told->prefills && !told->leaves);
  announcer.reset();
  told = ParseRegistration("d", first.said());
  EXPECT_TRUE(told && told->leaves);
}

// An engine at an address of its own.
AnnouncerOptions Engine(std::vector<EngineAddress> routers) {
  AnnouncerOptions options{.routers = std::move(routers)};
  options.registration.address = {
      .name = "e", .host = "10.0.0.7", .port = 1, .key = {}, .events = {}};
  options.registration.generation = 1;
  options.registration.fingerprint = "x";
  return options;
}

template <class F>
bool Until(F done) {
  const int64_t end_us = MonotonicUs() + 60'000'000;
  while (!done() && MonotonicUs() < end_us) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done();
}

TEST(Announcer, LeavesThoughItsLeaseLastsLong) {
  FixedRouter router({.lease_ms = 600'000});
  auto announcer = Announcer::Start(Engine({router.address()}));
  ASSERT_TRUE(Until([&] { return !router.said().empty(); }));
  auto told = ParseRegistration("e", router.said());
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(told->address.host, "10.0.0.7") << "where it listens";
  EXPECT_FALSE(told->prefills || told->leaves);
  announcer.reset();
  told = ParseRegistration("e", router.said());
  EXPECT_TRUE(told && told->leaves);
}

TEST(Announcer, TheKeyIsReadAgainEachTime) {
  FixedRouter router({.lease_ms = 3});
  const std::string path = testing::TempDir() + "/braid_announcer_key_" + std::to_string(getpid());
  ASSERT_TRUE(WriteFile(path, "first-key\n"));
  AnnouncerOptions options = Engine({router.address()});
  options.key_file = path;
  const auto announcer = Announcer::Start(std::move(options));
  const auto has = [&](const std::string& line) {
    return Until([&] { return router.head().find("\r\n" + line + "\r\n") != std::string::npos; });
  };
  EXPECT_TRUE(has("Authorization: Bearer first-key"));
  EXPECT_TRUE(router.head().starts_with("PUT /engines/e HTTP/1.1\r\n"));
  EXPECT_TRUE(has("Host: " + router.address().authority()));
  EXPECT_TRUE(has("Content-Type: application/json"));
  ASSERT_TRUE(WriteFile(path, " second-key "));
  EXPECT_TRUE(has("Authorization: Bearer second-key"));
  std::filesystem::remove(path);
  EXPECT_TRUE(Until([&] { return router.head().find("Authorization") == std::string::npos; }));
}

TEST(Announcer, OnlyARouterThatHasTheEngineIsToldThatItLeaves) {
  FixedRouter refuses("403 -", R"({"error":{"message":"no"}})"), wrong("200 OK", "{}");
  FixedRouter right({.lease_ms = 3, .prefills = {"a:1"}});
  AnnouncerOptions options = Engine({refuses.address(), wrong.address(), right.address()});
  std::atomic<int> named = 0;
  options.on_prefills = [&](const std::vector<std::string>& prefills) {
    EXPECT_EQ(prefills, std::vector<std::string>{"a:1"});
    ++named;
  };
  auto announcer = Announcer::Start(std::move(options));
  ASSERT_TRUE(Until([&] {
    return !refuses.said().empty() && !wrong.said().empty() && named > 2;
  })) << "one router delays no other";
  announcer.reset();
  for (FixedRouter* router : {&refuses, &wrong, &right}) {
    const auto told = ParseRegistration("e", router->said());
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_EQ(told->leaves, router == &right);
  }
}

// A resolver that hangs may take half a minute, longer than leases last and a stop may take.
TEST(Announcer, ANameWithoutAnswerDelaysNeitherOtherRoutersNorTheEnd) {
  static std::latch answers(1);  // the resolver's end is not seen
  FixedRouter other({.lease_ms = 30});
  EngineAddress silent = other.address(), named = other.address();
  silent.host = "silent";
  named.host = "named";
  AnnouncerOptions options = Engine({silent, named});
  options.resolver = [](const HostPort& at) {
    if (at.host == "silent") answers.wait();
    return Resolve({"127.0.0.1", at.port}, true);
  };
  std::atomic<int> renewed = 0;
  options.on_prefills = [&](const std::vector<std::string>&) { ++renewed; };
  auto announcer = Announcer::Start(std::move(options));
  EXPECT_TRUE(Until([&] { return renewed > 5; }));
  announcer.reset();
  const auto told = ParseRegistration("e", other.said());
  EXPECT_TRUE(told && told->leaves);
  answers.count_down();
}

TEST(Announcer, WhatARouterSaysIsLoggedWhenItChanges) {
  FixedRouter wrong("200 OK", "{}"), right({.lease_ms = 3});
  EngineAddress nobody = right.address();
  nobody.port = 1;
  AnnouncerOptions options = Engine({nobody, wrong.address(), right.address()});
  std::atomic<int> renewed = 0;
  options.on_prefills = [&](const std::vector<std::string>&) { ++renewed; };
  testing::internal::CaptureStdout();
  auto announcer = Announcer::Start(std::move(options));
  EXPECT_TRUE(Until([&] { return !wrong.said().empty() && renewed > 5; }));
  announcer.reset();
  const std::string log = testing::internal::GetCapturedStdout();
  const auto times = [&](const std::string& line) {
    int count = 0;
    for (size_t at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) ++count;
    return count;
  };
  const std::string not_there = ": this engine is not registered there: ";
  EXPECT_EQ(times(nobody.authority() + not_there + "Connection refused"), 1) << log;
  EXPECT_EQ(times(not_there + "its answer is none to a registration: lease_ms: must be"), 1) << log;
  EXPECT_EQ(times(right.address().authority() + ": this engine is registered there as e"), 1)
      << log;
}

}  // namespace
}  // namespace braid
