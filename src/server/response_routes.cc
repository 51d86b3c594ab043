// Stored responses are text already; a page of items is put together from their texts.
#include "server/response_routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "server/api/limits.h"
#include "server/simple_routes.h"

namespace braid {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses";
constexpr size_t kPageItems = 20, kPageItemsMax = 100;

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

std::optional<RunningView> FindRunning(const Service& service, std::string_view id,
                                       const RunningBoard::Whose& whose) {
  for (RunningView& view : service.running.List(whose)) {
    if (view.id == id && view.path == kResponsesPath) return std::move(view);
  }
  return std::nullopt;
}

HttpResponse NotFound(std::string_view id) {
  const std::string shown = json::serialize(json::string(id.substr(0, limits::kRequestIdBytesMax)));
  return ErrorResponse({404,
                        fmt::format("no response {} is stored or being made for this key", shown),
                        "id", "not_found"});
}

HttpResponse WrongQuery(std::string_view name, std::string_view right) {
  return ErrorResponse({400, fmt::format("{}: must be {}", name, right), std::string(name)});
}

// The value of a name in "a=1&b=2"; nullopt: it is not there.
std::optional<std::string_view> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) != name) continue;
    return pair.substr(std::min(equals + 1, pair.size()));
  }
  return std::nullopt;
}

// {"object": "list", "data": […], …} of items[first, last).
HttpResponse Page(const std::vector<StoredItem>& items, size_t first, size_t last) {
  const auto id_at = [&](size_t i) {
    return first == last ? "null" : json::serialize(json::string(items[i].id));
  };
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = first; i < last; ++i) {
    if (i > first) body += ',';
    body += items[i].text;
  }
  body += fmt::format(R"(],"first_id":{},"last_id":{},"has_more":{}}})", id_at(first),
                      id_at(last - 1), last < items.size());
  return {.body = std::move(body)};
}

}  // namespace

HttpResponse OneResponse(const Service& service, const HttpRequest& request, std::string_view id,
                         const RunningBoard::Whose& whose) {
  if (const auto stream = QueryValue(request.query, "stream"); stream && *stream != "false") {
    return WrongQuery("stream", "false: the events of a response go to the request that made it");
  }
  if (auto stored = service.responses.Response(whose.tenant, std::string(id))) {
    return {.body = *std::move(stored)};
  }
  const std::optional<RunningView> view = FindRunning(service, id, whose);
  return view ? JsonResponse(ResponseJson(service, *view, "in_progress")) : NotFound(id);
}

HttpResponse ResponseInput(const Service& service, const HttpRequest& request, std::string_view id,
                           const RunningBoard::Whose& whose) {
  size_t limit = kPageItems;
  if (const auto text = QueryValue(request.query, "limit")) {
    const char* end = text->data() + text->size();
    const auto [at, error] = std::from_chars(text->data(), end, limit);
    if (error != std::errc() || at != end || limit < 1 || limit > kPageItemsMax) {
      return WrongQuery("limit", fmt::format("an integer from 1 to {}", kPageItemsMax));
    }
  }
  const std::string_view order = QueryValue(request.query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return WrongQuery("order", "asc or desc");
  auto items = service.responses.Input(whose.tenant, std::string(id));
  if (!items) return NotFound(id);
  if (order == "desc") std::reverse(items->begin(), items->end());
  size_t first = 0;
  if (const auto after = QueryValue(request.query, "after")) {
    const auto at = std::find_if(items->begin(), items->end(),
                                 [&](const StoredItem& item) { return item.id == *after; });
    if (at == items->end()) return WrongQuery("after", "the id of an item of this response");
    first = static_cast<size_t>(at - items->begin()) + 1;
  }
  return Page(*items, first, std::min(items->size(), first + limit));
}

HttpResponse DeleteResponse(Service& service, std::string_view id,
                            const RunningBoard::Whose& whose) {
  if (!service.responses.Erase(whose.tenant, std::string(id))) return NotFound(id);
  return JsonResponse(json::object{{"id", id}, {"object", "response"}, {"deleted", true}});
}

HttpResponse CancelResponse(Service& service, const std::string& id,
                            const RunningBoard::Whose& whose) {
  const std::optional<RunningView> view = FindRunning(service, id, whose);
  if (view && service.running.End(id, whose) > 0) {
    return JsonResponse(ResponseJson(service, *view, "cancelled"));
  }
  if (!service.responses.Response(whose.tenant, id)) return NotFound(id);
  return ErrorResponse(
      {400, "the response has ended; only one that is being made can be cancelled", "id"});
}

}  // namespace braid
