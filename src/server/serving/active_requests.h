// The requests that wait or run, by the ids that clients know: for /v1/running, and so that another
// connection can end one. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/api_keys.h"
#include "server/http/types.h"

namespace braid {

// Kept up to date by the Generation that makes the answer; what is not atomic never changes once it
// is listed.
struct ActiveRequest {
  std::string id;         // "chatcmpl-…"
  std::string client_id;  // X-Request-Id, else the body's request_id; may be empty
  std::string body_id;    // the body's request_id, where a router sets X-Request-Id; may be empty
  std::string tenant;
  std::string_view path;
  int64_t created = 0;  // seconds since 1970
  int64_t received_us = 0;
  int64_t prompt_tokens = 0;
  int32_t choices = 1;
  Wake wake = {};
  std::atomic<int64_t> waiting_tokens = 0;  // of prompts, of choices that were never admitted
  std::atomic<int64_t> cached_tokens = 0, output_tokens = 0;
  std::atomic<int64_t> admitted_us = 0, first_token_us = 0;  // 0: not yet
  std::atomic<bool> end_asked = false;
};

// A snapshot of one.
struct ActiveRequestView {
  std::string id, client_id, tenant, path;
  int64_t created = 0, received_us = 0, prompt_tokens = 0, choices = 1;
  int64_t cached_tokens = 0, output_tokens = 0, admitted_us = 0, first_token_us = 0;
  // "waiting", "prefill" or "decode".
  const char* phase() const;
};

class ActiveRequests {
 public:
  struct Removal {
    ActiveRequests* from = nullptr;
    void operator()(ActiveRequest* request) const;
  };
  // A request that is listed until this is destroyed.
  using Entry = std::unique_ptr<ActiveRequest, Removal>;
  Entry Add(std::unique_ptr<ActiveRequest> request);

  // Ends the requests with this id, of the server, the client or the body, that the caller sees; an
  // empty id means all of them. Returns how many were not ending already.
  int64_t End(const std::string& id, const Caller& caller);
  // Those that the caller may see, in order of arrival.
  std::vector<ActiveRequestView> List(const Caller& caller) const;
  // Prompt tokens of choices that the engine has not admitted.
  int64_t WaitingTokens() const;

 private:
  mutable std::mutex mutex_;
  std::set<ActiveRequest*> requests_;
};

}  // namespace braid
