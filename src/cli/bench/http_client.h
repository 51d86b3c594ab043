// A small HTTP/1.1 client for the load generator and for evaluating through a server: many POSTs
// with a bounded number at the same time, on one thread (the caller's). No TLS.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace braid {

struct Endpoint {
  std::string host;
  std::string port;
  std::string path;  // before the API's paths, "/v1"; no slash at the end
};

// "http://127.0.0.1:8000/v1". Without a path it is /v1, as OpenAI's clients have it.
Result<Endpoint> ParseBaseUrl(std::string_view url);

struct HttpCall {
  std::string target;          // below the endpoint's path: "/chat/completions"
  std::string body;            // JSON; empty: a GET
  int64_t start_after_us = 0;  // since RunCalls began
};

// What came back, and when (MonotonicUs).
struct HttpOutcome {
  int status = 0;    // 0: no answer, see error
  std::string body;  // of answers that are not streams
  std::string error;
  int64_t sent_us = 0;
  int64_t ended_us = 0;
};

struct HttpLoad {
  Endpoint endpoint;
  std::string api_key;
  int32_t concurrency = 1;
  int32_t timeout_seconds = 600;  // of one call
  // The data of one server-sent event, as it arrives.
  std::function<void(size_t call, std::string_view data, int64_t at_us)> on_event;
  std::function<void(size_t call, HttpOutcome outcome)> on_end;
};

// Makes all calls, in order of their places, each not before its time.
void RunCalls(const HttpLoad& load, const std::vector<HttpCall>& calls);

// Splits a stream of server-sent events, fed in any pieces, into the data of its events.
class EventSplitter {
 public:
  void Push(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  std::string line_;
  std::string data_;
};

}  // namespace braid
