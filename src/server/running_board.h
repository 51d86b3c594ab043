// The requests that run, by the ids that clients know: what is going on, for whoever looks, and the
// way for another connection to end one. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/types.h"

namespace braid {

// Belongs to whoever makes the answer, who keeps it up to date; on the board while the answer is
// being made.
struct RunningRequest {
  std::string id;         // "chatcmpl-…"
  std::string client_id;  // X-Request-Id; may be empty
  std::string tenant;
  std::string_view path;
  int64_t created = 0;  // seconds since 1970
  int64_t received_us = 0;
  int64_t prompt_tokens = 0;
  int32_t choices = 1;
  Wake wake = {};
  std::atomic<int64_t> cached_tokens = 0, output_tokens = 0;
  std::atomic<int64_t> admitted_us = 0, first_token_us = 0;  // 0: not yet
  std::atomic<bool> end_asked = false;
};

// A copy of it at one moment.
struct RunningView {
  std::string id, client_id, tenant, path;
  int64_t created = 0, received_us = 0, prompt_tokens = 0, choices = 1;
  int64_t cached_tokens = 0, output_tokens = 0, admitted_us = 0, first_token_us = 0;
  // "waiting", "prefill" or "decode".
  const char* phase() const;
};

class RunningBoard {
 public:
  void Add(RunningRequest& request);
  void Remove(RunningRequest& request);

  // Whose requests are meant; without a tenant everybody's.
  struct Whose {
    bool all = false;
    std::string tenant = {};
  };
  // How many requests were told to end. An empty id means all.
  int64_t End(const std::string& id, const Whose& whose);
  // In order of arrival.
  std::vector<RunningView> List(const Whose& whose) const;
  // The prompt tokens of requests that the engine has not taken up.
  int64_t WaitingTokens() const;

 private:
  mutable std::mutex mutex_;
  std::set<RunningRequest*> requests_;
};

}  // namespace braid
