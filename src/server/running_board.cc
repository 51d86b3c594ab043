// A set under a mutex that is held for the length of a walk.
#include "server/running_board.h"

#include <algorithm>

namespace braid {
namespace {

bool Belongs(const RunningRequest& request, const RunningBoard::Whose& whose) {
  return whose.all || request.tenant == whose.tenant;
}

}  // namespace

const char* RunningView::phase() const {
  return first_token_us > 0 ? "decode" : admitted_us > 0 ? "prefill" : "waiting";
}

void RunningBoard::Add(RunningRequest& request) {
  std::lock_guard lock(mutex_);
  requests_.insert(&request);
}

void RunningBoard::Remove(RunningRequest& request) {
  std::lock_guard lock(mutex_);
  requests_.erase(&request);
}

int64_t RunningBoard::End(const std::string& id, const Whose& whose) {
  std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (RunningRequest* request : requests_) {
    if (!Belongs(*request, whose)) continue;
    if (!id.empty() && request->id != id && request->client_id != id) continue;
    if (!request->end_asked.exchange(true)) ++count;
    request->wake();
  }
  return count;
}

std::vector<RunningView> RunningBoard::List(const Whose& whose) const {
  std::vector<RunningView> list;
  {
    std::lock_guard lock(mutex_);
    for (const RunningRequest* request : requests_) {
      if (!Belongs(*request, whose)) continue;
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
  std::sort(list.begin(), list.end(), [](const RunningView& a, const RunningView& b) {
    return std::tie(a.received_us, a.id) < std::tie(b.received_us, b.id);
  });
  return list;
}

int64_t RunningBoard::WaitingTokens() const {
  std::lock_guard lock(mutex_);
  int64_t tokens = 0;
  for (const RunningRequest* request : requests_) {
    if (request->admitted_us == 0) tokens += request->prompt_tokens * request->choices;
  }
  return tokens;
}

}  // namespace braid
