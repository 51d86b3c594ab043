// Routes that change the engine's state. A flush and a pause take effect before its next step.
#include "server/routes/json_response.h"
#include "server/routes/route.h"

namespace braid {
namespace {

RouteAnswer Ok() { return JsonResponse({{"status", "ok"}}); }

RouteAnswer Abort(RouteCall& call) {
  const int64_t ended = call.service().active.End(call.body.request_id, call.caller);
  return JsonResponse({{"aborted", ended}});
}

RouteAnswer FlushCache(RouteCall& call) {
  call.service().context.driver.FlushCache(!call.body.memory_only.value_or(false));
  return Ok();
}

RouteAnswer Pause(RouteCall& call) {
  Service& service = call.service();
  if (call.body.abort_all.value_or(false)) service.active.End("", call.caller);
  service.context.driver.SetPaused(true);
  return Ok();
}

RouteAnswer Resume(RouteCall& call) {
  call.service().context.driver.SetPaused(false);
  return Ok();
}

constexpr Route kAdminRows[] = {
    {.method = Method::kPost,
     .path = "/abort_request",
     .handler = Abort,
     .summary = "Abort a request, or all of them",
     .aliases = {"/abort_requests"},
     .access = Access::kAdmin,
     .body = RouteBody{kAbort}},
    {.method = Method::kPost,
     .path = "/flush_cache",
     .handler = FlushCache,
     .summary =
         "Drop the cached prefixes that no request uses, in memory and (unless `memory_only`) "
         "in tiers",
     .access = Access::kAdmin,
     .body = RouteBody{kFlush, "", true}},
    {.method = Method::kPost,
     .path = "/pause",
     .handler = Pause,
     .summary = "Start no step until resumed; requests are kept",
     .aliases = {"/pause_generation"},
     .access = Access::kAdmin,
     .body = RouteBody{kPause, "", true}},
    {.method = Method::kPost,
     .path = "/resume",
     .handler = Resume,
     .summary = "Continue after a pause",
     .aliases = {"/continue_generation"},
     .access = Access::kAdmin},
};

}  // namespace

constinit const std::span<const Route> kAdminRoutes = kAdminRows;

}  // namespace braid
