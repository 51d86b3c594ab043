// Heads of requests: what passes, what is refused, and where exactly the limits are.
#include "server/http/framing.h"

#include <gtest/gtest.h>

#include <string>

#include "server/http/limits.h"

namespace braid {
namespace {

std::string Head(const std::string& fields, const std::string& line = "POST /x HTTP/1.1") {
  return line + "\r\nHost: a\r\n" + fields + "\r\n";
}

int StatusOfHead(const std::string& head) {
  auto refusal = CheckHead(head);
  return refusal ? refusal->status : 200;
}

TEST(HttpFraming, OrdinaryHeadsPass) {
  EXPECT_EQ(StatusOfHead(Head("Content-Length: 12\r\nAccept: */*\r\n")), 200);
  EXPECT_EQ(StatusOfHead(Head("Transfer-Encoding: chunked\r\n")), 200);
  EXPECT_EQ(StatusOfHead("GET / HTTP/1.0\r\n\r\n"), 200);
}

TEST(HttpFraming, AmbiguousFramingIsRefused) {
  const std::string refused[] = {
      "Content-Length: 1\r\nContent-Length: 1\r\n",
      "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: gzip\r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
      "Content-Length: +1\r\n",
      "Content-Length: 1, 1\r\n",
      "Content-Length:\r\n",
      "Content-Length : 1\r\n",
      "A: b\r\n folded\r\n",
      "A: b\r\n\tfolded\r\n",
      "A: b\nB: c\r\n",
      "A: b\rB: c\r\n",
      "no colon\r\n",
      ": no name\r\n",
      "Host: b\r\n",
      std::string("A: \0\r\n", 6),
  };
  for (const std::string& fields : refused) EXPECT_EQ(StatusOfHead(Head(fields)), 400) << fields;
  EXPECT_EQ(StatusOfHead("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
  for (const char* line : {"GET ?/v1 HTTP/1.1", "GET v1 HTTP/1.1", "GET http://a/ HTTP/1.1",
                           "GET /\xa2 HTTP/1.1", "GET /\ta HTTP/1.1", "G\xc3\xa9T / HTTP/1.1"}) {
    EXPECT_EQ(StatusOfHead(Head("", line)), 400) << line;
  }
  EXPECT_EQ(StatusOfHead(Head("", "OPTIONS * HTTP/1.1")), 200);
  for (const char byte : {'\x01', '\x0b', '\x1b', '\x7f'}) {
    EXPECT_EQ(StatusOfHead(Head(std::string("A: b") + byte + "c\r\n")), 400) << int{byte};
  }
  EXPECT_EQ(StatusOfHead(Head("A: b\tc\r\nB: \xc3\xa9\r\n")), 200);
  EXPECT_EQ(StatusOfHead(Head("Transfer-Encoding: chunked\r\n", "POST /x HTTP/1.0")), 400);
}

TEST(HttpFraming, SizesAreAcceptedAtTheLimitAndRefusedAboveIt) {
  auto target = [](size_t bytes) {
    return Head("", "GET /" + std::string(bytes - 1, 'a') + " HTTP/1.1");
  };
  EXPECT_EQ(StatusOfHead(target(limits::kTargetBytesMax)), 200);
  EXPECT_EQ(StatusOfHead(target(limits::kTargetBytesMax + 1)), 414);
  auto header = [](size_t bytes) { return Head("A:" + std::string(bytes - 2, 'a') + "\r\n"); };
  EXPECT_EQ(StatusOfHead(header(limits::kHeaderBytesMax)), 200);
  EXPECT_EQ(StatusOfHead(header(limits::kHeaderBytesMax + 1)), 431);
  auto count = [](size_t n) {
    std::string fields;
    for (size_t i = 1; i < n; ++i) fields += "A: b\r\n";
    return Head(fields);
  };
  EXPECT_EQ(StatusOfHead(count(limits::kHeadersMax)), 200);
  EXPECT_EQ(StatusOfHead(count(limits::kHeadersMax + 1)), 431);
  std::string many;
  for (int i = 0; i < 5; ++i) many += "A: " + std::string(8000, 'a') + "\r\n";
  EXPECT_EQ(StatusOfHead(Head(many)), 431);
}

TEST(HttpFraming, AHeadThatNeverEndsIsRefusedBeforeItEnds) {
  EXPECT_FALSE(CheckUnfinishedHead("GET / HT"));
  EXPECT_EQ(CheckUnfinishedHead("GET " + std::string(9000, 'a'))->status, 414);
  EXPECT_EQ(CheckUnfinishedHead(std::string(9000, 'a'))->status, 414);
  EXPECT_EQ(CheckUnfinishedHead("GET / HTTP/1.1\r\n" + std::string(40000, 'a'))->status, 431);
}

TEST(HttpFraming, ALineThatEndsWithLfIsRefusedAtOnce) {
  for (const char* head :
       {"GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: a\n", "\n", "GET / HTTP/1.1\nHost: a\n\n"}) {
    const auto refusal = CheckUnfinishedHead(head);
    ASSERT_TRUE(refusal) << head;
    EXPECT_EQ(refusal->status, 400) << head;
  }
  EXPECT_FALSE(CheckUnfinishedHead("GET / HTTP/1.1\r\nHost: a\r\n"));
  EXPECT_FALSE(CheckUnfinishedHead("GET / HTTP/1.1\r"));
}

TEST(HttpFraming, AnUpgradeIsIgnoredAndOtherExpectationsAreNot) {
  EXPECT_EQ(StatusOfHead(Head("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n")), 200);
  EXPECT_EQ(StatusOfHead(Head("Expect: 100-Continue\r\n")), 200);
  EXPECT_EQ(StatusOfHead(Head("Expect: banana\r\n")), 417);
  EXPECT_EQ(StatusOfHead(Head("Expect:\r\n")), 417);
}

TEST(HttpFraming, AClientOfHttp2IsToldToSpeakHttp11) {
  using std::string_literals::operator""s;
  const std::string settings = "\0\0\6\4\0\0\0\0\0\0\3\0\0\0\x64"s;
  const std::string window = "\0\0\4\x08\0\0\0\0\0\0\1\0\0"s;
  const std::string headers = "\0\0\2\1\5\0\0\1\3ab"s;
  const std::string sent = "SM\r\n\r\n" + settings + window + headers;
  EXPECT_EQ(Http2RequestStream(sent), 0x103U);
  for (size_t cut = 0; cut + 2 < sent.size(); ++cut) {
    EXPECT_EQ(Http2RequestStream(sent.substr(0, cut)), 0U) << cut;
  }
  std::string start = "\0\0\0\4\0\0\0\0\0"s;
  start.append("\0\0\0\4\1\0\0\0\0"s);
  const std::string why = "\0\0\0\x0dthis server speaks HTTP/1.1 only"s;
  EXPECT_EQ(Http2Refusal(0), start + "\0\0\x28\7\0\0\0\0\0\0\0\0\0"s + why);
  const std::string answer = Http2Refusal(3);
  EXPECT_TRUE(answer.starts_with(start + "\0\0\x18\1\4\0\0\0\3\x08\x03"
                                         "505"s));
  EXPECT_TRUE(answer.ends_with("\0\0\x28\7\0\0\0\0\0\0\0\0\3"s + why));
  EXPECT_NE(answer.find(R"({"error":{"message":"this server)"), std::string::npos);
}

TEST(HttpFraming, RequestIdsAreShortAndPlain) {
  EXPECT_TRUE(IsRequestId("a-B_9.:"));
  EXPECT_TRUE(IsRequestId(std::string(128, 'a')));
  EXPECT_FALSE(IsRequestId(std::string(129, 'a')));
  EXPECT_FALSE(IsRequestId(""));
  EXPECT_FALSE(IsRequestId("a b"));
  EXPECT_FALSE(IsRequestId("a\r\nSet-Cookie: x"));
}

TEST(HttpFraming, EventsAndChunksHaveTheirExactBytes) {
  EXPECT_EQ(SseEvent(R"({"a":1})"), "data: {\"a\":1}\n\n");
  EXPECT_EQ(HttpChunk("0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
}

}  // namespace
}  // namespace braid
