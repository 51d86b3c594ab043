// One connection over a real socket, with an API of the test behind it: what of a request reaches
// the API, how answers are framed, and when the connection ends.
#include "server/http/connection.h"

#include <latch>

#include "server/http/test_connection.h"

namespace braid {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(HttpConnectionTest, TheApiSeesTheRequestAsItWasSent) {
  Answer("POST /path?a=1&b=?2 HTTP/1.1",
         "Authorization: Bearer k\r\nx-api-key: other\r\nContent-Type: text/x\r\n"
         "Content-Encoding: br\r\nOrigin: o\r\nSec-Fetch-Site: none\r\n"
         "Access-Control-Request-Headers: h\r\nX-Request-Id: id-1\r\nContent-Length: 4\r\n",
         "body");
  ASSERT_EQ(api_.seen().size(), 1U);
  const HttpRequest request = api_.seen()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/path");
  EXPECT_EQ(request.query, "a=1&b=?2");
  EXPECT_EQ(request.authorization, "Bearer k");
  EXPECT_EQ(request.api_key, "other");
  EXPECT_EQ(request.content_type, "text/x");
  EXPECT_EQ(request.content_encoding, "br");
  EXPECT_EQ(request.host, "a");
  EXPECT_EQ(request.origin, "o");
  EXPECT_EQ(request.fetch_site, "none");
  EXPECT_EQ(request.asked_headers, "h");
  EXPECT_EQ(request.request_id, "id-1");
  EXPECT_EQ(request.body, "body");
  EXPECT_EQ(request.peer.address, "127.0.0.1");
  EXPECT_TRUE(request.peer.loopback_listener);
  EXPECT_FALSE(request.peer.admin_listener);
  EXPECT_GT(request.received_us, 0);
}

TEST_F(HttpConnectionTest, AnIllFormedRequestIdIsLeftOut) {
  Answer("GET /x HTTP/1.1", "X-Request-Id: a b\r\n");
  EXPECT_EQ(api_.seen().at(0).request_id, "");
}

TEST_F(HttpConnectionTest, HeadIsAskedLikeGetAndHasNoBody) {
  const std::string answer = Answer("HEAD /x?q HTTP/1.1");
  EXPECT_EQ(api_.seen().at(0).method, "GET");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n")) << "of \"GET \"";
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
  EXPECT_TRUE(Answer("GET /x HTTP/1.1").ends_with("\r\n\r\nGET "));
}

TEST_F(HttpConnectionTest, AResponseIsWrittenWithItsHeaders) {
  api_.SetResponse({.status = 405,
                    .content_type = "text/x",
                    .body = "no",
                    .retry_after_seconds = 7,
                    .allow = "GET, POST",
                    .headers = "X-Own: 2\r\n"});
  EXPECT_EQ(Answer("GET /x HTTP/1.1"),
            "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/x\r\nContent-Length: 2\r\n"
            "X-Content-Type-Options: nosniff\r\nX-Request-Id: made\r\nRetry-After: 7\r\n"
            "X-Own: 2\r\nX-Reply: 1\r\nAllow: GET, POST\r\nConnection: close\r\n\r\nno");
}

TEST_F(HttpConnectionTest, PipelinedRequestsAreAnsweredInOrderOnOneConnection) {
  Client client = Connect();
  client.Send(Framed("POST /1 HTTP/1.1", "Content-Length: 3\r\n", "one") +
              Framed("POST /2 HTTP/1.1", "Content-Length: 3\r\n", "two"));
  const std::string first = client.ReadTo("POST one"), second = client.ReadTo("POST two");
  EXPECT_THAT(first, Not(HasSubstr("Connection:"))) << "HTTP/1.1 stays open unsaid";
  EXPECT_THAT(second, StartsWith("HTTP/1.1 200 OK\r\n"));
  client.Send(Framed("GET /3 HTTP/1.1", "Connection: close\r\n"));
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpConnectionTest, Http10ClosesUnlessItAsksToStay) {
  Client client = Connect();
  client.Send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(client.ReadTo("\r\n\r\nGET "), HasSubstr("Connection: keep-alive\r\n"));
  client.Send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpConnectionTest, AResponseThatClosesEndsTheConnection) {
  api_.SetResponse({.body = "bye", .close = true});
  Client client = Connect();
  client.Send(Framed("GET /x HTTP/1.1"));
  EXPECT_THAT(client.ReadAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpConnectionTest, BodiesAreTakenUpToTheLimit) {
  const std::string largest(kBodyMax, 'x');
  const auto chunked = [](std::string_view body) {
    return fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
  };
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1000\r\n", largest),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n", chunked(largest)),
              StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(api_.seen().at(1).body, largest);
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1001\r\n", largest + "x"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n", chunked(largest + "x")),
              StartsWith("HTTP/1.1 413"));
  EXPECT_EQ(api_.seen().size(), 2U) << "the API is not asked";
}

TEST_F(HttpConnectionTest, ChunkExtensionsAreTakenUpToTheirLimit) {
  const auto answer = [&](size_t bytes) {
    return Answer("POST /x HTTP/1.1", "Transfer-Encoding: chunked\r\n",
                  fmt::format("1;{}\r\na\r\n0\r\n\r\n", std::string(bytes - 1, 'e')));
  };
  EXPECT_THAT(answer(limits::kChunkExtensionBytesMax), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer(limits::kChunkExtensionBytesMax + 1), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpConnectionTest, AClientThatWaitsForContinueGetsItBeforeItsBody) {
  Client client = Connect();
  client.Send(Framed("POST /x HTTP/1.1", "Expect: 100-continue\r\nContent-Length: 2\r\n"));
  EXPECT_EQ(client.ReadTo("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("hi");
  EXPECT_THAT(client.ReadTo("POST hi"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, AnAmbiguousHeadIsRefusedAndEndsTheConnection) {
  Client client = Connect();
  client.Send(Framed("POST /x HTTP/1.1", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n") +
              "0\r\n\r\n" + Framed("GET /smuggled HTTP/1.1"));
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos);
  EXPECT_TRUE(api_.seen().empty());
}

TEST_F(HttpConnectionTest, HeadersThatDoNotArriveInTimeAreRefused) {
  options_.header_seconds_max = 1;
  Client client = Connect();
  client.Send("GET /x HTTP/1.1\r\nHost:");
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
}

TEST_F(HttpConnectionTest, ABodyThatDoesNotArriveInTimeIsRefused) {
  options_.body_seconds_base = 1;
  Client client = Connect();
  client.Send(Framed("POST /x HTTP/1.1", "Content-Length: 2\r\n", "x"));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408"));
}

// The bytes are more than one read takes: when the deadline is looked at, the second read has ended
// and cannot be cancelled.
TEST_F(HttpConnectionTest, ADeadlineThatPassesAsBytesComeIsNotLost) {
  options_.header_seconds_max = options_.body_seconds_base = 1;
  api_.body_bytes_max = 20'000;
  const std::string name(7000, 'n'),
      fields = name + ": 1\r\n" + name + ": 2\r\n" + name + ": 3\r\n";
  Client head = Connect(), body = Connect(), late = Connect(), other = Connect();
  head.Send("GET /x HTTP/1.1\r\nHost: a\r\n");
  body.Send(Framed("POST /x HTTP/1.1", "Content-Length: 19000\r\n", "x"));
  late.Send("GET /late HTTP/1.1\r\nHost: a\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  other.Send(Framed("GET /block HTTP/1.1"));
  api_.WaitUntilBlocked();
  head.Send(fields);
  body.Send(std::string(18'000, 'x'));
  late.Send(fields + "Connection: close\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  api_.Release();
  EXPECT_THAT(head.ReadAll(), StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(body.ReadAll(), StartsWith("HTTP/1.1 408"));
  // All of it is there, unless the deadline was looked at before the bytes were.
  EXPECT_THAT(late.ReadAll(), AnyOf(StartsWith("HTTP/1.1 200"), HasSubstr("the headers did not")));
}

TEST_F(HttpConnectionTest, APreparedReplyDoesNotWaitForWorkThatCameAfterIt) {
  options_.prepare_threads = 1;
  Client first = Connect(), second = Connect(), third = Connect();
  first.Send(Framed("POST /block HTTP/1.1", "Content-Length: 1\r\n", "1"));
  api_.WaitUntilBlocked();
  second.Send(Framed("POST /hold HTTP/1.1", "Content-Length: 1\r\n", "2"));
  third.Send(Framed("GET /x HTTP/1.1"));  // by the network thread, which has seen the second then
  third.ReadTo("\r\n\r\nGET ");
  api_.Release();
  EXPECT_THAT(first.ReadTo("POST 1"), StartsWith("HTTP/1.1 200"));
  api_.LetGo();
  EXPECT_THAT(second.ReadTo("POST 2"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, WhatPreparationThrowsIsAnAnswerAndEndsItsConnectionAlone) {
  api_.respond_throws = true;
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "1"),
              StartsWith("HTTP/1.1 500"));
  EXPECT_FALSE(api_.respond_throws);
  api_.respond_throws = true;
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 500")) << "on the network thread";
  EXPECT_THAT(Answer("POST /x HTTP/1.1", "Content-Length: 1\r\n", "1"),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, AnExceptionAsAConnectionBeginsEndsThatConnectionAlone) {
  options_.connections_per_address_max = 1;
  api_.body_bytes_max_throws = true;
  EXPECT_EQ(Connect().ReadAll(), "");
  EXPECT_FALSE(api_.body_bytes_max_throws);
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, AnExceptionAsDeadlinesAreCheckedEndsThatCheckAlone) {
  options_.idle_seconds_max = 1;
  Client client = Connect();
  client.Send(Framed("GET /x HTTP/1.1"));
  client.ReadTo("\r\n\r\nGET ");
  api_.memory_throws = true;
  while (api_.memory_throws) std::this_thread::yield();
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpConnectionTest, WorkOfAnAnswerHoldsUpNobodyAndTheAnswerIsLeftAlone) {
  std::latch began(1), goes_on(1);
  api_.script.steps = {{.last = true, .work = [&](AnswerStep& step) {
                          {
                            std::lock_guard lock(api_.script.mutex);
                            api_.script.pending_bytes = size_t{1} << 30;  // of a slow reader
                          }
                          began.count_down();
                          goes_on.wait();
                          step.events = "data: worked out\n\n";
                        }}};
  Client client = Connect();
  client.Send(Framed("GET /answer HTTP/1.1"));
  began.wait();
  for (int i = 0; i < 10; ++i) {  // sweeps come meanwhile
    EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 200"));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  {
    std::lock_guard lock(api_.script.mutex);
    EXPECT_TRUE(api_.script.ended.empty());
    api_.script.pending_bytes = 0;
  }
  goes_on.count_down();
  client.ReadTo("worked out");
}

TEST_F(HttpConnectionTest, AWholeAnswerHasATimeInAllHoweverSteadilyItIsRead) {
  constexpr size_t kPiece = 1 << 20, kPieces = 128;  // far more than sockets hold
  options_.write_seconds_max = 1;
  options_.answer_bytes_per_second = int64_t{1} << 40;
  api_.memory().SetLimits({.server_bytes = int64_t{1} << 30});
  api_.SetResponse({.body = std::string(kPieces * kPiece, 'x')});
  Client client = Connect();
  client.Send(Framed("GET /x HTTP/1.1", "Connection: close\r\n"));
  size_t read = 0;
  for (size_t got = kPiece; got == kPiece; read += got) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    got = client.Skip(kPiece);
  }
  EXPECT_LT(read, kPieces * kPiece);
}

TEST_F(HttpConnectionTest, AnIdleConnectionIsClosedWithoutAWord) {
  options_.idle_seconds_max = 1;
  Client client = Connect();
  client.Send(Framed("GET /x HTTP/1.1"));
  client.ReadTo("\r\n\r\nGET ");
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpConnectionTest, AStreamComesInChunksAndTheConnectionStays) {
  api_.script.steps = {{.events = "data: 1\n\n"}, {.events = "data: 2\n\n", .last = true}};
  Client client = Connect();
  client.Send(Framed("GET /answer HTTP/1.1"));
  const std::string head = client.ReadTo("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Request-Id: made\r\nX-Reply: 1\r\n"));
  EXPECT_EQ(client.ReadTo("0\r\n\r\n"), "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  client.Send(Framed("GET /x HTTP/1.1"));
  EXPECT_THAT(client.ReadTo("\r\n\r\nGET "), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, AStreamToHttp10IsPlainAndEndsWithTheConnection) {
  api_.script.steps = {{.events = "data: 1\n\n"}, {.events = "data: 2\n\n", .last = true}};
  Client client = Connect();
  client.Send("GET /answer HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadTo("\r\n\r\n"), HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(client.ReadAll(), "data: 1\n\ndata: 2\n\n");
}

TEST_F(HttpConnectionTest, AnAnswerThatDoesNotStreamIsOneResponse) {
  api_.script.streams = false;
  api_.script.steps = {{}, {.response = HttpResponse{.status = 503, .body = "late"}, .last = true}};
  EXPECT_THAT(Answer("GET /answer HTTP/1.1"), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpConnectionTest, AQuietStreamHasHeartbeatsAndAQuietAnswerHasNone) {
  options_.heartbeat_seconds = 1;
  Client stream = Connect();
  stream.Send(Framed("GET /answer HTTP/1.1"));
  EXPECT_THAT(stream.ReadTo(": ping\n\n"), HasSubstr("8\r\n: ping"));
}

TEST_F(HttpConnectionTest, APendingAnswerBecomesWhatItSettlesTo) {
  api_.script.pending = true;
  Client client = Connect();
  client.Send(Framed("GET /answer HTTP/1.1"));
  while (api_.seen().empty()) std::this_thread::yield();
  {
    std::lock_guard lock(api_.script.mutex);
    api_.script.settled = HttpResponse{.status = 400, .body = "refused"};
  }
  api_.script.wake();
  EXPECT_THAT(client.ReadTo("refused"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpConnectionTest, AClientThatLeavesEndsItsAnswer) {
  Client client = Connect();
  client.Send(Framed("GET /answer HTTP/1.1"));
  client.ReadTo("\r\n\r\n");
  EXPECT_FALSE(api_.script.destroyed);
  client.Close();
  while (!api_.script.destroyed) std::this_thread::yield();
}

TEST_F(HttpConnectionTest, AnAnswerThatIsNotReadIsEndedForItsSlowReader) {
  Client client = Connect();
  client.Send(Framed("GET /answer HTTP/1.1"));
  client.ReadTo("\r\n\r\n");
  {
    std::lock_guard lock(api_.script.mutex);
    api_.script.pending_bytes = limits::kUnsentBytesMax + 1;
  }
  while (true) {
    std::lock_guard lock(api_.script.mutex);
    if (!api_.script.ended.empty()) break;
  }
  EXPECT_EQ(api_.script.ended.at(0), EndReason::kSlowReader);
}

TEST_F(HttpConnectionTest, DrainingEndsWhatIsBeingMadeAfterItsTimeAndIdleConnectionsAtOnce) {
  Client idle = Connect(), busy = Connect();
  idle.Send(Framed("GET /x HTTP/1.1"));
  idle.ReadTo("\r\n\r\nGET ");
  busy.Send(Framed("GET /answer HTTP/1.1"));
  busy.ReadTo("\r\n\r\n");
  std::thread drain([&] { server_->Drain(1); });
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_THAT(busy.ReadAll(), HasSubstr("data: ended"));
  drain.join();
  std::lock_guard lock(api_.script.mutex);
  EXPECT_EQ(api_.script.ended.at(0), EndReason::kDrained);
}

TEST_F(HttpConnectionTest, AboveTheLimitProbesAreAnsweredAndOthersRefused) {
  options_.connections_max = 1;
  Client first = Connect();
  first.Send(Framed("GET /x HTTP/1.1"));
  first.ReadTo("\r\n\r\nGET ");
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(Answer("GET /probe?x HTTP/1.1"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(api_.seen().size(), 2U);
  first.Close();
  std::string again;
  while (!again.starts_with("HTTP/1.1 200")) again = Answer("GET /x HTTP/1.1");
}

TEST_F(HttpConnectionTest, ThereAreAsManyConnectionsAsTheMemoryHasRoomFor) {
  const auto prepare = static_cast<int64_t>(kBodyMax) * limits::kPrepareTimesBody;
  const auto count = static_cast<size_t>(limits::kConnectionsMin);
  const int64_t more = 2 * (limits::kConnectionsMin + 3) * limits::kConnectionBytes;
  std::list<Client> clients;
  const auto open = [&] {
    clients.emplace_back(Connect()).Send(Framed("GET /x HTTP/1.1"));
    return clients.back().ReadTo("\r\n\r\n").substr(0, 12);
  };
  api_.memory().SetLimits({.server_bytes = prepare});
  while (clients.size() < count) EXPECT_EQ(open(), "HTTP/1.1 200") << "some there always are";
  EXPECT_EQ(open(), "HTTP/1.1 503");
  clients.pop_back();
  api_.memory().SetLimits({.server_bytes = prepare + more});
  while (clients.size() < count + 3) EXPECT_EQ(open(), "HTTP/1.1 200");
  EXPECT_EQ(open(), "HTTP/1.1 503");
}

TEST(HttpLimits, ConnectionsHaveHalfOfTheMemoryOfBodies) {
  EXPECT_EQ(limits::ConnectionsIn(int64_t{256} << 20, false), 5461);
  EXPECT_EQ(limits::ConnectionsIn(int64_t{256} << 20, true), 1170);
  EXPECT_EQ(limits::ConnectionsIn(0, true), limits::kConnectionsMin);
}

TEST_F(HttpConnectionTest, OneAddressHasNoMoreConnectionsThanItsLimit) {
  options_.connections_per_address_max = 1;
  Client first = Connect();
  first.Send(Framed("GET /x HTTP/1.1"));
  first.ReadTo("\r\n\r\nGET ");
  EXPECT_THAT(Answer("GET /x HTTP/1.1"), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpConnectionTest, Http2IsRefusedInItsOwnFrames) {
  Client client = Connect();
  client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9), headers("\0\0\0\1\5\0\0\0\3", 9);
  client.Send(settings + headers);
  EXPECT_THAT(client.ReadAll(), HasSubstr("this server speaks HTTP/1.1 only"));
  EXPECT_TRUE(api_.seen().empty());
}

}  // namespace
}  // namespace braid
