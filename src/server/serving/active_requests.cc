// One mutex, held while all requests are visited.
#include "server/serving/active_requests.h"

#include <algorithm>

namespace braid {
const char* ActiveRequestView::phase() const {
  return first_token_us > 0 ? "decode" : admitted_us > 0 ? "prefill" : "waiting";
}

ActiveRequests::Entry ActiveRequests::Add(std::unique_ptr<ActiveRequest> request) {
  std::lock_guard lock(mutex_);
  requests_.insert(request.get());
  return Entry(request.release(), Removal{this});
}

void ActiveRequests::Removal::operator()(ActiveRequest* request) const {
  {
    std::lock_guard lock(from->mutex_);
    from->requests_.erase(request);
  }
  delete request;
}

int64_t ActiveRequests::End(const std::string& id, const Caller& caller) {
  std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (ActiveRequest* request : requests_) {
    if (!caller.MaySee(request->tenant)) continue;
    const bool has_id = request->id == id || request->client_id == id || request->body_id == id;
    if (!id.empty() && !has_id) continue;
    if (!request->end_asked.exchange(true)) ++count;
    request->wake();
  }
  return count;
}

std::vector<ActiveRequestView> ActiveRequests::List(const Caller& caller) const {
  std::vector<ActiveRequestView> list;
  {
    std::lock_guard lock(mutex_);
    for (const ActiveRequest* request : requests_) {
      if (!caller.MaySee(request->tenant)) continue;
      list.push_back({.id = request->id,
                      .client_id = request->client_id,
                      .tenant = request->tenant,
                      .path = std::string(request->path),
                      .created = request->created,
                      .received_us = request->received_us,
                      .prompt_tokens = request->prompt_tokens,
                      .choices = request->choices,
                      .cached_tokens = request->cached_tokens,
                      .output_tokens = request->output_tokens,
                      .admitted_us = request->admitted_us,
                      .first_token_us = request->first_token_us});
    }
  }
  std::sort(list.begin(), list.end(), [](const ActiveRequestView& a, const ActiveRequestView& b) {
    return std::tie(a.received_us, a.id) < std::tie(b.received_us, b.id);
  });
  return list;
}

int64_t ActiveRequests::WaitingTokens() const {
  std::lock_guard lock(mutex_);
  int64_t tokens = 0;
  for (const ActiveRequest* request : requests_) tokens += request->waiting_tokens;
  return tokens;
}

}  // namespace braid
