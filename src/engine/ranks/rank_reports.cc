// See the header.
#include "engine/ranks/rank_reports.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"

namespace braid {

void RankReports::Serve(RankTiers* tier, EventSink& driver) {
  tier_ = tier;
  driver_ = &driver;
  if (tier != nullptr) tier->Watch(driver);
  for (Event& event : std::exchange(early_, {})) Post(std::move(event));
}

void RankReports::Post(Event event) {
  if (driver_ == nullptr) return early_.push_back(std::move(event));
  EventSink* to = std::holds_alternative<GrammarReady>(event) ? driver_ : tier_;
  CHECK(to != nullptr, "a rank reports what nobody here waits for");
  to->Post(std::move(event));
}

FollowerReports::FollowerReports(const Mesh& mesh, int32_t rank, RankTiers* tier,
                                 GrammarLibrary* library)
    : rank_(rank), tier_(tier) {
  if (tier_ != nullptr) tier_->Watch(inbox_);
  // The first rank of each group samples; of the first group that is rank 0.
  const bool samples = mesh.GroupOf(rank) > 0 && mesh.TensorShare(rank).index == 0;
  if (!samples || library == nullptr) return;
  // Rank 0 has bounded how many requests there are.
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  grammars_ = std::make_unique<PartnerGrammars>(
      *library, CompileQueue::Limits{.waiting = kAll, .waiting_per_key = kAll});
}

FollowerParts FollowerReports::parts() {
  return {.reports = [this] { return Take(); },
          .watch = [this](const Event& event) { Watch(event); },
          .ended = [this](RequestId id) { Forget(id); }};
}

void FollowerReports::Watch(const Event& event) {
  const auto* flush = std::get_if<FlushCache>(&event);
  if (flush != nullptr && flush->tiers && tier_ != nullptr) tier_->Clear(false);
  const auto* submit = std::get_if<Submit>(&event);
  if (submit != nullptr && grammars_ != nullptr && !submit->request.grammar.empty()) {
    Compile(submit->request);
  }
}

void FollowerReports::Compile(const Request& request) {
  auto ticket = grammars_->Enter(request.tenant, request.grammar, [] {});
  if (!ticket) return Say(request.id, ticket.error());
  tickets_[request.id] = *std::move(ticket);
  compiling_.insert(request.id);
}

// Rank 0 asks every kReportsUs while it waits for reports.
std::vector<Event> FollowerReports::Take() {
  std::erase_if(compiling_, [this](RequestId id) {
    const std::optional<Status> outcome = tickets_.at(id)->Outcome();
    if (outcome) Say(id, *outcome);
    return outcome.has_value();
  });
  return inbox_.Take();
}

void FollowerReports::Forget(RequestId request) {
  tickets_.erase(request);
  compiling_.erase(request);
}

void FollowerReports::Say(RequestId request, const Status& compiled) {
  GrammarReady ready{.request = request, .error = {}};
  if (!compiled) {
    ready.error = fmt::format("rank {} cannot use the request's grammar: {}", rank_,
                              compiled.error().message);
    // A grammar that is over its budget is the request's fault, as on rank 0.
    const ErrorCode code = compiled.error().code;
    ready.error_code = code == ErrorCode::kExhausted ? ErrorCode::kInvalid : code;
  }
  inbox_.Post(std::move(ready));
}

}  // namespace braid
