// Routes about the server and what it runs. They read state and change nothing, but for
// /health_generate, which stands with the routes that generate.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/clock.h"
#include "server/limit_table.h"
#include "server/routes/json_response.h"
#include "server/routes/openapi.h"
#include "server/routes/table.h"
#include "server/serving/prepare.h"

namespace braid {
namespace {

// What the page's own policy, a meta element, cannot say.
constexpr std::string_view kPageHeaders =
    "Content-Security-Policy: frame-ancestors 'none'\r\nX-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n";

json::object ModelJson(const ModelCard& card) {
  return {{"id", card.name},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "braid"},
          {"max_model_len", card.context_tokens_max}};
}

// "a%2Fb" is "a/b"; invalid escapes stay unchanged.
std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    bool escape = text[i] == '%' && i + 2 <= text.size() - 1 &&
                  std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    out += escape ? static_cast<char>(value) : text[i];
    if (escape) i += 2;
  }
  return out;
}

json::value NumberOrNull(const std::optional<double>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

json::object DefaultsJson(const GenerationDefaults& defaults) {
  return {
      {"do_sample", defaults.do_sample ? json::value(*defaults.do_sample) : json::value(nullptr)},
      {"temperature", NumberOrNull(defaults.temperature)},
      {"top_p", NumberOrNull(defaults.top_p)},
      {"top_k", defaults.top_k ? json::value(*defaults.top_k) : json::value(nullptr)},
      {"min_p", NumberOrNull(defaults.min_p)},
      {"repetition_penalty", NumberOrNull(defaults.repetition_penalty)}};
}

json::value MsBetween(int64_t from_us, int64_t to_us) {
  if (from_us == 0 || to_us == 0) return nullptr;
  return static_cast<double>(to_us - from_us) / 1000;
}

json::object ActiveJson(const ActiveRequestView& view, int64_t now_us) {
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

RouteAnswer WebPage(RouteCall& call) {
  return ReplyContent(HttpResponse{.content_type = "text/html; charset=utf-8",
                                   .body = call.server.config.page_html,
                                   .headers = std::string(kPageHeaders)});
}

// The engine's thread beats in every turn of its loop, working or idle; a step lasts one turn.
RouteAnswer Health(RouteCall& call) {
  if (call.ready == nullptr) return JsonResponse({{"status", "loading"}});
  const DriverStats stats = call.service().context.driver.stats();
  const int64_t now_us = MonotonicUs();
  const int64_t silent_us = now_us - stats.heartbeat_us;
  if (silent_us <= int64_t{call.server.config.step_seconds_max} * 1'000'000) {
    return JsonResponse({{"status", "ok"}, {"paused", stats.paused}});
  }
  const std::string what =
      stats.step_started_us == 0
          ? "between two steps"
          : fmt::format("in a step of {} rows and {} tokens that began {} s ago", stats.step_rows,
                        stats.step_tokens, (now_us - stats.step_started_us) / 1'000'000);
  return ApiError{
      503,
      fmt::format("the engine has been silent for {} s, {}", silent_us / 1'000'000, what),
      {},
      "stalled"};
}

RouteAnswer Ready(RouteCall& call) {
  if (call.server.draining) return ApiError{503, "shutting down", {}, "draining"};
  if (call.ready == nullptr) return call.server.Loading();
  return JsonResponse({{"status", "ready"}});
}

RouteAnswer Version(RouteCall& call) {
  return JsonResponse({{"version", call.server.config.version}});
}

RouteAnswer Metrics(RouteCall& call) {
  Service& service = call.service();
  const RequestLog* log = call.server.config.request_log;
  const GrammarLibrary* grammars = service.context.grammars;
  return ReplyContent(HttpResponse{
      .content_type = "text/plain; version=0.0.4; charset=utf-8",
      .body = service.metrics.Text(
          {.driver = service.context.driver.stats(),
           .log_lines_dropped = log == nullptr ? 0 : log->dropped(),
           .memory = call.server.memory.stats(),
           .responses = service.responses.stats(),
           .grammar_bytes = grammars == nullptr ? 0 : grammars->bytes(),
           .expert_balances = service.context.expert_balances ? service.context.expert_balances()
                                                              : ExpertBalances{},
           .expert_loads =
               service.context.expert_loads ? service.context.expert_loads() : ExpertLoadView{},
           .handoffs = service.context.handoffs ? service.context.handoffs() : HandoffCounts{},
           .expert_ranks =
               service.context.expert_ranks ? service.context.expert_ranks() : ExpertRanks{},
           .tier_ahead_bytes =
               service.context.tier_ahead_bytes ? service.context.tier_ahead_bytes() : 0})});
}

RouteAnswer OpenApi(RouteCall& call) {
  return JsonResponse(OpenApiDocument(call.service().limits(), call.server.config.version));
}

RouteAnswer ListModels(RouteCall& call) {
  const ModelCard& card = call.service().context.card;
  return JsonResponse({{"object", "list"}, {"data", json::array{ModelJson(card)}}});
}

RouteAnswer OneModel(RouteCall& call) {
  const ModelCard& card = call.service().context.card;
  RETURN_IF_ERROR(CheckModel(card, PercentDecoded(call.id)));
  return JsonResponse(ModelJson(card));
}

RouteAnswer ListActive(RouteCall& call) {
  const int64_t now_us = MonotonicUs();
  json::array list;
  for (const ActiveRequestView& view : call.service().active.List(call.caller)) {
    list.push_back(ActiveJson(view, now_us));
  }
  return JsonResponse({{"object", "list"}, {"data", std::move(list)}});
}

RouteAnswer Loads(RouteCall& call) {
  const SchedulerStats stats = call.service().context.driver.stats().scheduler;
  const double total = std::max<double>(1, static_cast<double>(stats.pages_total));
  json::object load{{"dp_rank", 0},
                    {"num_running_reqs", stats.running},
                    {"num_waiting_reqs", stats.waiting},
                    {"num_total_reqs", stats.running + stats.waiting},
                    {"token_usage", static_cast<double>(stats.pages_used) / total}};
  return JsonResponse({{"version", call.server.config.version},
                       {"dp_rank_count", 1},
                       {"loads", json::array{std::move(load)}}});
}

json::array RowsOf(const std::vector<std::vector<int64_t>>& rows) {
  json::array out;
  for (const std::vector<int64_t>& row : rows) out.push_back(json::array(row.begin(), row.end()));
  return out;
}

// Of the model's experts; a model without any has none.
RouteAnswer ExpertLoad(RouteCall& call) {
  const auto& loads = call.service().context.expert_loads;
  const ExpertLoadView view = loads ? loads() : ExpertLoadView{};
  return JsonResponse({{"experts", view.experts},
                       {"top_k", view.top_k},
                       {"layers", json::array(view.layers.begin(), view.layers.end())},
                       {"passes", view.passes},
                       {"tokens", view.tokens},
                       {"counts", RowsOf(view.counts)},
                       {"rank_rows", RowsOf(view.rank_rows)}});
}

RouteAnswer ServerInformation(RouteCall& call) {
  const Service& service = call.service();
  const ModelCard& card = service.context.card;
  json::object out = service.context.server_information;
  out["version"] = service.config.version;
  out["model"] = card.name;
  out["context_tokens_max"] = card.context_tokens_max;
  out["vocabulary"] = card.vocabulary;
  out["eos_token_ids"] = json::array(card.eos_tokens.begin(), card.eos_tokens.end());
  out["tool_parser"] = card.tools == nullptr ? "none" : std::string(card.tools->name);
  out["reasoning_separated"] = card.reasoning.separates();
  out["generation_defaults"] = DefaultsJson(card.defaults);
  DriverStats stats = service.context.driver.stats();
  out["scheduler"] = json::object{{"running", stats.scheduler.running},
                                  {"waiting", stats.scheduler.waiting},
                                  {"cache_pages_total", stats.scheduler.pages_total},
                                  {"cache_pages_used", stats.scheduler.pages_used},
                                  {"cache_pages_cached", stats.scheduler.pages_cached},
                                  {"steps", stats.scheduler.steps}};
  out["limits"] = LimitsJson(service);
  return JsonResponse(std::move(out));
}

// What the caller's key is called and allows, and how much of it is in use.
RouteAnswer OneKey(RouteCall& call) {
  const Caller& caller = call.caller;
  const auto own = [&](const ActiveRequestView& view) { return view.tenant == caller.name; };
  const auto limit = [](int32_t most) {
    return most == 0 ? json::value(nullptr) : json::value(most);
  };
  return JsonResponse(
      {{"name", caller.name.empty() ? json::value(nullptr) : json::value(caller.name)},
       {"admin", caller.admin},
       {"requests", std::ranges::count_if(call.service().active.List(caller), own)},
       {"requests_max", limit(caller.requests_max)},
       {"tokens_per_minute", limit(caller.tokens_per_minute)}});
}

constexpr Route kStatusRows[] = {
    {.path = "/",
     .handler = WebPage,
     .summary = "The chat page",
     .access = Access::kPublic,
     .before_ready = true},
    {.path = "/health",
     .handler = Health,
     .summary = "Liveness of the engine thread",
     .access = Access::kPublic,
     .before_ready = true,
     .probe = true},
    {.path = "/ready",
     .handler = Ready,
     .summary = "Readiness: whether new requests are accepted",
     .access = Access::kPublic,
     .before_ready = true,
     .probe = true},
    {.path = "/version",
     .handler = Version,
     .summary = "The server's version",
     .before_ready = true},
    {.path = "/metrics", .handler = Metrics, .summary = "Metrics in the Prometheus text format"},
    {.path = "/openapi.json", .handler = OpenApi, .summary = "This document"},
    {.path = "/server_info",
     .handler = ServerInformation,
     .summary = "The model, the memory plan, the limits and the scheduler's state"},
    {.path = "/v1/loads", .handler = Loads, .summary = "Load, for request routers"},
    {.path = "/v1/expert_load",
     .handler = ExpertLoad,
     .summary = "How many tokens of the last steps chose each expert, by layer"},
    {.path = "/v1/running",
     .handler = ListActive,
     .summary = "The requests that wait or run, without their text"},
    {.path = "/v1/key",
     .handler = OneKey,
     .summary = "The name of the caller's key, its limits and its running requests"},
    {.path = "/v1/models", .handler = ListModels, .summary = "The model that is served"},
    {.path = "/v1/models/{id}", .handler = OneModel, .summary = "The model, by its name"},
};

}  // namespace

constinit const std::span<const Route> kStatusRoutes = kStatusRows;

}  // namespace braid
