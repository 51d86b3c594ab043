// The way of a request with a grammar: a known grammar begins at once, another waits in a queue of
// its own (compile_queue.h) while a PendingAnswer stands for the answer. Any thread.
#include <fmt/core.h>

#include "base/clock.h"
#include "server/dialects/api_answer.h"
#include "server/router.h"
#include "server/serving/pending_answer.h"

namespace braid {

// Compiling takes no tenant more than its share of a thread. Without keys, clients are told
// apart by their addresses.
Router::Content Router::CompileThenBegin(GenerationPlan plan, Planned planned, HttpRequest http) {
  Service& service = *ready_.load();
  const bool anthropic = IsAnthropic(planned.shape.route);
  const std::string path = plan.grammar.path, name = planned.tenant.name;
  if (!name.empty()) {
    if (const int32_t seconds = service.tenants.SecondsUntilCompile(name, MonotonicUs())) {
      return ErrorResponse(
          {429,
           fmt::format("{}: {} has had grammars compiled for too long; those that were compiled "
                       "already are taken at any time",
                       path, name),
           path, "rate_limit_exceeded", seconds},
          anthropic);
    }
  }
  Result<CompileQueue::Ticket> ticket = service.compiles->Enter(
      name.empty() ? planned.address : name, plan.grammar.text, planned.wake);
  if (!ticket) {
    const bool own = ticket.error().code == ErrorCode::kExhausted;
    return ErrorResponse({own ? 429 : 503, fmt::format("{}: {}", path, ticket.error().message),
                          path, own ? "rate_limit_exceeded" : "overloaded"},
                         anthropic);
  }
  const PendingAnswer::Deadline deadline{planned.origin.received_us, config_.queue_seconds_max};
  auto begin = [this, planned = std::move(planned), http = std::move(http), anthropic](
                   GenerationPlan compiled, const GrammarLibrary::Checked& checked) -> Content {
    Service& ready = *ready_.load();
    const std::string& tenant = planned.tenant.name;
    if (!tenant.empty()) ready.tenants.SpendCompile(tenant, checked.work_us, MonotonicUs());
    Content content =
        checked.status
            ? Begin(std::move(compiled), planned)
            : ErrorResponse(GrammarRefusal(compiled.grammar.path, checked.status.error()),
                            anthropic);
    const auto* response = std::get_if<HttpResponse>(&content);
    if (response != nullptr) NoteResponse(http, *response, planned.origin.request_id);
    return content;
  };
  return std::make_unique<PendingAnswer>(*std::move(ticket), std::move(plan), deadline,
                                         std::move(begin));
}

// From here on the request counts among its tenant's.
Router::Content Router::Begin(GenerationPlan plan, const Planned& planned) {
  Service& service = *ready_.load();
  const bool anthropic = IsAnthropic(planned.shape.route);
  if (!plan.grammar.text.empty()) {
    Result<GrammarLibrary::Hold> hold = service.context.grammars->HoldFor(
        plan.grammar.text, static_cast<int64_t>(plan.choices.size()));
    if (!hold) return ErrorResponse(GrammarRefusal(plan.grammar.path, hold.error()), anthropic);
    plan.hold = *std::move(hold);
  }
  int64_t prompt_tokens = 0;
  for (const PlannedChoice& choice : plan.choices) {
    prompt_tokens += static_cast<int64_t>(choice.request.prompt.size());
  }
  TenantLoad::Entry entry = service.tenants.Enter(planned.tenant, prompt_tokens, MonotonicUs());
  if (entry.place == nullptr) return ErrorResponse(OverLimit(planned.tenant, entry), anthropic);
  plan.place = std::move(entry.place);
  if (const ApiStatus room = CheckWaiting(service, prompt_tokens); !room) {
    return ErrorResponse(room.error(), anthropic);
  }
  auto started = Generation::Start(service, std::move(plan), planned.origin, planned.wake);
  if (!started) {
    ApiError error = started.error();
    error.retry_after_seconds = RetryAfter();
    return ErrorResponse(error, anthropic);
  }
  return std::make_unique<ApiAnswer>(*std::move(started), planned.shape);
}

void Router::StopCompiling() {
  Service* service = ready_.load();
  if (service != nullptr && service->compiles != nullptr) service->compiles->Stop();
}

}  // namespace braid
