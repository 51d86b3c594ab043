// See the header. What a damaged or made-up log could bring is checked before it reaches a CHECK of
// the scheduler.
#include "scheduler/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "scheduler/inbox.h"
#include "scheduler/planning/plan_hash.h"
#include "scheduler/planning/plan_text.h"

namespace braid {
namespace {

std::string Excerpt(const TokenLogprob& t) {
  return fmt::format("token {} at {:.9g}, {} alternatives", t.token, t.logprob, t.top.size());
}

class Replayer {
 public:
  Replayer(Scheduler scheduler, Executor* executor, const std::function<void(RequestId)>& ended)
      : scheduler_(std::move(scheduler)), executor_(executor), request_ended_(ended) {}

  Status Take(const LogRecord& record) {
    if (const PlanMark* mark = std::get_if<PlanMark>(&record)) return Compare(*mark);
    const Event& event = std::get<Event>(record);
    if (const Submit* submit = std::get_if<Submit>(&event)) {
      if (scheduler_.has(submit->request.id)) {
        return Impossible(fmt::format("request {} comes twice", submit->request.id.value));
      }
      ++report_.requests;
    }
    if (const StepDone* done = std::get_if<StepDone>(&event)) RETURN_IF_ERROR(Compare(*done));
    if (std::holds_alternative<ResetCache>(event) && !scheduler_.idle()) {
      return Impossible("the cache is reset while requests are alive");
    }
    if (std::holds_alternative<ArenasLost>(event) && scheduler_.in_flight()) {
      return Impossible("arenas are lost while a step or a move uses them");
    }
    scheduler_.Apply(event);
    for (const Output& output : scheduler_.TakeOutputs()) {  // it forgets what has ended
      if (output.finish && request_ended_) request_ended_(output.id);
    }
    ++report_.events;
    return {};
  }

  // Steps that were still running when the log ended.
  void Drain() {
    for (; executor_ != nullptr && !in_flight_.empty(); in_flight_.pop_front()) ended_.AwaitStep();
  }

  ReplayReport& report() { return report_; }

 private:
  struct Step {
    StepId id;
    struct Planned {
      RequestId request;
      bool sample;
      int32_t drafts;
      std::optional<int32_t> prompt_logprobs;  // as many must come
    };
    std::vector<Planned> rows;
  };

  Error Impossible(std::string what) const {
    return {ErrorCode::kInvalid, fmt::format("no run can have written this log: after step {}, {}",
                                             last_step_.value, what)};
  }
  Error Differs(std::string what) const { return {ErrorCode::kInternal, std::move(what)}; }

  Status Compare(const PlanMark& mark) {
    if (in_flight_.size() > 1) return Impossible("a plan is made while two steps run");
    Plan plan = scheduler_.NextPlan();
    const uint64_t hash = HashPlan(plan);
    if (plan.step != mark.step || hash != mark.hash) {
      return Differs(
          fmt::format("plan {} differs: its hash was {:016x}, and is {:016x} for plan {}: {}",
                      mark.step.value, mark.hash, hash, plan.step.value, PlanText(plan)));
    }
    if (plan.empty()) return {};
    ++report_.plans;
    last_step_ = plan.step;
    Step step{plan.step, {}};
    for (const Row& row : plan.rows) {
      std::optional<int32_t> prompt_logprobs;
      if (row.prompt_logprobs) prompt_logprobs = row.token_count - row.drafts;
      step.rows.push_back({row.request, row.sample, row.drafts, prompt_logprobs});
    }
    in_flight_.push_back(std::move(step));
    if (executor_ != nullptr) executor_->Launch(std::move(plan), ended_);
    return {};
  }

  Status Compare(const StepDone& recorded) {
    if (in_flight_.empty() || in_flight_.front().id != recorded.step ||
        in_flight_.front().rows.size() != recorded.rows.size()) {
      return Impossible(fmt::format("step {} with {} rows comes back", recorded.step.value,
                                    recorded.rows.size()));
    }
    const int32_t vocabulary = scheduler_.config().vocabulary;
    for (size_t i = 0; i < recorded.rows.size(); ++i) {
      const auto& [request, samples, drafts, prompt_logprobs] = in_flight_.front().rows[i];
      const RowResult& row = recorded.rows[i];
      const auto known = [&](TokenId t) { return t >= 0 && t < vocabulary; };
      const bool token = known(row.token) && row.accepted >= 0 && row.accepted <= drafts &&
                         std::all_of(row.drafts.begin(), row.drafts.end(), known);
      if (row.request != request || (samples && row.error.empty() && !token)) {
        return Impossible(fmt::format("row {} of step {} is request {}'s, with token {}", i,
                                      recorded.step.value, row.request.value, row.token));
      }
      if (prompt_logprobs && row.error.empty() &&
          std::cmp_not_equal(row.prompt_logprobs.size(), *prompt_logprobs)) {
        return Impossible(fmt::format("row {} of step {} has {} prompt log-probabilities, not {}",
                                      i, recorded.step.value, row.prompt_logprobs.size(),
                                      *prompt_logprobs));
      }
      report_.tokens += token;
    }
    in_flight_.pop_front();
    if (executor_ == nullptr) return {};
    return CompareResults(recorded, ended_.AwaitStep());
  }

  Status CompareResults(const StepDone& recorded, const StepDone& computed) const {
    for (size_t i = 0; i < recorded.rows.size(); ++i) {
      const RowResult& was = recorded.rows[i];
      const RowResult& is = computed.rows[i];
      const auto differs = [&](const std::string& before, const std::string& now) {
        return Differs(fmt::format("step {}, request {}: recorded {}, computed {}",
                                   recorded.step.value, was.request.value, before, now));
      };
      if (was.error != is.error) {
        return differs("\"" + was.error + "\"", "\"" + is.error + "\"");
      }
      // Nothing else of a row that failed counts, and it may have NaN, which equals nothing.
      if (!was.error.empty()) continue;
      if (was.token != is.token) {
        return differs(fmt::format("token {}", was.token), fmt::format("token {}", is.token));
      }
      if (was.accepted != is.accepted || was.drafts != is.drafts || was.drafts_of != is.drafts_of) {
        return differs("other drafts", "these");
      }
      if (was.logprob != is.logprob) return differs(Excerpt(was.logprob), Excerpt(is.logprob));
      if (was.accepted_logprobs != is.accepted_logprobs) {
        return differs("other log-probabilities of drafts", "these");
      }
      if (was.prompt_logprobs != is.prompt_logprobs) {
        return differs("other log-probabilities of the prompt", "these");
      }
    }
    return {};
  }

  Scheduler scheduler_;
  Executor* executor_;
  const std::function<void(RequestId)>& request_ended_;
  Inbox ended_;  // steps of the executor
  std::deque<Step> in_flight_;
  StepId last_step_;
  ReplayReport report_;
};

}  // namespace

Result<ReplayReport> Replay(RecordSource& log, Executor* executor,
                            const std::function<void(const ReplayReport&)>& progress,
                            const std::function<void(RequestId)>& ended) {
  ASSIGN_OR_RETURN(Scheduler scheduler, Scheduler::Create(log.start().config));
  Replayer replayer(std::move(scheduler), executor, ended);
  Status status;
  while (status.ok()) {
    auto record = log.Next();
    if (!record) {
      status = record.error();
    } else if (!record->has_value()) {
      break;
    } else {
      status = replayer.Take(**record);
      if (progress) progress(replayer.report());
    }
  }
  replayer.Drain();
  RETURN_IF_ERROR(status);
  replayer.report().truncated = log.truncated();
  return replayer.report();
}

}  // namespace braid
