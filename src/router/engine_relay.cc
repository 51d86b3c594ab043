// Beast parses the answers of engines.
#include "router/engine_relay.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <limits>

#include "base/clock.h"
#include "router/passed_fields.h"
#include "server/dialects/stream_error.h"
#include "server/http/await.h"
#include "server/http/framing.h"

namespace braid {

namespace http = boost::beast::http;

namespace {

using Failure = RouterMetrics::Failure;
constexpr size_t kPieceBytes = 16 << 10;  // of a body that is passed on at once
constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kSeenBytes = 4 << 10;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The number after the last "sequence_number": of some events; -1: there is none.
int64_t LastSequence(std::string_view events) {
  constexpr std::string_view kName = "\"sequence_number\":";
  const size_t at = events.rfind(kName);
  if (at == std::string_view::npos) return -1;
  int64_t number = -1;
  std::from_chars(events.data() + at + kName.size(), events.data() + events.size(), number);
  return number;
}

// The error of an engine that does not have what a request refers to; nullopt: another answer.
std::optional<ApiError> LackingIn(int status, std::string_view body) {
  constexpr std::string_view kCodes[] = {"previous_response_not_found", "item_not_found",
                                         "not_found"};
  const Result<json::value> value = ParseJson(body, "answer");
  if (!value || !value->is_object()) return std::nullopt;
  const json::value* error = value->get_object().if_contains("error");
  if (error == nullptr || !error->is_object()) return std::nullopt;
  const auto text = [&](std::string_view name) {
    const json::value* field = error->get_object().if_contains(name);
    return field != nullptr && field->is_string() ? std::string(field->get_string())
                                                  : std::string();
  };
  ApiError lacking{status, text("message"), text("param"), text("code")};
  if (std::ranges::count(kCodes, lacking.code) == 0) return std::nullopt;
  return lacking;
}

// Headers of an answer that pass through, each with its CRLF.
std::string FieldsForClient(const http::fields& fields) {
  const std::string connection(View(fields[http::field::connection]));
  std::string passed;
  for (const auto& field : fields) {
    const std::string_view name = View(field.name_string());
    if (IsHopByHop(name, connection)) continue;
    passed.append(name).append(": ").append(View(field.value())).append("\r\n");
  }
  return passed;
}

}  // namespace

// An engine's answer while it is read.
struct EngineRelay::Answer {
  UpstreamPointer upstream;
  std::optional<http::response_parser<http::buffer_body>> parser;
  bool any_byte = false;  // of the answer came
  bool unsent = false;    // the engine did not take all of the request
  size_t begun = 0;       // bytes of the body that are in piece_ and were not passed on

  int status() { return static_cast<int>(parser->get().result_int()); }
};

EngineRelay::~EngineRelay() { report_(outcome_); }

void EngineRelay::Stop(EndReason) {
  stopped_ = true;
  if (upstream_ != nullptr) upstream_->Close();
}

std::string EngineRelay::RequestHead(const FleetEngine& engine) const {
  std::string head =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n{}X-Request-Id: {}\r\n", order_.method,
                  order_.target, engine.address.authority(), order_.fields, order_.request_id);
  if (order_.method != "GET" || !order_.body.empty()) {
    head += fmt::format("Content-Length: {}\r\n", order_.body.size());
  }
  return head + "Via: 1.1 braid-router\r\n\r\n";
}

ApiError EngineRelay::WhyEnded() const {
  if (stopped_) return {503, "the server is shutting down", {}, "shutting_down"};
  return last_error_;
}

// Every engine may be the one that has what is stored.
int64_t EngineRelay::AttemptsMax() const {
  return looks_for_stored() ? std::numeric_limits<int64_t>::max() : fleet_.config().attempts;
}

asio::awaitable<Relay::End> EngineRelay::Run(ClientOutput& client) {
  // The loop below looks at client.gone() after every wait.
  co_await asio::this_coro::throw_if_cancelled(false);
  while (std::ssize(tried_) < AttemptsMax() && !stopped_) {
    const Fleet::Chosen chosen = fleet_.Choose(order_.prompt, tried_);
    if (chosen.engine == nullptr) break;
    if (!tried_.empty()) fleet_.metrics().CountRetry();
    tried_.push_back(chosen.engine->number);
    found_stored_ = chosen.choice.reason == Placer::Reason::kStored;
    const Try outcome = co_await TryEngine(chosen, client);
    if (client.gone()) {
      outcome_.status = 499;
      co_return End{};
    }
    if (outcome != Try::kAgain) co_return End{.complete = outcome == Try::kComplete};
  }
  if (tried_.empty() && !stopped_) {
    last_error_ = {
        503, fmt::format("no engine can take the request: {}", fleet_.WhyNone()), {}, "no_engine"};
  }
  if (began_) {
    const Try outcome = co_await Broken(client, WhyEnded());
    co_return End{.complete = outcome == Try::kComplete};
  }
  fleet_.metrics().CountRejection();
  outcome_.status = WhyEnded().status;
  co_return End{.response = ErrorResponse(WhyEnded(), IsAnthropic(order_.endpoint))};
}

asio::awaitable<EngineRelay::Try> EngineRelay::TryEngine(const Fleet::Chosen& chosen,
                                                         ClientOutput& client) {
  FleetEngine& engine = *chosen.engine;
  const bool generates = order_.prompt.generates;
  Stay stay(engine, generates ? chosen.choice.computed_tokens : 0);
  Answer answer;
  for (const bool fresh : {false, true}) {
    std::string why;
    answer.upstream = co_await fleet_.Connect(engine, fresh, &why);
    if (client.gone() || stopped_) co_return Try::kAgain;
    if (answer.upstream == nullptr) {
      last_error_ = {502,
                     fmt::format("engine {} cannot be reached: {}", engine.address.name, why),
                     {},
                     "engine_unreachable"};
      fleet_.Count(stay, Failure::kConnect);
      missed_ = true;
      co_return Try::kAgain;
    }
    upstream_ = answer.upstream.get();
    stay.Use(upstream_);
    answer.any_byte = false;
    const bool answered = co_await Ask(stay, answer);
    if (answered) break;
    const bool reused = answer.upstream->reused;
    upstream_ = nullptr;
    stay.Use(nullptr);
    if (client.gone() || stopped_) co_return Try::kAgain;
    // An engine may close an idle connection just when it is used again.
    if (reused && !answer.any_byte && !stay.lost()) continue;
    last_error_ = {502,
                   fmt::format("engine {} {} before it answered", engine.address.name,
                               stay.lost() ? "was lost" : "closed the connection"),
                   {},
                   "engine_lost"};
    fleet_.Count(stay, stay.lost() ? Failure::kLost : Failure::kBroken);
    missed_ = true;
    co_return Try::kAgain;
  }
  stay.Succeeded();
  const Try outcome = co_await UseAnswer(stay, answer, client);
  upstream_ = nullptr;
  co_return outcome;
}

// Passes an answer on, or says that another engine should be asked: this one has no room, or does
// not have the stored response that another may have.
asio::awaitable<EngineRelay::Try> EngineRelay::UseAnswer(Stay& stay, Answer& answer,
                                                         ClientOutput& client) {
  const std::string& name = stay.engine().address.name;
  const std::optional<ApiError> lacking = co_await ReadLacking(answer, client);
  if (client.gone() || stopped_) co_return Try::kAgain;
  // Others do not have the response of an engine that is known.
  const bool busy = answer.status() == 503 && !found_stored_;
  if ((busy || lacking) && MayAskOther()) {
    last_error_ = lacking.value_or(ApiError{503, fmt::format("engine {} answered 503", name)});
    missed_ = missed_ || busy;
    fleet_.Count(stay, Failure::kRefused);
    co_return Try::kAgain;
  }
  // That no engine has it would be for good.
  if (lacking && (missed_ || fleet_.HasPaused())) {
    last_error_ = {503,
                   fmt::format("an engine that may have it is busy or cannot be reached; try "
                               "again ({})",
                               lacking->message),
                   lacking->param, "engine_unavailable"};
    co_return Try::kAgain;
  }
  co_return co_await PassOn(stay, answer, client);
}

// If an engine may not have the response or item that the request names: why it does not. The
// beginning of the body is in piece_ then.
asio::awaitable<std::optional<ApiError>> EngineRelay::ReadLacking(Answer& answer,
                                                                  ClientOutput& client) {
  const int status = answer.status();
  if (!looks_for_stored() || (status != 400 && status != 404)) co_return std::nullopt;
  piece_.resize(kPieceBytes);
  while (!answer.parser->is_done() && answer.begun < piece_.size()) {
    size_t bytes = 0;
    const boost::system::error_code error = co_await ReadPiece(answer, &bytes);
    // PassOn gets a lasting error again.
    if (error || client.gone()) co_return std::nullopt;
    answer.begun += bytes;
  }
  if (!answer.parser->is_done()) co_return std::nullopt;
  co_return LackingIn(status, std::string_view(piece_.data(), answer.begun));
}

// Sends the request and reads the head of the answer. An engine may answer (413, 503) and close
// before it has read everything.
asio::awaitable<bool> EngineRelay::Ask(Stay& stay, Answer& answer) {
  Upstream& upstream = *answer.upstream;
  const std::string head = RequestHead(stay.engine());
  const std::array<asio::const_buffer, 2> bytes{asio::buffer(head), asio::buffer(order_.body)};
  auto [error, written] = co_await asio::async_write(upstream.socket, bytes, kTuple);
  if (error == asio::error::operation_aborted) co_return false;
  answer.unsent = error.failed();
  co_return co_await ReadHead(answer);
}

asio::awaitable<bool> EngineRelay::ReadHead(Answer& answer) {
  constexpr int kFirstFinal = 200;
  Upstream& upstream = *answer.upstream;
  do {  // past "100 Continue"
    answer.parser.emplace();
    answer.parser->body_limit(boost::none);
    answer.parser->header_limit(Upstream::kBufferBytes / 2);
    auto [error, got] =
        co_await http::async_read_header(upstream.socket, upstream.buffer, *answer.parser, kTuple);
    answer.any_byte = answer.any_byte || got > 0;
    if (error) co_return false;
  } while (answer.status() < kFirstFinal);
  co_return true;
}

// Reads some of the body into piece_, behind what has begun: what has come, without waiting for
// more.
asio::awaitable<boost::system::error_code> EngineRelay::ReadPiece(Answer& answer, size_t* bytes) {
  auto& parser = *answer.parser;
  auto& buffer = answer.upstream->buffer;
  auto& body = parser.get().body();
  body.data = piece_.data() + answer.begun;
  body.size = piece_.size() - answer.begun;
  for (;;) {
    boost::system::error_code error;
    while (!error && buffer.size() > 0 && !parser.is_done()) {
      buffer.consume(parser.put(buffer.data(), error));
    }
    const bool wait = error == http::error::need_more;
    if (wait || error == http::error::need_buffer) error = {};
    *bytes = piece_.size() - answer.begun - body.size;
    if (error || *bytes > 0 || parser.is_done()) co_return error;
    // What is left is the unfinished head of a chunk.
    if (buffer.size() > kReadBytes) co_return http::error::bad_chunk;
    auto [failed, got] =
        co_await answer.upstream->socket.async_read_some(buffer.prepare(kReadBytes), kTuple);
    buffer.commit(got);
    if (failed == asio::error::eof) parser.put_eof(error);
    if (failed && (failed != asio::error::eof || error)) co_return failed;
  }
}

// Whether another engine can be asked in place of passing an answer on. The client has nothing but
// comments so far: an engine that gave it more was the last one.
bool EngineRelay::MayAskOther() const {
  return std::ssize(tried_) < AttemptsMax() && fleet_.HasOther(tried_);
}

asio::awaitable<EngineRelay::Try> EngineRelay::PassOn(Stay& stay, Answer& answer,
                                                      ClientOutput& client) {
  auto& parser = *answer.parser;
  FleetEngine& engine = stay.engine();
  const bool streams = View(parser.get()[http::field::content_type]).starts_with("text/event-str");
  if (began_ && (!streams || answer.status() != 200)) {
    // Not as an argument in braces: GCC 12 copies such a temporary of a co_await byte by byte.
    last_error_ = {502,
                   fmt::format("engine {} answered {}", engine.address.name, answer.status()),
                   {},
                   "engine_lost"};
    co_return co_await Broken(client, WhyEnded());
  }
  streams_ = streams;
  piece_.resize(kPieceBytes);
  bool done = parser.is_done();
  const std::string_view begun(piece_.data(), std::exchange(answer.begun, 0));
  if (done || !begun.empty()) {
    const bool given = co_await Give(begun, stay, answer, client);
    if (!given) co_return Try::kCut;
  }
  while (!done) {
    size_t bytes = 0;
    const boost::system::error_code error = co_await ReadPiece(answer, &bytes);
    if (client.gone()) co_return Try::kCut;
    if (error) {
      fleet_.Count(stay, stay.lost() ? Failure::kLost : Failure::kBroken);
      last_error_ = {502,
                     fmt::format("engine {} was lost while it answered; send the request again",
                                 engine.address.name),
                     {},
                     "engine_lost"};
      if (!committed_ && !stopped_) {
        missed_ = true;
        cutter_ = {};
        co_return Try::kAgain;
      }
      co_return co_await Broken(client, WhyEnded());
    }
    done = parser.is_done();
    std::string_view out(piece_.data(), bytes);
    if (streams_) out = cutter_.Take(out);
    if (!out.empty() || (done && !began_ && !streams_)) {
      const bool given = co_await Give(out, stay, answer, client);
      if (!given) co_return Try::kCut;
    }
  }
  const std::string_view rest = cutter_.Rest();
  if (!rest.empty() || !began_) {
    const bool given = co_await Give(rest, stay, answer, client);
    if (!given) co_return Try::kCut;
  }
  if (parser.keep_alive() && !answer.unsent && answer.upstream->buffer.size() == 0) {
    stay.Use(nullptr);
    fleet_.Return(engine, std::move(answer.upstream));
  }
  co_return Try::kComplete;
}

// Gives the client a part of the body, with the head before the first.
asio::awaitable<bool> EngineRelay::Give(std::string_view bytes, Stay& stay, Answer& answer,
                                        ClientOutput& client) {
  if (!began_) {
    const auto length = answer.parser->content_length();
    std::optional<uint64_t> known;
    // A stream that breaks off gets one more event, so its length is not told.
    if (length && !streams_) known = *length;
    if (answer.parser->is_done() && bytes.empty()) known = 0;
    outcome_.status = answer.status();
    client.Begin(answer.status(), FieldsForClient(answer.parser->get()), known);
    began_ = true;
  }
  if (!committed_ && !(streams_ && OnlyComments(bytes))) {
    committed_ = true;
    stay.FirstByte();
    outcome_.first_byte_us = MonotonicUs() - order_.received_us;
    if (order_.prompt.generates) fleet_.metrics().ObserveFirstByte(outcome_.first_byte_us);
    std::string().swap(order_.body);  // frees it; an assignment would keep the memory
    client.BodyFreed();
  }
  if (order_.endpoint == kResponses) ReadIds(bytes, stay.engine());
  co_return co_await client.Write(bytes);
}

// Which engine has a response, and the numbers of its events.
void EngineRelay::ReadIds(std::string_view bytes, const FleetEngine& engine) {
  if (streams_) {
    if (const int64_t last = LastSequence(bytes); last >= 0) sequence_ = last + 1;
  }
  if (!order_.prompt.generates || seen_.size() >= kSeenBytes) return;
  seen_.append(bytes.substr(0, kSeenBytes - seen_.size()));
  constexpr std::string_view kStart = "\"id\":\"";
  const size_t at = seen_.find(kStart);
  const size_t begin = at + kStart.size();
  const size_t end = at == std::string::npos ? at : seen_.find('"', begin);
  if (end == std::string::npos) return;
  fleet_.placer().Stored(std::string_view(seen_).substr(begin, end - begin), engine.number);
  seen_.assign(kSeenBytes, ' ');
}

// The end of an answer of which the client has a part.
asio::awaitable<EngineRelay::Try> EngineRelay::Broken(ClientOutput& client, ApiError error) {
  fleet_.metrics().CountBrokenStream();
  if (!began_) {
    outcome_.status = error.status;
    co_return Try::kAgain;
  }
  outcome_.status = error.status;
  if (!streams_ || cutter_.torn()) co_return Try::kCut;
  const std::string events = StreamError(order_.endpoint, error, sequence_);
  const bool written = co_await client.Write(events);
  co_return written ? Try::kComplete : Try::kCut;
}

}  // namespace braid
