// The mutex-guarded queue, and requests run through it a window at a time.
#include "engine/output_queue.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/clock.h"

namespace braid {

void OutputQueue::OnOutput(Output output) {
  const int64_t now_us = MonotonicUs();
  std::lock_guard lock(mutex_);
  queue_.push_back({std::move(output), now_us});
  // Under the lock: the waiting thread may take the last output and destroy the queue.
  arrived_.notify_one();
}

TimedOutput OutputQueue::Next() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return !queue_.empty(); });
  TimedOutput first = std::move(queue_.front());
  queue_.pop_front();
  return first;
}

std::optional<TimedOutput> OutputQueue::NextWithin(int milliseconds) {
  std::unique_lock lock(mutex_);
  const bool some = arrived_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                      [&] { return !queue_.empty(); });
  if (!some) return std::nullopt;
  TimedOutput first = std::move(queue_.front());
  queue_.pop_front();
  return first;
}

void RequestResult::Add(TimedOutput timed) {
  Output& output = timed.output;
  tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  token_us.insert(token_us.end(), output.tokens.size(), timed.at_us);
  for (TokenLogprob& entry : output.logprobs) logprobs.push_back(std::move(entry));
  for (TokenLogprob& entry : output.prompt_logprobs) prompt_logprobs.push_back(std::move(entry));
  prompt_tokens = output.prompt_tokens;
  cached_tokens = output.cached_tokens;
  if (output.finish) finish = *output.finish;
  if (!output.error.empty()) error = std::move(output.error);
}

Status RunRequests(Driver& driver, std::vector<Request> requests, size_t in_flight_max,
                   const std::function<void(size_t index, RequestResult answer)>& done) {
  in_flight_max = std::min(in_flight_max, static_cast<size_t>(driver.config().waiting_max));
  OutputQueue queue;
  std::map<RequestId, std::pair<size_t, RequestResult>> running;
  Status failed;
  size_t next = 0;
  while (next < requests.size() || !running.empty()) {
    while (failed && next < requests.size() && running.size() < in_flight_max) {
      Request& request = requests[next];
      request.id = driver.NewRequestId();
      const RequestId id = request.id;
      const int64_t submitted_us = MonotonicUs();
      if (Status status = driver.Submit(std::move(request), &queue); !status) {
        failed = status;
        break;
      }
      running[id].first = next++;
      running[id].second.submitted_us = submitted_us;
    }
    if (!failed) next = requests.size();
    if (running.empty()) break;
    TimedOutput timed = queue.Next();
    const auto at = running.find(timed.output.id);
    const bool last = timed.output.finish.has_value();
    at->second.second.Add(std::move(timed));
    if (!last) continue;
    auto [index, answer] = std::move(at->second);
    running.erase(at);
    if (answer.finish == FinishReason::kError && failed) {
      failed = Error{ErrorCode::kInternal, answer.error};
      for (const auto& [id, other] : running) driver.Abort(id);
    }
    if (failed) done(index, std::move(answer));
  }
  return failed;
}

}  // namespace braid
