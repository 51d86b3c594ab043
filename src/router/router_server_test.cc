// The router as a whole: its file, its threads and its end. The engines are addresses at which
// nobody listens.
#include "router/router_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <filesystem>
#include <thread>

#include "base/check.h"
#include "base/system/file.h"

namespace braid {
namespace {

namespace http = boost::beast::http;
using testing::HasSubstr;

class RouterServerTest : public testing::Test {
 protected:
  RouterServerTest()
      : path_(std::filesystem::temp_directory_path() /
              ("braid_router_server_test_" + std::to_string(getpid()))) {
    Write("a");
    http_.port = 0;
  }
  ~RouterServerTest() override { std::filesystem::remove(path_); }

  void Write(std::string_view engine) {
    ASSERT_TRUE(WriteFile(path_, fmt::format(R"({{"engines": [{{"name": "{}",
                                                "url": "http://127.0.0.1:1"}}]}})",
                                             engine)));
  }
  RouterServerConfig Config() const {
    RouterServerConfig config;
    config.http = http_;
    config.file = file_;
    return config;
  }
  std::unique_ptr<RouterServer> Start() {
    auto server = RouterServer::Start(Config());
    CHECK(server, "{}", server.error().message);
    return *std::move(server);
  }
  std::string StartError() {
    const auto server = RouterServer::Start(Config());
    return server ? "none" : server.error().message;
  }
  // The status and the body of an answer.
  static std::pair<int, std::string> Ask(uint16_t port, http::verb method, const std::string& path,
                                         const std::string& key = "") {
    asio::io_context io;
    asio::ip::tcp::socket socket(io);
    socket.connect({asio::ip::make_address("127.0.0.1"), port});
    http::request<http::empty_body> request(method, path, 11);
    request.set(http::field::host, "localhost");
    if (!key.empty()) request.set(http::field::authorization, "Bearer " + key);
    request.prepare_payload();
    http::write(socket, request);
    boost::beast::flat_buffer buffer;
    http::response<http::string_body> response;
    http::read(socket, buffer, response);
    return {static_cast<int>(response.result_int()), response.body()};
  }
  static uint16_t PortOf(const RouterServer& server) {
    const std::string url = server.url();
    EXPECT_TRUE(url.starts_with("http://127.0.0.1:")) << url;
    return static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  // Engines' names, in their order.
  static std::string Engines(uint16_t port) {
    const auto [status, body] = Ask(port, http::verb::get, "/engines");
    EXPECT_EQ(status, 200) << body;
    std::string names;
    const json::value answer = *ParseJson(body, "engines");
    for (const json::value& engine : answer.at("data").as_array()) {
      if (!engine.at("removed").as_bool()) names += engine.at("name").as_string();
    }
    return names;
  }

  const std::string path_;
  std::string file_ = path_;
  HttpOptions http_;
};

TEST_F(RouterServerTest, DoesNotStartWithAWrongConfiguration) {
  http_.tls.certificate = "cert.pem";
  EXPECT_EQ(StartError(), "--tls-cert and --tls-key belong together");
  http_.tls = {.certificate = "", .key = "key.pem"};
  EXPECT_EQ(StartError(), "--tls-cert and --tls-key belong together");
  http_.tls = {};
  Write("a b");
  EXPECT_THAT(StartError(), HasSubstr(path_ + ": engines[0].name"));
  file_ += ".none";
  EXPECT_THAT(StartError(), HasSubstr(file_));
}

TEST_F(RouterServerTest, AsksTheEnginesOfItsFile) {
  const auto server = Start();
  const uint16_t port = PortOf(*server);
  EXPECT_EQ(server->admin_port(), 0);
  EXPECT_EQ(Engines(port), "a");
  for (;;) {  // until it has been asked
    const auto [status, body] = Ask(port, http::verb::get, "/ready");
    ASSERT_EQ(status, 503);
    if (body.find("a: Connection refused") != std::string::npos) break;
    ASSERT_THAT(body, HasSubstr("a: not asked yet"));
  }
}

TEST_F(RouterServerTest, AReloadTakesTheEnginesOfTheFileOrLeavesThemAsTheyWere) {
  const auto server = Start();
  const uint16_t port = PortOf(*server);
  Write("b");
  EXPECT_TRUE(server->Reload());
  EXPECT_EQ(Engines(port), "b");
  Write("c d");
  const Status wrong = server->Reload();
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("engines[0].name"));
  const auto [status, body] = Ask(port, http::verb::post, "/reload");
  EXPECT_EQ(status, 400) << body;
  EXPECT_EQ(Engines(port), "b");
  Write("e");
  EXPECT_EQ(Ask(port, http::verb::post, "/reload").first, 200);
  EXPECT_EQ(Engines(port), "e");
  EXPECT_TRUE(server->ReloadTls()) << "there is none";
}

TEST_F(RouterServerTest, AReloadThatComesAsSoonAsItListensIsDone) {
  for (int round = 0; round < 10; ++round) {
    // A socket that does not listen keeps the port for the server.
    asio::io_context io;
    asio::ip::tcp::acceptor place(io, asio::ip::tcp::v4());
    place.set_option(asio::socket_base::reuse_address(true));
    place.bind({asio::ip::make_address("127.0.0.1"), 0});
    http_.port = place.local_endpoint().port();
    std::thread client([&] {
      for (;;) {
        try {
          EXPECT_EQ(Ask(http_.port, http::verb::post, "/reload").first, 200);
          return;
        } catch (const boost::system::system_error& refused) {
          ASSERT_EQ(refused.code(), asio::error::connection_refused);  // it does not listen yet
        }
      }
    });
    const auto server = Start();
    client.join();
    EXPECT_EQ(Engines(http_.port), "a");
  }
}

TEST_F(RouterServerTest, KeysAndTheAdminPortAreThoseOfTheServer) {
  http_.admin_port = 0;
  const auto server = Start();
  const uint16_t port = PortOf(*server), admin = server->admin_port();
  ASSERT_NE(admin, 0);
  EXPECT_NE(admin, port);
  EXPECT_EQ(Ask(port, http::verb::get, "/engines").first, 404);
  EXPECT_EQ(Ask(admin, http::verb::get, "/engines").first, 200);
  server->SetKeys({{.name = "root", .key = "key-of-root", .admin = true}});
  EXPECT_EQ(Ask(admin, http::verb::get, "/engines").first, 401);
  EXPECT_EQ(Ask(admin, http::verb::get, "/engines", "key-of-root").first, 200);
}

TEST_F(RouterServerTest, KeysHoldFromTheFirstConnectionOn) {
  RouterServerConfig config = Config();
  config.keys = {{.name = "root", .key = "key-of-root", .admin = true}};
  const auto server = *RouterServer::Start(std::move(config));
  EXPECT_EQ(Ask(PortOf(*server), http::verb::get, "/engines").first, 401);
  EXPECT_EQ(Ask(PortOf(*server), http::verb::get, "/engines", "key-of-root").first, 200);
}

TEST_F(RouterServerTest, NothingIsReadAgainAfterTheStop) {
  const auto server = Start();
  server->Drain(1);
  server->StopNow();
  server->StopNow();
  const Status late = server->Reload();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "the server is shutting down");
}

}  // namespace
}  // namespace braid
