// See the header.
#include "server/running_routes.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "server/limits.h"
#include "server/simple_routes.h"

namespace braid {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses";

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

json::object ResponseJson(const Service& service, const RunningView& view,
                          std::string_view status) {
  return {{"id", view.id},
          {"object", "response"},
          {"created_at", view.created},
          {"status", status},
          {"model", service.context.card.name},
          {"output", json::array{}},
          {"usage", nullptr}};
}

std::optional<RunningView> FindResponse(const Service& service, std::string_view id,
                                        const RunningBoard::Whose& whose) {
  for (RunningView& view : service.running.List(whose)) {
    if (view.id == id && view.path == kResponsesPath) return std::move(view);
  }
  return std::nullopt;
}

HttpResponse NotRunning(std::string_view id) {
  const std::string shown = json::serialize(json::string(id.substr(0, limits::kRequestIdBytesMax)));
  return ErrorResponse(
      {404, fmt::format("no response {} is being made; none is stored", shown), "id", "not_found"});
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

HttpResponse RunningResponse(const Service& service, std::string_view id,
                             const RunningBoard::Whose& whose) {
  const std::optional<RunningView> view = FindResponse(service, id, whose);
  return view ? JsonResponse(ResponseJson(service, *view, "in_progress")) : NotRunning(id);
}

HttpResponse CancelResponse(Service& service, const std::string& id,
                            const RunningBoard::Whose& whose) {
  const std::optional<RunningView> view = FindResponse(service, id, whose);
  if (!view || service.running.End(id, whose) == 0) return NotRunning(id);
  return JsonResponse(ResponseJson(service, *view, "cancelled"));
}

}  // namespace braid
