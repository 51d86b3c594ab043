// The request log: one line per answered request, without its text: time, caller, path, tokens,
// latency. A thread of its own writes the lines from a bounded queue; a slow or full disk drops and
// counts lines but never delays an answer. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace braid {

struct RequestRecord {
  int64_t unix_seconds = 0;  // of the end
  std::string_view method, path;
  int status = 200;
  std::string id;         // of the answer or the response
  std::string client_id;  // X-Request-Id as the client sent it
  std::string tenant;
  std::string finish;  // reasons, with commas; empty where nothing was generated
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  int64_t queue_us = -1, first_token_us = -1, total_us = 0;  // -1: the request did not get there
};

class RequestLog {
 public:
  // `path` is a file that is appended to, or "-" for standard output.
  static Result<std::unique_ptr<RequestLog>> Open(const std::string& path, bool json);
  ~RequestLog();

  void Add(const RequestRecord& record);
  // Reopens the file by its name, for log rotation.
  void Reopen();
  // Lines that did not reach the file.
  int64_t dropped() const { return dropped_; }

 private:
  struct State;
  explicit RequestLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  std::atomic<int64_t> dropped_ = 0;
};

// The line of a record, with its newline.
std::string RequestLine(const RequestRecord& record, bool json);

}  // namespace braid
