// Addresses and event streams of the client.
#include "cli/bench/http_client.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(HttpClient, ReadsBaseUrls) {
  const auto plain = ParseBaseUrl("http://127.0.0.1:8000/v1/");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, "8000");
  EXPECT_EQ(plain->path, "/v1");
  EXPECT_EQ(ParseBaseUrl("http://host")->path, "/v1");
  EXPECT_EQ(ParseBaseUrl("http://host")->port, "80");
  EXPECT_EQ(ParseBaseUrl("http://[::1]:81/api")->host, "::1");
  EXPECT_EQ(ParseBaseUrl("http://[::1]:81/api")->port, "81");
  EXPECT_EQ(ParseBaseUrl("http://[::1]/api")->port, "80");
}

TEST(HttpClient, RefusesWhatIsNoAddress) {
  for (const char* url :
       {"https://host", "host:8000", "http://", "http://host:x", "http://host:", "http://[::1"}) {
    EXPECT_FALSE(ParseBaseUrl(url)) << url;
  }
}

TEST(HttpClient, EventsAreTheSameHoweverTheStreamIsCut) {
  const std::string stream =
      ": hello\r\n\r\ndata: {\"a\":1}\n\nevent: x\ndata:b\ndata: c\n\ndata: d\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EventSplitter splitter;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += piece) {
      splitter.Push(std::string_view(stream).substr(at, piece),
                    [&](std::string_view data) { events.emplace_back(data); });
    }
    EXPECT_EQ(events, (std::vector<std::string>{"{\"a\":1}", "b\nc"})) << piece;
  }
}

}  // namespace
}  // namespace braid
