// What an engine makes of the leases of several routers.
#include "router/registration/announcer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <condition_variable>
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
        asio::read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", ignored);
        asio::write(socket,
                    asio::buffer(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n"
                                             "Connection: close\r\n\r\n{}",
                                             body_.size(), body_)),
                    ignored);
        socket.shutdown(tcp::socket::shutdown_send, ignored);
        // The rest of the request, so that closing does not reset the connection.
        asio::read_until(socket, asio::dynamic_buffer(request), "never", ignored);
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
  std::thread thread_;
};

TEST(Announcer, NamesThePrefillEnginesOfAllItsRouters) {
  FixedRouter first({.lease_ms = 30, .prefills = {"a:1", "b:2"}});
  FixedRouter second({.lease_ms = 30, .prefills = {"b:2", "c:3"}});
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<std::string>> named;
  AnnouncerOptions options;
  options.routers = {first.address(), second.address()};
  options.registration.address = {
      .name = "d", .host = "127.0.0.1", .port = 1, .key = {}, .events = {}};
  options.registration.generation = 1;
  options.registration.fingerprint = "x";
  options.on_prefills = [&](std::vector<std::string> prefills) {
    std::lock_guard lock(mutex);
    named.push_back(std::move(prefills));
    changed.notify_one();
  };
  const auto announcer = Announcer::Start(std::move(options));
  const std::vector<std::string> all = {"a:1", "b:2", "c:3"};
  std::unique_lock lock(mutex);
  const auto several = [&] { return std::ranges::count(named, all) >= 6; };
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), several));
  // Once both have answered, no answer of one hides what the other has named.
  const auto begin = std::ranges::find(named, all);
  EXPECT_EQ(std::count(begin, named.end(), all), named.end() - begin);
}

}  // namespace
}  // namespace braid
