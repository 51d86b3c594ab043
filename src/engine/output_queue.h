// Carries outputs of any number of requests from the engine thread to a waiting command, in order.
// Any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "scheduler/driver.h"

namespace braid {

struct TimedOutput {
  Output output;
  int64_t at_us = 0;  // MonotonicUs when the engine gave it
};

class OutputQueue : public OutputSink {
 public:
  void OnOutput(Output output) override;
  // The next output; waits for it.
  TimedOutput Next();
  // The next output, or nothing after this many milliseconds.
  std::optional<TimedOutput> NextWithin(int milliseconds);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<TimedOutput> queue_;
};

// The whole result of one request.
struct RequestResult {
  std::vector<TokenId> tokens;
  int64_t submitted_us = 0;       // MonotonicUs
  std::vector<int64_t> token_us;  // when each token came
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenLogprob> prompt_logprobs;
  FinishReason finish = FinishReason::kAbort;
  std::string error;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;

  void Add(TimedOutput timed);
  // From Submit to the first token; there must be one.
  double ttft_ms() const { return static_cast<double>(token_us.front() - submitted_us) * 1e-3; }
};

// Runs the requests, whose ids it assigns, with at most `in_flight_max` submitted at once, and no
// more than the scheduler's queue holds. Calls `done` with each answer and its index as it ends.
// Stops at the first request that fails.
Status RunRequests(Driver& driver, std::vector<Request> requests, size_t in_flight_max,
                   const std::function<void(size_t index, RequestResult answer)>& done);

}  // namespace braid
