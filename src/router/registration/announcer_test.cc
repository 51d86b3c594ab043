// What an engine makes of the leases of several routers.
#include "router/registration/announcer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
#include <mutex>
#include <thread>

namespace braid {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Answers each registration with the same lease.
class FixedRouter {
 public:
  explicit FixedRouter(RegistrationLease lease) : body_(EncodeLease(lease)) {
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
          said_ = request.substr(head);
        }
        asio::write(socket,
                    asio::buffer(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n"
                                             "Connection: close\r\n\r\n{}",
                                             body_.size(), body_)),
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
  // The body of the last registration.
  std::string said() {
    std::lock_guard lock(mutex_);
    return said_;
  }
  EngineAddress address() const {
    return {.name = {},
            .host = "127.0.0.1",
            .port = acceptor_.local_endpoint().port(),
            .key = {},
            .events = {}};
  }

 private:
  const std::string body_;
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::string said_;
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

}  // namespace
}  // namespace braid
