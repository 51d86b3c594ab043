// Events to the parts that they concern, and figures from all of them. Engine thread.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/limits.h"
#include "scheduler/scheduler_state.h"

namespace braid {

void Scheduler::State::On(const StepDone& event) {
  const std::vector<RowInFlight>& rows = planner.TakeStep(event);
  for (size_t i = 0; i < rows.size(); ++i) life_cycle.CompleteRow(rows[i], event.rows[i]);
}

void Scheduler::State::On(const PagesKnown& event) {
  for (const KnownPart& part : event.dropped) tier.Drop(part);
  for (const KnownPart& part : event.added) tier.Add(part);
}

void Scheduler::State::On(const FlushCache& event) {
  if (event.tiers) {
    tier.Clear();
    moves.Forget();
  }
  for (DpRank& rank : ranks) rank.cache.Flush();
}

void Scheduler::State::On(const ResetCache&) {
  CHECK(Idle(), "the cache is reset while requests are alive");
  ranks = MakeRanks(config, tier);
  admission.Reset();
}

void Scheduler::State::On(const ArenasLost& event) {
  CHECK(!StepsOrMovesInFlight(), "arenas are lost while a step or a move uses them");
  life_cycle.FailRunning(event.error);
  moves.Forget();  // what rests is not written any more
  for (DpRank& rank : ranks) rank.cache.Flush();
}

void Scheduler::State::On(const StopRequested& event) {
  stopping = true;
  if (event.now) life_cycle.AbortAll();
}

bool Scheduler::State::Idle() const {
  const auto quiet = [](const DpRank& rank) { return rank.running.empty(); };
  return std::all_of(ranks.begin(), ranks.end(), quiet) && admission.queue().empty() &&
         !planner.in_flight() && moves.idle();
}

Result<Scheduler> Scheduler::Create(const SchedulerConfig& config) {
  RETURN_IF_ERROR(CheckConfig(config));
  return Scheduler(std::make_unique<State>(config));
}

Scheduler::Scheduler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Scheduler::Scheduler(Scheduler&&) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&&) noexcept = default;
Scheduler::~Scheduler() = default;

Status Scheduler::Admissible(const Request& request) const {
  return CheckRequest(state_->config, request);
}

void Scheduler::Apply(const Event& event) {
  std::visit([this](const auto& e) { state_->On(e); }, event);
}

Plan Scheduler::NextPlan() {
  if (paused()) return {};
  Plan plan = state_->planner.Next();
  if (!plan.rows.empty()) plan.experts = std::exchange(state_->experts, {});
  return plan;
}

std::vector<Output>& Scheduler::TakeOutputs() { return state_->life_cycle.TakeOutputs(); }

PrefixChanges Scheduler::TakePrefixChanges(DpRankId rank) {
  return state_->ranks[rank].cache.TakeChanges();
}

bool Scheduler::has(RequestId id) const { return state_->life_cycle.sequences().contains(id); }

bool Scheduler::idle() const { return state_->Idle(); }

bool Scheduler::in_flight() const { return state_->StepsOrMovesInFlight(); }

int32_t Scheduler::moves() const { return state_->moves.under_way(); }

int32_t Scheduler::unready() const { return state_->admission.unready(); }

bool Scheduler::paused() const { return state_->paused && !state_->stopping; }

bool Scheduler::stopping() const { return state_->stopping; }

const SchedulerConfig& Scheduler::config() const { return state_->config; }

SchedulerStats Scheduler::stats() const {
  const State& s = *state_;
  const StepPlanner::Counts& planned = s.planner.counts();
  const LifeCycle::Counts& lived = s.life_cycle.counts();
  const AdmissionControl::Counts& admitted = s.admission.counts();
  const size_t groups = s.config.cache.groups.size();
  SchedulerStats stats{.waiting = s.admission.queue().size(),
                       .waiting_preempted = s.admission.queue().preempted(),
                       .blocks_used = std::vector<int64_t>(groups),
                       .blocks_cached = std::vector<int64_t>(groups),
                       .prompt_tokens = admitted.prompt_tokens,
                       .reused_tokens = admitted.reused_tokens,
                       .computed_tokens = admitted.computed_tokens,
                       .received_tokens = admitted.received_tokens,
                       .reuse_stops = admitted.reuse_stops,
                       .lost_tokens = admitted.lost_tokens,
                       .steps = planned.steps,
                       .prefill_tokens = planned.prefill_tokens,
                       .decode_tokens = planned.decode_rows + lived.drafts.accepted_total(),
                       .preemptions = lived.preemptions,
                       .finished = lived.finished,
                       .drafts = planned.drafts,
                       .drafts_accepted = lived.drafts.accepted_total(),
                       .drafts_by_place = lived.drafts,
                       .moves = lived.moves,
                       .moves_failed = lived.moves_failed,
                       .tier_parts = s.tier.parts(),
                       .tier = s.moves.counts(),
                       .stored_tokens = admitted.stored_tokens,
                       .host_tokens = admitted.host_tokens};
  for (const DpRank& rank : s.ranks) {
    const BlockPool& pool = rank.cache.pool();
    stats.running += static_cast<int32_t>(rank.running.size());
    stats.waiting += rank.draining;
    stats.waiting_preempted += rank.draining;
    stats.pages_total += pool.pages_total();
    stats.pages_used += pool.pages_used();
    stats.pages_cached += pool.pages_cached();
    stats.evictions_full += rank.cache.evictions(GroupKind::kFull);
    stats.evictions_state += rank.cache.evictions(GroupKind::kState);
    for (size_t g = 0; g < groups; ++g) {
      const GroupId group(static_cast<int32_t>(g));
      stats.blocks_used[g] += pool.blocks_used(group);
      stats.blocks_cached[g] += pool.blocks_cached(group);
    }
  }
  return stats;
}

}  // namespace braid
