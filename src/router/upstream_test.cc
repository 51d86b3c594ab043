// Connections to engines and small requests over them.
#include "router/upstream.h"

#include <gtest/gtest.h>

#include <latch>

#include "router/test_fleet.h"

namespace braid {
namespace {

class UpstreamTest : public testing::Test {
 protected:
  ~UpstreamTest() override {
    engine_.Stop();
    gone_.Stop();
    io_.run_for(std::chrono::milliseconds(50));
  }
  template <class T>
  T Run(asio::awaitable<T> task) {
    std::optional<T> result;
    asio::co_spawn(io_, std::move(task),
                   [&](const std::exception_ptr&, T value) { result = std::move(value); });
    const int64_t end_us = MonotonicUs() + 20'000'000;
    while (!result && MonotonicUs() < end_us) io_.run_one_for(std::chrono::milliseconds(10));
    return result.value_or(T());
  }
  static asio::ip::tcp::endpoint At(const TestEngine& engine) {
    return {asio::ip::make_address("127.0.0.1"), engine.Address("x").port};
  }
  SmallAnswer Ask(int32_t ms = 20'000) {
    return Run(AskSmall(upstream_, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n", ms));
  }

  asio::io_context io_;
  TestEngine engine_{io_}, gone_{io_};
  Upstream upstream_{io_.get_executor()};
};

TEST_F(UpstreamTest, AddressesAreTriedInTurn) {
  gone_.Refuse();
  EXPECT_EQ(Run(upstream_.Open({}, 20'000)), "its name has no address");
  EXPECT_EQ(Run(upstream_.Open({At(gone_)}, 20'000)), "Connection refused");
  EXPECT_FALSE(upstream_.socket.is_open());
  EXPECT_EQ(Run(upstream_.Open({At(gone_), At(engine_)}, 20'000)), "");
  EXPECT_TRUE(upstream_.socket.is_open());
  EXPECT_EQ(upstream_.socket.remote_endpoint(), At(engine_));
  asio::ip::tcp::no_delay no_delay;
  upstream_.socket.get_option(no_delay);
  EXPECT_TRUE(no_delay.value()) << "small requests leave at once";
  asio::socket_base::keep_alive keep_alive;
  upstream_.socket.get_option(keep_alive);
  EXPECT_TRUE(keep_alive.value()) << "a machine that was started again ends its connections";
}

// A listener whose queue is full neither takes a connection nor refuses it.
TEST_F(UpstreamTest, AnAddressThatIsSilentLeavesTimeForTheNext) {
  asio::ip::tcp::acceptor full(io_, asio::ip::tcp::v4());
  full.bind({asio::ip::make_address("127.0.0.1"), 0});
  full.listen(0);
  asio::ip::tcp::socket first(io_);
  first.connect(full.local_endpoint());
  EXPECT_EQ(Run(upstream_.Open({full.local_endpoint()}, 50)), "Connection timed out");
  EXPECT_EQ(Run(upstream_.Open({full.local_endpoint(), At(engine_)}, 2000)), "");
  ASSERT_TRUE(upstream_.socket.is_open());
  EXPECT_EQ(upstream_.socket.remote_endpoint(), At(engine_));
}

TEST_F(UpstreamTest, AddressesOfANameComeInTimeOrWithTheNextQuestion) {
  static std::latch answers(1);  // the resolver's end is not seen
  NameLookup names([] {}, [](const HostPort& at) -> Result<std::vector<NetAddress>> {
    answers.wait();
    return std::vector{Resolve({"127.0.0.1", at.port}, true)->front(),
                       Resolve({"::1", at.port}, true)->front()};
  });
  const HostPort numeric{"127.0.0.2", 7}, name{"slow", 7};
  Upstream::Endpoints found;
  EXPECT_EQ(Run(FindEndpoints(names, name, 20, &found)),
            "slow: its name is not looked up within 20 ms");
  EXPECT_EQ(Run(FindEndpoints(names, numeric, 0, &found)), "") << "no name goes before it";
  EXPECT_EQ(found, (Upstream::Endpoints{{asio::ip::make_address("127.0.0.2"), 7}}));
  answers.count_down();
  EXPECT_EQ(Run(FindEndpoints(names, name, 20'000, &found)), "");
  EXPECT_EQ(found, (Upstream::Endpoints{{asio::ip::make_address("127.0.0.1"), 7},
                                        {asio::ip::make_address("::1"), 7}}));
}

TEST_F(UpstreamTest, ASmallRequestHasAnAnswerOrNoneInTime) {
  engine_.raw = {{"HTTP/1.1 418 -\r\nContent-Length: 3\r\n\r\nabc"},
                 {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nxy"},
                 {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true},
                 {"HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n"},
                 {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"}};
  const auto open = [&] { ASSERT_EQ(Run(upstream_.Open({At(engine_)}, 20'000)), ""); };
  open();
  SmallAnswer answer = Ask();
  EXPECT_EQ(answer.status, 418);
  EXPECT_EQ(answer.body, "abc");
  EXPECT_TRUE(upstream_.socket.is_open());
  EXPECT_EQ(Ask().body, "xy");
  EXPECT_FALSE(upstream_.socket.is_open()) << "the engine closes it";
  EXPECT_EQ(Ask().status, 0) << "it is not open";
  open();
  EXPECT_EQ(Ask().status, 0) << "half an answer";
  open();
  EXPECT_EQ(Ask().status, 0) << "more than 8 MiB";
  open();
  EXPECT_EQ(Ask(50).status, 0) << "it takes too long";
}

TEST_F(UpstreamTest, AConnectionThatTheEngineClosedIsStale) {
  engine_.raw = {{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
                 {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true}};
  const auto stale = [&] {
    const int64_t end_us = MonotonicUs() + 20'000'000;
    while (!upstream_.Stale() && MonotonicUs() < end_us) {
      io_.run_one_for(std::chrono::milliseconds(1));
    }
    return upstream_.Stale();
  };
  EXPECT_TRUE(upstream_.Stale()) << "not open";
  ASSERT_EQ(Run(upstream_.Open({At(engine_)}, 20'000)), "");
  EXPECT_FALSE(upstream_.Stale());
  EXPECT_EQ(Ask().status, 200);
  EXPECT_FALSE(upstream_.Stale());
  EXPECT_EQ(Ask().status, 200);
  EXPECT_TRUE(stale()) << "closed";
  ASSERT_EQ(Run(upstream_.Open({At(engine_)}, 20'000)), "");
  EXPECT_FALSE(upstream_.Stale());
}

TEST(ErrorIn, IsTheMessageOfTheErrorOrTheStatus) {
  const auto text = [](std::string body) { return ErrorIn({503, std::move(body)}, "/ready"); };
  EXPECT_EQ(text(R"({"error":{"message":"it loads"}})"), "it loads");
  for (const char* body : {"", "[]", "{}", R"({"error":7})", R"({"error":{}})",
                           R"({"error":{"message":7}})", R"({"message":"it loads"})"}) {
    EXPECT_EQ(text(body), "/ready answers 503") << body;
  }
}

}  // namespace
}  // namespace braid
