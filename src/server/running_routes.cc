// See the header.
#include "server/running_routes.h"

#include "base/clock.h"
#include "server/simple_routes.h"

namespace braid {
namespace {

json::value MsBetween(int64_t from_us, int64_t to_us) {
  if (from_us == 0 || to_us == 0) return nullptr;
  return static_cast<double>(to_us - from_us) / 1000;
}

json::object RunningJson(const RunningView& view, int64_t now_us) {
  return {
      {"id", view.id},
      {"request_id", view.client_id.empty() ? json::value(nullptr) : json::value(view.client_id)},
      {"path", view.path},
      {"phase", view.phase()},
      {"created", view.created},
      {"prompt_tokens", view.prompt_tokens},
      {"cached_tokens", view.cached_tokens},
      {"output_tokens", view.output_tokens},
      {"choices", view.choices},
      {"queue_ms", MsBetween(view.received_us, view.admitted_us)},
      {"first_token_ms", MsBetween(view.received_us, view.first_token_us)},
      {"total_ms", MsBetween(view.received_us, now_us)}};
}

}  // namespace

HttpResponse ListRunning(const Service& service, const RunningBoard::Whose& whose) {
  const int64_t now_us = MonotonicUs();
  json::array list;
  for (const RunningView& view : service.running.List(whose)) {
    list.push_back(RunningJson(view, now_us));
  }
  return JsonResponse(json::object{{"object", "list"}, {"data", std::move(list)}});
}

}  // namespace braid
