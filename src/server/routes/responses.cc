// Routes about single responses of the Responses API, stored or still being made. A key reaches its
// own only; an admin's key can see and end others' while they run. Stored responses are text
// already; a page of items is put together from their texts.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/text/cut_text.h"
#include "server/api/limits.h"
#include "server/routes/json_response.h"
#include "server/routes/route.h"

namespace braid {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses";
constexpr size_t kPageItems = 20, kPageItemsMax = 100;

json::object ResponseJson(const Service& service, const ActiveRequestView& view,
                          std::string_view status) {
  return {{"id", view.id},
          {"object", "response"},
          {"created_at", view.created},
          {"status", status},
          {"model", service.context.card.name},
          {"output", json::array{}},
          {"usage", nullptr}};
}

std::optional<ActiveRequestView> FindActive(const Service& service, std::string_view id,
                                            const Caller& caller) {
  for (ActiveRequestView& view : service.active.List(caller)) {
    if (view.id == id && view.path == kResponsesPath) return std::move(view);
  }
  return std::nullopt;
}

ApiError NotFound(std::string_view id) {
  const std::string shown = json::serialize(json::string(CutText(id, limits::kRequestIdBytesMax)));
  return {404, fmt::format("this key has no response {}, stored or in progress", shown), "id",
          "not_found"};
}

ApiError WrongQuery(std::string_view name, std::string_view right) {
  return {400, fmt::format("{}: must be {}", name, right), std::string(name)};
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
ReplyContent Page(const std::vector<StoredItem>& items, size_t first, size_t last) {
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
  return HttpResponse{.body = std::move(body)};
}

RouteAnswer OneResponse(RouteCall& call) {
  Service& service = call.service();
  if (const auto stream = QueryValue(call.http.query, "stream"); stream && *stream != "false") {
    return WrongQuery("stream", "false: only the request that creates a response can stream it");
  }
  if (auto stored = service.responses.Response(call.caller.name, call.id)) {
    return ReplyContent(HttpResponse{.body = *std::move(stored)});
  }
  const std::optional<ActiveRequestView> view = FindActive(service, call.id, call.caller);
  if (!view) return NotFound(call.id);
  return JsonResponse(ResponseJson(service, *view, "in_progress"));
}

RouteAnswer ResponseInput(RouteCall& call) {
  Service& service = call.service();
  size_t limit = kPageItems;
  if (const auto text = QueryValue(call.http.query, "limit")) {
    const char* end = text->data() + text->size();
    const auto [at, error] = std::from_chars(text->data(), end, limit);
    if (error != std::errc() || at != end || limit < 1 || limit > kPageItemsMax) {
      return WrongQuery("limit", fmt::format("an integer from 1 to {}", kPageItemsMax));
    }
  }
  const std::string_view order = QueryValue(call.http.query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return WrongQuery("order", "asc or desc");
  auto items = service.responses.Input(call.caller.name, call.id);
  if (!items) return NotFound(call.id);
  if (order == "desc") std::reverse(items->begin(), items->end());
  size_t first = 0;
  if (const auto after = QueryValue(call.http.query, "after")) {
    const auto at = std::find_if(items->begin(), items->end(),
                                 [&](const StoredItem& item) { return item.id == *after; });
    if (at == items->end()) return WrongQuery("after", "the id of an item of this response");
    first = static_cast<size_t>(at - items->begin()) + 1;
  }
  return Page(*items, first, std::min(items->size(), first + limit));
}

RouteAnswer DeleteResponse(RouteCall& call) {
  Service& service = call.service();
  if (!service.responses.Erase(call.caller.name, call.id)) return NotFound(call.id);
  return JsonResponse({{"id", call.id}, {"object", "response"}, {"deleted", true}});
}

RouteAnswer CancelResponse(RouteCall& call) {
  Service& service = call.service();
  const std::optional<ActiveRequestView> view = FindActive(service, call.id, call.caller);
  if (view && service.active.End(call.id, call.caller) > 0) {
    return JsonResponse(ResponseJson(service, *view, "cancelled"));
  }
  if (!service.responses.Response(call.caller.name, call.id)) return NotFound(call.id);
  return ApiError{400, "the response has ended; only a response in progress can be cancelled",
                  "id"};
}

constexpr Route kResponseRows[] = {
    {.path = "/v1/responses/{id}",
     .handler = OneResponse,
     .summary = "A response, stored or in progress",
     .prepared = true},
    {.method = Method::kDelete,
     .path = "/v1/responses/{id}",
     .handler = DeleteResponse,
     .summary = "Delete a stored response"},
    {.path = "/v1/responses/{id}/input_items",
     .handler = ResponseInput,
     .summary = "The items that a stored response read",
     .prepared = true},
    {.method = Method::kPost,
     .path = "/v1/responses/{id}/cancel",
     .handler = CancelResponse,
     .summary = "Cancel a response in progress"},
};

}  // namespace

constinit const std::span<const Route> kResponseRoutes = kResponseRows;

}  // namespace braid
