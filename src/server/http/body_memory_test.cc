// The memory of bodies: what has arrived is counted until it is freed, and a large answer until it
// is read.
#include "server/http/test_connection.h"

namespace braid {
namespace {

using testing::StartsWith;

TEST_F(HttpConnectionTest, ABodyThatMemoryHasNoRoomForIsRefusedAndAReadOneGivesItsRoomBack) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "x"),
                StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(api_.memory().stats().used_bytes, 0);
  // Room for the body itself, not for the preparation of the largest one beside it.
  const auto most = static_cast<int64_t>(kBodyMax) * limits::kPrepareTimesBody;
  api_.memory().SetLimits({.server_bytes = most});
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "x"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 200")) << "it needs none";
  api_.memory().SetLimits({.server_bytes = most + 1});
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "x"), StartsWith("HTTP/1.1 200"));
}

// Room for one of the largest bodies beside the preparation of another.
constexpr int64_t kRoomForOne = static_cast<int64_t>(kBodyMax) * (limits::kPrepareTimesBody + 1);

TEST_F(HttpConnectionTest, AnnouncedBytesTakeNoMemoryFromThoseThatArrive) {
  api_.memory().SetLimits({.server_bytes = kRoomForOne});
  Connect();
  std::list<Client> slow;
  for (int i = 0; i < 4; ++i) {
    slow.emplace_back(server_->port());
    slow.back().Send(Framed("POST /x HTTP/1.1", "Content-Length: 900\r\n", "x"));
    slow.emplace_back(server_->port());
    slow.back().Send(Framed("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n"));
  }
  while (api_.memory().stats().used_bytes < 8) std::this_thread::yield();
  EXPECT_EQ(api_.memory().stats().used_bytes, 8) << "what has arrived";
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 992\r\n", std::string(992, 'y')),
              StartsWith("HTTP/1.1 200"));
  slow.back().Send("0\r\n\r\n");
  EXPECT_THAT(slow.back().ReadTo("POST x"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(api_.memory().stats().shed, 0);
}

TEST_F(HttpConnectionTest, ABodyThatOutgrowsTheMemoryIsRefusedOnItsWay) {
  api_.memory().SetLimits({.server_bytes = kRoomForOne});
  Client first = Connect(), second = Connect();
  first.Send(Framed("POST /x HTTP/1.1", "Content-Length: 1000\r\n", std::string(600, 'x')));
  while (api_.memory().stats().used_bytes < 600) std::this_thread::yield();
  EXPECT_EQ(api_.memory().stats().used_bytes, 600) << "not what is announced";
  second.Send(Framed("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n",
                      "191\r\n" + std::string(0x191, 'y')));
  EXPECT_THAT(second.ReadAll(), StartsWith("HTTP/1.1 503"));
  first.Send(std::string(400, 'x'));
  EXPECT_THAT(first.ReadTo("POST xx"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, ABodyOnItsWayIsNotRefusedForWhatIsPreparedMeanwhile) {
  api_.memory().SetLimits({.server_bytes = kRoomForOne});
  Client client = Connect();
  client.Send(Framed("POST /x HTTP/1.1", "Content-Length: 1000\r\n", "x"));
  while (api_.memory().stats().used_bytes == 0) std::this_thread::yield();
  {
    constexpr int64_t kPreparing = 20'000;
    const auto preparing = api_.memory().Take(kPreparing, 0);
    ASSERT_TRUE(preparing);
    client.Send(std::string(500, 'x'));
    while (api_.memory().stats().used_bytes == kPreparing + 1) std::this_thread::yield();
    EXPECT_EQ(api_.memory().stats().used_bytes, kPreparing + 501);
  }
  client.Send(std::string(499, 'x'));
  EXPECT_THAT(client.ReadTo("POST xx"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, ARelayedBodyIsCountedUntilTheRelayHasFreedIt) {
  Client client = Connect();
  client.Send(Framed("POST /relay HTTP/1.1", "Content-Length: 500\r\n", std::string(500, 'x')));
  client.ReadTo(": ping\n\n");
  EXPECT_EQ(api_.memory().stats().used_bytes, 500) << "a comment is no answer";
  api_.script.frees_body = true;
  client.ReadTo("data: 1\n\n");
  EXPECT_EQ(api_.memory().stats().used_bytes, 0);
}

TEST_F(HttpConnectionTest, ALargeAnswerIsCountedUntilItIsRead) {
  constexpr int64_t kBytes = 32 << 20;  // far more than sockets hold
  api_.memory().SetLimits({.server_bytes = 2 * kBytes - 1});
  api_.SetResponse({.body = std::string(kBytes, 'x')});
  Client first = Connect();
  first.Send(Framed("GET /x HTTP/1.1"));
  first.ReadTo("\r\n\r\n");
  EXPECT_EQ(api_.memory().stats().used_bytes, kBytes);
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Answer("HEAD /x HTTP/1.1"), StartsWith("HTTP/1.1 200")) << "it needs none";
  api_.SetResponse({.body = "small"});
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "1"), testing::HasSubstr("small"))
      << "requests go on";
  EXPECT_EQ(first.Skip(kBytes), static_cast<size_t>(kBytes));
  while (api_.memory().stats().used_bytes > 0) std::this_thread::yield();
}

TEST_F(HttpConnectionTest, AnAnswerInTheMakingThatDoesNotFitIsRefused) {
  api_.memory().SetLimits({.server_bytes = 2 * ((64 << 10) + 1)});
  api_.script.streams = false;
  for (const size_t more : {1, 2}) {
    const std::string body((64 << 10) + more, 'x');
    api_.script.steps = {{.response = HttpResponse{.body = body}, .last = true}};
    EXPECT_THAT(Answer("GET /answer HTTP/1.1"),
                StartsWith(more == 1 ? "HTTP/1.1 200" : "HTTP/1.1 503"));
  }
}

TEST_F(HttpConnectionTest, TheHeadOfAChunkHasAnEnd) {
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n",
                     "1;" + std::string(limits::kHeadBytesMax + (64 << 10), 'e')),
              StartsWith("HTTP/1.1 400"));
}

}  // namespace
}  // namespace braid
