// The interface between the network (connection.h and http_server.h) and the API behind it:
// requests and answers as plain values. Only the network and relays (relay.h) know Asio and Beast.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "server/http/limits.h"
#include "server/http/memory_budget.h"

namespace braid {

// Who is at the other end of a connection.
struct HttpPeer {
  std::string address;
  bool admin_listener = false;     // the administration port
  bool loopback_listener = false;  // the port is bound to a loopback address
};

struct HttpRequest {
  std::string method;
  std::string path;          // without the query
  std::string query;         // after the ?
  std::string content_type;  // as sent; empty if absent
  std::string content_encoding;
  // Headers as they were sent; empty if absent.
  std::string authorization;
  std::string api_key;  // x-api-key
  std::string host;
  // What a browser tells about the requesting page.
  std::string origin;
  std::string fetch_site;     // Sec-Fetch-Site
  std::string asked_headers;  // Access-Control-Request-Headers
  std::string request_id;     // the client's X-Request-Id if it is well-formed, else empty
  std::string fields;         // all headers as they were sent, each with its CRLF
  std::string body;
  HttpPeer peer;
  int64_t received_us = 0;  // MonotonicUs of its last byte
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  int retry_after_seconds = 0;  // > 0: sent as Retry-After
  std::string allow = {};       // with 405
  std::string headers = {};     // further ones, each with its CRLF
  bool close = false;           // ends the connection
};

// Why the server, not the engine, ends an answer.
enum class EndReason { kDrained, kTooLong, kQueuedTooLong, kSlowReader, kAborted, kNoMemory };

// What Take gives. If `work` is set, it fills in the events or the response: it takes long, and may
// run on any thread while nothing else is asked of the answer.
struct AnswerStep {
  std::string events;                    // SSE bytes to send now, if the answer streams
  std::optional<HttpResponse> response;  // the whole answer, if it does not
  bool last = false;                     // nothing comes after this
  std::function<void(AnswerStep&)> work = nullptr;
};

class Answer;
class Relay;  // relay.h
struct DeleteRelay {
  void operator()(Relay* relay) const;
};
using RelayPointer = std::unique_ptr<Relay, DeleteRelay>;
// A response, an answer that is still being generated, or one that comes from another server.
using ReplyContent = std::variant<HttpResponse, std::unique_ptr<Answer>, RelayPointer>;

// An answer that the engine is working on. Used on the network thread, by its connection;
// destroying it aborts its generation.
class Answer {
 public:
  virtual ~Answer() = default;
  // True while it is undecided whether there will be an answer. Then the connection sends nothing
  // and calls Settle at each wake-up; the result replaces this object.
  virtual bool Pending() const { return false; }
  virtual std::optional<ReplyContent> Settle() { return std::nullopt; }
  virtual bool Streams() const = 0;
  // New output since the last call; may be empty.
  virtual AnswerStep Take() = 0;
  // Ends the answer. The next Take has the remaining output and the reason.
  virtual void End(EndReason reason) = 0;
  // The reason if a time limit has passed. Called a few times a second.
  virtual std::optional<EndReason> Overdue(int64_t now_us) const = 0;
  // Approximate size of what Take would return.
  virtual size_t PendingBytes() const = 0;
};

struct Reply {
  std::string request_id;    // goes out as X-Request-Id
  std::string headers = {};  // further ones, each with its CRLF, of an answer too
  ReplyContent content;
};

// Called whenever an answer's Take may have something new. Any thread; must not block.
using Wake = std::function<void()>;

class HttpApi {
 public:
  virtual ~HttpApi() = default;
  // The current body size limit.
  virtual size_t BodyBytesMax() const = 0;
  // The budget for bodies and their preparation. Any thread.
  virtual MemoryBudget& memory() = 0;
  // The memory that preparing a request takes, as a multiple of its body.
  virtual int64_t PrepareTimesBody() const { return limits::kPrepareTimesBody; }
  // True if Respond is quick, so that it may run on the network thread.
  virtual bool IsQuick(const HttpRequest& request) const = 0;
  // True for health probes, which are answered above the connection limits too.
  virtual bool IsProbe(std::string_view path) const = 0;
  // Any thread, several at once.
  virtual Reply Respond(HttpRequest request, Wake wake) = 0;
  // The error response for a request that did not get as far as Respond.
  virtual HttpResponse Refuse(int status, std::string message) = 0;
};

}  // namespace braid
