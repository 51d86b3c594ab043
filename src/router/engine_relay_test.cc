// A request's way to engines and the answer's way back. The client is a fake that keeps what it
// gets.
#include "router/engine_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/test_fleet.h"
#include "server/dialects/stream_error.h"

namespace braid {
namespace {

using testing::HasSubstr;

// A request on its way.
struct Relayed {
  TestClient client;
  std::optional<Relay::End> end;
  RelayOutcome outcome;  // known when `relay` is gone
  std::unique_ptr<EngineRelay> relay;
};

std::string Whole(std::string_view body, int status = 200, std::string_view fields = "") {
  return fmt::format("HTTP/1.1 {} -\r\n{}Content-Length: {}\r\n\r\n{}", status, fields, body.size(),
                     body);
}
// The beginning of a stream.
std::string Events(const std::vector<std::string>& pieces) {
  std::string text =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& piece : pieces) {
    text += fmt::format("{:x};a=b\r\n{}\r\n", piece.size(), piece);
  }
  return text;
}
const std::string kEnd = "0\r\n\r\n";
const TestEngine::Raw kHangsUp{.bytes = "", .ends = true}, kNothing{};

class EngineRelayTest : public FleetTest {
 protected:
  static RelayOrder Order(Endpoint endpoint = kCompletions) {
    return {.method = "POST",
            .target = "/v1/completions?a=b",
            .fields = "Authorization: Bearer of-client\r\n",
            .body = "{\"a\": 1}",
            .request_id = "r1",
            .received_us = MonotonicUs(),
            .endpoint = endpoint,
            .prompt = {.tokens = 100, .generates = true}};
  }
  static RelayOrder Continuing(const std::string& id) {
    RelayOrder order = Order(kResponses);
    order.prompt.stored_id = id;
    return order;
  }
  // Requests go to the engine that the last one did not go to, one_ first.
  void StartBoth() {
    policy_ = Policy::kRoundRobin;
    Start({one_.Address("a"), two_.Address("b")});
    ASSERT_TRUE(Is(0, "ready") && Is(1, "ready"));
  }
  void StartOne() {
    Start({one_.Address("a")});
    ASSERT_TRUE(Is(0, "ready"));
  }
  std::unique_ptr<Relayed> Begin(RelayOrder order) {
    auto relayed = std::make_unique<Relayed>();
    Relayed* at = relayed.get();
    at->relay = std::make_unique<EngineRelay>(
        fleet_, std::move(order), [at](const RelayOutcome& outcome) { at->outcome = outcome; });
    return relayed;
  }
  void Spawn(Relayed& relayed) {
    asio::co_spawn(io_, relayed.relay->Run(relayed.client),
                   [&relayed](const std::exception_ptr& failed, Relay::End end) {
                     EXPECT_FALSE(failed);
                     relayed.end = std::move(end);
                   });
  }
  void Finish(Relayed& relayed) {
    ASSERT_TRUE(Until([&] { return relayed.end.has_value(); }));
    relayed.relay.reset();
  }
  std::unique_ptr<Relayed> Send(RelayOrder order) {
    auto relayed = Begin(std::move(order));
    Spawn(*relayed);
    Finish(*relayed);
    return relayed;
  }
  // The error that the router itself answers with.
  static std::string ErrorOf(const Relayed& relayed) {
    EXPECT_EQ(relayed.client.status, 0);
    if (!relayed.end || !relayed.end->response) return "no response";
    EXPECT_EQ(relayed.end->response->status, relayed.outcome.status);
    return relayed.end->response->body;
  }
  size_t requests() const { return one_.requests.size() + two_.requests.size(); }
};

TEST_F(EngineRelayTest, TheEngineGetsTheRequestAndTheClientTheAnswer) {
  one_.raw = {{Whole("{ }", 201, "X-Of-Engine: 1\r\nConnection: X-Hop\r\nX-Hop: 2\r\n")}};
  StartOne();
  const auto posted = Send(Order());
  EXPECT_TRUE(posted->end->complete);
  EXPECT_FALSE(posted->end->response);
  EXPECT_EQ(posted->client.status, 201);
  EXPECT_EQ(posted->client.fields, "X-Of-Engine: 1\r\n");
  EXPECT_EQ(posted->client.length, 3u);
  EXPECT_EQ(posted->client.body, "{ }");
  EXPECT_EQ(posted->client.freed, 1);
  EXPECT_EQ(posted->outcome.status, 201);
  EXPECT_GE(posted->outcome.first_byte_us, 0);
  EXPECT_LT(posted->outcome.first_byte_us, 20'000'000);
  EXPECT_EQ(Engines(0, "idle_connections"), 1);
  EXPECT_EQ(Engines(0, "requests"), 0);
  RelayOrder get = Order();
  get.method = "GET";
  get.body.clear();
  get.prompt = {};
  EXPECT_TRUE(Send(std::move(get))->end->complete);
  EXPECT_EQ(Engines(0, "idle_connections"), 1) << "the same connection";
  ASSERT_EQ(one_.requests.size(), 2u);
  const auto& request = one_.requests[0];
  EXPECT_EQ(request.method_string(), "POST");
  EXPECT_EQ(request.target(), "/v1/completions?a=b");
  EXPECT_EQ(request["Host"], one_.Address("a").authority());
  EXPECT_EQ(request["Authorization"], "Bearer of-client");
  EXPECT_EQ(request["X-Request-Id"], "r1");
  EXPECT_EQ(request["Via"], "1.1 braid-router");
  EXPECT_EQ(request.body(), "{\"a\": 1}");
  EXPECT_EQ(one_.requests[1].method_string(), "GET");
  EXPECT_EQ(one_.requests[1].count("Content-Length"), 0u);
  RelayOrder empty = Order();
  empty.body.clear();
  Send(std::move(empty));
  EXPECT_EQ(one_.requests[2]["Content-Length"], "0") << "a POST says that it has no body";
  EXPECT_TRUE(Has("first_byte_seconds_count 2")) << "of requests that generate";
  EXPECT_TRUE(Has("requests_total{engine=\"a\"} 3"));
  EXPECT_TRUE(Has("rejections_total 0"));
}

TEST_F(EngineRelayTest, BodiesEndInEachWayThatTheyMay) {
  struct Row {
    TestEngine::Raw raw;
    std::string body;
    std::optional<uint64_t> length;
    bool kept;  // the connection
  };
  const std::string large(100'000, 'x');
  const Row rows[] = {
      {{"HTTP/1.1 204 No Content\r\n\r\n"}, "", 0, true},
      {{Whole("")}, "", 0, true},
      {{"HTTP/1.1 100 Continue\r\n\r\n" + Whole("abc")}, "abc", 3, true},
      {{Whole(large)}, large, large.size(), true},
      {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n" + kEnd},
       "abc",
       std::nullopt,
       true},
      {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + kEnd}, "", 0, true},
      {{Whole("abc", 200, "Connection: close\r\n")}, "abc", 3, false},
      {{Whole("abc") + "x"}, "abc", 3, false},
      {{"HTTP/1.1 200 OK\r\n\r\nabc", true}, "abc", std::nullopt, false}};
  for (const Row& row : rows) one_.raw.push_back(row.raw);
  StartOne();
  for (const Row& row : rows) {
    SCOPED_TRACE(row.raw.bytes.substr(0, 100));
    const auto got = Send(Order());
    EXPECT_TRUE(got->end->complete);
    EXPECT_EQ(got->client.body, row.body);
    EXPECT_EQ(got->client.length, row.length);
    EXPECT_GE(got->client.pieces.size(), 1u) << "a write sends the head";
    EXPECT_EQ(Engines(0, "idle_connections"), row.kept ? 1 : 0);
  }
  EXPECT_TRUE(Has("broken_streams_total 0"));
}

TEST_F(EngineRelayTest, AStreamIsGivenByWholeEventsAndItsLengthIsNotTold) {
  one_.raw = {{"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
               "Content-Length: 18\r\n\r\ndata: 1\n\ndata: 2\n\n"},
              {Events({"data: 1\n", "\ndata: 2\n\nda", "ta: 3"}) + kEnd},
              {Events({}) + kEnd}};
  StartOne();
  const auto whole = Send(Order());
  EXPECT_EQ(whole->client.body, "data: 1\n\ndata: 2\n\n");
  EXPECT_EQ(whole->client.length, std::nullopt);
  const auto cut = Send(Order());
  EXPECT_EQ(cut->client.body, "data: 1\n\ndata: 2\n\ndata: 3");
  EXPECT_EQ(cut->client.pieces.back(), "data: 3") << "the stream ends without a blank line";
  const auto none = Send(Order());
  EXPECT_EQ(none->client.status, 200);
  EXPECT_EQ(none->client.body, "");
  EXPECT_TRUE(whole->end->complete && cut->end->complete && none->end->complete);
}

TEST_F(EngineRelayTest, BeforeTheFirstByteAnotherEngineAnswers) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
  one_.raw = {kHangsUp,
              {"HTTP/1.1 200 OK\r\nConte", true},
              {Whole("{}", 503)},
              {head, true},
              {Events({": ping\n\n", "data: half"}), true},
              {"HTTP/1.1 200 OK\r\nX: " + std::string(40'000, 'x') + "\r\n\r\n"},
              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
               std::string(40'000, 'x')}};
  two_.raw = {{Events({": pong\n\n", "data: good\n\n"}) + kEnd}};
  StartBoth();
  for (size_t i = 1; i <= one_.raw.size(); ++i) {
    SCOPED_TRACE(i);
    const auto got = Send(Order());
    EXPECT_TRUE(got->end->complete);
    const std::string good = ": pong\n\ndata: good\n\n";
    EXPECT_EQ(got->client.body, i == 5 ? ": ping\n\n" + good : good);
    EXPECT_EQ(got->outcome.status, 200);
    ASSERT_EQ(one_.requests.size(), i);
    ASSERT_EQ(two_.requests.size(), i);
    EXPECT_EQ(two_.requests.back().body(), "{\"a\": 1}");
    EXPECT_TRUE(Has(fmt::format("retries_total {}", i)));
  }
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"broken\"} 6"));
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"refused\"} 1"));
  EXPECT_TRUE(Has("engine_failures_total{engine=\"b\",kind=\"broken\"} 0"));
  EXPECT_TRUE(Has("broken_streams_total 0"));
  EXPECT_TRUE(Has("first_byte_seconds_count 7"));
}

TEST_F(EngineRelayTest, WhenEveryEngineFailsTheLastErrorIsTheAnswer) {
  one_.raw = two_.raw = {kHangsUp};
  StartBoth();
  const auto failed = Send(Order());
  EXPECT_THAT(ErrorOf(*failed), HasSubstr("engine b closed the connection before it answered"));
  EXPECT_THAT(ErrorOf(*failed), HasSubstr("\"code\":\"engine_lost\""));
  EXPECT_EQ(failed->outcome.status, 502);
  EXPECT_FALSE(failed->end->complete);
  EXPECT_EQ(requests(), 2u);
  one_.Refuse();
  two_.Refuse();
  const auto unreachable = Send(Order(kMessages));
  EXPECT_THAT(ErrorOf(*unreachable), HasSubstr("engine b cannot be reached: Connection refused"));
  EXPECT_THAT(ErrorOf(*unreachable), HasSubstr("{\"type\":\"error\"")) << "the form of its API";
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"connect\"} 1"));
  fleet_.SetDraining("a", true);
  fleet_.SetDraining("b", true);
  const auto none = Send(Order());
  EXPECT_THAT(ErrorOf(*none), HasSubstr("no engine can take the request: a: draining; b: "));
  EXPECT_EQ(none->outcome.status, 503);
  EXPECT_EQ(none->outcome.first_byte_us, -1);
  EXPECT_TRUE(Has("rejections_total 3"));
}

TEST_F(EngineRelayTest, NoMoreEnginesAreAskedThanTheConfigurationSays) {
  one_.raw = two_.raw = {kHangsUp};
  attempts_ = 1;
  StartBoth();
  EXPECT_THAT(ErrorOf(*Send(Order())), HasSubstr("engine a closed"));
  EXPECT_EQ(requests(), 1u);
  two_.raw = {{Whole("{}", 503)}};
  const auto refused = Send(Order());
  EXPECT_EQ(refused->client.status, 503) << "the last refusal is passed on";
  EXPECT_EQ(requests(), 2u);
}

TEST_F(EngineRelayTest, TheLastRefusalIsPassedOnAsItIs) {
  one_.raw = two_.raw = {{Whole("busy", 503, "Retry-After: 7\r\n")}};
  StartBoth();
  const auto refused = Send(Order());
  EXPECT_EQ(refused->client.status, 503);
  EXPECT_EQ(refused->client.fields, "Retry-After: 7\r\n");
  EXPECT_EQ(refused->client.body, "busy");
  EXPECT_TRUE(refused->end->complete);
  EXPECT_EQ(requests(), 2u);
  EXPECT_TRUE(Has("rejections_total 0")) << "an engine has rejected it";
}

// More than the buffers of both sides hold, so the request cannot be sent whole.
TEST_F(EngineRelayTest, AnAnswerBeforeTheWholeRequestIsPassedOnAndTheConnectionNotKept) {
  one_.heads_only = true;
  one_.raw = {{Whole("too large", 413, "Connection: close\r\n"), true},
              {Whole("too large", 413), true}};
  StartOne();
  for (int i = 0; i < 2; ++i) {
    RelayOrder order = Order();
    order.body.assign(size_t{64} << 20, 'x');
    const auto refused = Send(std::move(order));
    EXPECT_EQ(refused->client.status, 413);
    EXPECT_EQ(refused->client.body, "too large");
    EXPECT_TRUE(refused->end->complete);
    EXPECT_EQ(Engines(0, "idle_connections"), 0);
  }
  EXPECT_EQ(requests(), 2u);
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"broken\"} 0"));
}

TEST_F(EngineRelayTest, AnIdleConnectionThatEndsWhenItIsUsedIsReplacedOnce) {
  one_.raw = {{Whole("1")}, kHangsUp,     {Whole("2")}, kHangsUp,
              kHangsUp,     {Whole("3")}, {"HTTP/1.1 200 OK\r\nConte", true}};
  StartOne();
  EXPECT_EQ(Send(Order())->client.body, "1");
  EXPECT_EQ(Send(Order())->client.body, "2");
  EXPECT_EQ(one_.requests.size(), 3u);
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"broken\"} 0"));
  EXPECT_THAT(ErrorOf(*Send(Order())), HasSubstr("engine a closed the connection"));
  EXPECT_EQ(one_.requests.size(), 5u) << "a new connection that ends is a failure";
  EXPECT_EQ(Send(Order())->client.body, "3");
  EXPECT_THAT(ErrorOf(*Send(Order())), HasSubstr("engine a closed the connection"));
  EXPECT_EQ(one_.requests.size(), 7u) << "it had begun to answer";
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"broken\"} 2"));
  EXPECT_TRUE(Has("retries_total 0"));
}

TEST_F(EngineRelayTest, AStreamThatBreaksOffEndsWithAnErrorInTheFormOfItsApi) {
  const std::string first =
      "data: {\"sequence_number\":7}\n\ndata: {\"sequence_number\":41}\n\n";
  one_.raw = {{Events({": ping\n\n", first, "data: half"}), true}};
  StartOne();
  const ApiError error{
      502, "engine a was lost while it answered; send the request again", {}, "engine_lost"};
  for (const Endpoint endpoint : {kCompletions, kChat, kMessages, kResponses}) {
    const auto got = Send(Order(endpoint));
    EXPECT_EQ(got->client.body, ": ping\n\n" + first + StreamError(endpoint, error, 42));
    EXPECT_EQ(got->client.status, 200);
    EXPECT_EQ(got->outcome.status, 502);
    EXPECT_TRUE(got->end->complete);
  }
  EXPECT_TRUE(Has("broken_streams_total 4"));
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"broken\"} 4"));
  EXPECT_TRUE(Has("rejections_total 0"));
}

TEST_F(EngineRelayTest, AnAnswerInWhichNoErrorFitsBreaksOff) {
  const std::string torn = "data: " + std::string(70'000, 'x');
  const TestEngine::Raw rows[] = {{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":", true},
                                  {Events({"data: 1\n\n", torn}), true}};
  for (const TestEngine::Raw& row : rows) {
    one_.raw.push_back(row);
    two_.raw = {{Whole("from another engine")}};
  }
  StartBoth();
  for (const bool stream : {false, true}) {
    if (stream) fleet_.SetDraining("b", true);
    const auto got = Send(Order());
    EXPECT_FALSE(got->end->complete);
    EXPECT_EQ(got->outcome.status, 502);
    EXPECT_TRUE(stream ? ("data: 1\n\n" + torn).starts_with(got->client.body)
                       : got->client.body == "{\"a\":");
    EXPECT_TRUE(!stream || got->client.body.size() > EventCutter::kHeldBytesMax);
  }
  EXPECT_TRUE(two_.requests.empty());
  EXPECT_TRUE(Has("broken_streams_total 2"));
}

TEST_F(EngineRelayTest, BehindCommentsAnAnswerThatIsNoStreamEndsItWithAnError) {
  one_.raw = {{Events({": ping\n\n"}), true}};
  two_.raw = {{Whole("{}")}, {Whole(": ping\n\n", 500, "Content-Type: text/event-stream\r\n")}};
  StartBoth();
  for (const int status : {200, 500}) {
    const auto got = Send(Order());
    EXPECT_THAT(got->client.body, testing::StartsWith(": ping\n\ndata: {\"error\""));
    EXPECT_THAT(got->client.body, HasSubstr(fmt::format("engine b answered {}", status)));
    EXPECT_THAT(got->client.body, testing::EndsWith("data: [DONE]\n\n"));
    EXPECT_TRUE(got->end->complete);
  }
}

TEST_F(EngineRelayTest, PromptsCountAsBacklogUntilMoreThanCommentsHasCome) {
  one_.raw = {kNothing, {Events({": ping\n\n"})}, {Events({": ping\n\n", "data: 1\n\n"})}};
  StartOne();
  const auto waiting = Begin(Order()), commented = Begin(Order()), answered = Begin(Order());
  Spawn(*waiting);
  ASSERT_TRUE(Until([&] { return one_.requests.size() == 1; }));
  EXPECT_EQ(Engines(0, "backlog_tokens"), 100);
  Spawn(*commented);
  ASSERT_TRUE(Until([&] { return commented->client.body == ": ping\n\n"; }));
  EXPECT_EQ(Engines(0, "backlog_tokens"), 200);
  EXPECT_EQ(commented->client.freed, 0);
  Spawn(*answered);
  ASSERT_TRUE(Until([&] { return answered->client.body.ends_with("data: 1\n\n"); }));
  EXPECT_EQ(Engines(0, "backlog_tokens"), 200);
  EXPECT_EQ(answered->client.freed, 1);
  EXPECT_EQ(Engines(0, "requests"), 3);
  RelayOrder tokenizes = Order();
  tokenizes.prompt.generates = false;
  const auto quick = Begin(std::move(tokenizes));
  one_.raw = {kNothing};
  Spawn(*quick);
  ASSERT_TRUE(Until([&] { return one_.requests.size() == 4; }));
  EXPECT_EQ(Engines(0, "backlog_tokens"), 200) << "it computes no prompt";
  for (Relayed* one : {waiting.get(), commented.get(), answered.get(), quick.get()}) {
    one->relay->Stop(EndReason::kDrained);
    Finish(*one);
  }
  EXPECT_EQ(Engines(0, "backlog_tokens"), 0);
}

TEST_F(EngineRelayTest, AStopEndsEachAnswerWhereverItIs) {
  one_.raw = {kNothing, {Events({": ping\n\n"})}, {Events({"data: 1\n\n"})}};
  StartBoth();
  fleet_.SetDraining("b", true);
  const ApiError error{503, "the server is shutting down", {}, "shutting_down"};
  const std::string event = StreamError(kCompletions, error);
  const std::string begun[] = {"", ": ping\n\n", "data: 1\n\n"};
  for (size_t i = 0; i < 3; ++i) {
    const auto stopped = Begin(Order());
    Spawn(*stopped);
    ASSERT_TRUE(Until(
        [&] { return one_.requests.size() == i + 1 && stopped->client.body == begun[i]; }));
    fleet_.SetDraining("b", false);
    stopped->relay->Stop(EndReason::kDrained);
    Finish(*stopped);
    fleet_.SetDraining("b", true);
    EXPECT_EQ(stopped->outcome.status, 503);
    if (i == 0) {
      EXPECT_THAT(ErrorOf(*stopped), HasSubstr("\"code\":\"shutting_down\""));
    } else {
      EXPECT_EQ(stopped->client.body, begun[i] + event);
      EXPECT_TRUE(stopped->end->complete);
    }
  }
  const auto early = Begin(Order());
  early->relay->Stop(EndReason::kDrained);
  Spawn(*early);
  Finish(*early);
  EXPECT_THAT(ErrorOf(*early), HasSubstr("shutting_down"));
  EXPECT_EQ(requests(), 3u);
}

TEST_F(EngineRelayTest, AClientThatLeavesEndsItsRequest) {
  one_.raw = {{Events({"data: 1\n\n"})}, kNothing};
  StartBoth();
  fleet_.SetDraining("b", true);
  const auto reading = Begin(Order()), waiting = Begin(Order());
  reading->client.leaves_after = 1;
  Spawn(*reading);
  Finish(*reading);
  Spawn(*waiting);
  ASSERT_TRUE(Until([&] { return one_.requests.size() == 2; }));
  fleet_.SetDraining("b", false);
  waiting->client.left = true;
  one_.Stop();
  Finish(*waiting);
  for (const Relayed* one : {reading.get(), waiting.get()}) {
    EXPECT_EQ(one->outcome.status, 499);
    EXPECT_FALSE(one->end->complete);
    EXPECT_FALSE(one->end->response);
  }
  EXPECT_TRUE(two_.requests.empty());
  EXPECT_TRUE(Has("broken_streams_total 0"));
  EXPECT_TRUE(Has("rejections_total 0"));
}

TEST_F(EngineRelayTest, AClientThatDoesNotReadEndsItsRequest) {
  one_.raw = {{Events({"data: 1\n\n"})}, {Whole("abc")}};
  StartOne();
  for (int i = 0; i < 2; ++i) {
    auto stuck = Begin(Order());
    stuck->client.refuses_after = 1;
    Spawn(*stuck);
    Finish(*stuck);
    EXPECT_FALSE(stuck->end->complete);
    EXPECT_EQ(stuck->client.pieces.size(), 1u);
    EXPECT_EQ(Engines(0, "idle_connections"), 0) << "the answer may go on";
  }
}

TEST_F(EngineRelayTest, ARequestAtAnEngineThatIsLostIsSentToAnother) {
  one_.raw = {{Whole("1")}, kNothing};
  two_.raw = {{Whole("2")}};
  lease_ms_ = 1000;
  StartBoth();
  EXPECT_EQ(Send(Order())->client.body, "1");
  EXPECT_EQ(Send(Order())->client.body, "2");
  const auto lost = Begin(Order());  // over the connection that was idle
  Spawn(*lost);
  ASSERT_TRUE(Until([&] { return one_.requests.size() == 2; }));
  one_.silent = true;
  Finish(*lost);
  EXPECT_EQ(lost->client.body, "2");
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"lost\"} 1"));
  EXPECT_TRUE(Has("retries_total 1"));
}

std::string Lacking(std::string_view code, int status = 400) {
  return Whole(fmt::format(R"({{"error":{{"message":"no {0}","param":"p","code":"{0}"}}}})", code),
               status);
}

TEST_F(EngineRelayTest, WhatIsStoredIsLookedForAtEveryEngine) {
  two_.raw = {{Whole("found")}};
  attempts_ = 1;
  StartBoth();
  for (const std::string& lacking :
       {Lacking("previous_response_not_found"), Lacking("item_not_found"),
        Lacking("not_found", 404)}) {
    one_.raw = {{lacking}};
    EXPECT_EQ(Send(Continuing("resp_1"))->client.body, "found");
  }
  RelayOrder items = Order(kResponses);
  items.prompt.names_items = true;
  EXPECT_EQ(Send(std::move(items))->client.body, "found");
  EXPECT_EQ(requests(), 8u);
  EXPECT_TRUE(Has("engine_failures_total{engine=\"a\",kind=\"refused\"} 4"));
  // Without it there is nothing to look for.
  EXPECT_EQ(Send(Order(kResponses))->client.status, 404);
  EXPECT_EQ(requests(), 9u);
  fleet_.SetDraining("a", true);
  two_.raw = {{Lacking("not_found", 404)}};
  EXPECT_EQ(Send(Continuing("resp_1"))->client.status, 404);
}

TEST_F(EngineRelayTest, OtherErrorsOfRequestsForWhatIsStoredAreFinal) {
  const std::string long_body =
      "{\"error\":{\"code\":\"not_found\"}," + std::string(20'000, ' ') + "\"a\":1}";
  const std::pair<int, std::string> rows[] = {
      {400, "{\"error\":{\"message\":\"x\",\"code\":null}}"},
      {400, "{\"error\":\"not_found\"}"},
      {400, "[\"not_found\"]"},
      {400, "not_found"},
      {422, "{\"error\":{\"code\":\"not_found\"}}"},
      {200, "{\"error\":{\"code\":\"not_found\"}}"},
      {404, long_body}};
  for (const auto& [status, body] : rows) {
    one_.raw.push_back({Whole(body, status, "X: 1\r\n")});
  }
  two_.raw = {{Whole("another")}};
  StartBoth();
  fleet_.SetDraining("b", true);
  for (const auto& [status, body] : rows) {
    SCOPED_TRACE(body.substr(0, 50));
    auto final = Begin(Continuing("resp_1"));
    Spawn(*final);
    ASSERT_TRUE(Until([&] { return one_.requests.size() > 0; }));
    fleet_.SetDraining("b", false);
    Finish(*final);
    fleet_.SetDraining("b", true);
    one_.requests.clear();
    one_.raw.erase(one_.raw.begin());
    EXPECT_EQ(final->client.status, status);
    EXPECT_EQ(final->client.fields, "X: 1\r\n");
    EXPECT_EQ(final->client.body, body);
    EXPECT_EQ(final->client.length, body.size());
  }
  EXPECT_TRUE(two_.requests.empty());
}

TEST_F(EngineRelayTest, WhatAnEngineThatFailedMayHaveIsNotSaidToBeUnknown) {
  two_.raw = {{Lacking("not_found", 404)}};
  StartBoth();
  const auto unavailable = [&](const TestEngine::Raw& first) {
    one_.raw = {first};
    return ErrorOf(*Send(Continuing("resp_1")));
  };
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
  for (const TestEngine::Raw& first :
       {TestEngine::Raw{Whole("{}", 503)}, kHangsUp, TestEngine::Raw{head, true}}) {
    const std::string error = unavailable(first);
    EXPECT_THAT(error, HasSubstr("may have it is busy or cannot be reached; try again (no not_fo"));
    EXPECT_THAT(error, HasSubstr("\"param\":\"p\",\"code\":\"engine_unavailable\""));
  }
  // Three failures in a row, and nothing is sent there for a while.
  for (int i = 0; i < 3; ++i) unavailable(kHangsUp);
  EXPECT_EQ(Engines(0, "breaker_open"), true);
  EXPECT_THAT(unavailable(kHangsUp), HasSubstr("engine_unavailable"));
}

TEST_F(EngineRelayTest, WhatAnEngineThatCannotBeReachedMayHaveIsNotSaidToBeUnknown) {
  two_.raw = {{Lacking("not_found", 404)}};
  StartBoth();
  one_.Refuse();
  EXPECT_THAT(ErrorOf(*Send(Continuing("resp_1"))), HasSubstr("engine_unavailable"));
  EXPECT_EQ(two_.requests.size(), 1u);
}

TEST_F(EngineRelayTest, AResponseIsKnownToBeAtTheEngineThatMadeIt) {
  const std::string created = "data: {\"response\":{\"id\":\"resp_2\",\"x\":\"";
  one_.raw = {{Whole("{\"id\":\"resp_1\",\"output\":[{\"id\":\"msg_1\"}]}")},
              {Events({created + "y\"}}\n\n", "data: {\"id\":\"msg_2\"}\n\n"}) + kEnd},
              {Whole("{\"x\":\"" + std::string(5000, 'x') + "\",\"id\":\"resp_3\"}")},
              {Whole("{\"id\":\"chat_1\"}")},
              {Whole("busy", 503)}};
  two_.raw = {{Whole("another")}};
  StartBoth();
  fleet_.SetDraining("b", true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Send(Order(kResponses))->client.status, 200);
  EXPECT_EQ(Send(Order(kChat))->client.status, 200);
  fleet_.SetDraining("b", false);
  for (const char* id : {"resp_1", "resp_2"}) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(Send(Continuing(id))->client.body, "busy") << "others do not have it";
    }
  }
  EXPECT_TRUE(two_.requests.empty());
  for (const char* id : {"msg_1", "msg_2", "resp_3", "chat_1"}) {
    const Placer::Choice choice = fleet_.Choose(Continuing(id).prompt, {}).choice;
    EXPECT_NE(choice.reason, Placer::Reason::kStored) << id;
  }
}

}  // namespace
}  // namespace braid
