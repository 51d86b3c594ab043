// See the header. After each step: conservation and single ownership (Audit, CheckTables), progress
// and fairness (I-18); at the end: one end per request (I-19), the oracle's answer (I-20), empty
// pools.
#include "sim/simulation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "scheduler/plan_hash.h"
#include "sim/hash_executor.h"

namespace braid {
namespace {

// Plans in a row in which the best-ranked sequence may be without a row: it waits for a victim's
// rows.
constexpr int32_t kIdlePlansMax = 3;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::optional<FinishReason> finish;
  bool refused = false;
  int32_t preemptions = 0;
  std::vector<int32_t> first_start;  // where the row after each admission began
};

class Run {
 public:
  explicit Run(const Workload& workload)
      : w_(workload),
        lm_{w_.config.vocabulary},
        scheduler_(Create(w_.config)),
        executor_(w_.config.cache, w_.config.vocabulary, Options(w_)) {}

  Result<SimulationStats> Go() {
    size_t submitted = 0;
    for (int64_t turn = 0;; ++turn) {
      CHECK(turn < 200000, "no end: {} running, {} waiting", scheduler_.stats().running,
            scheduler_.stats().waiting);
      for (; submitted < w_.requests.size() && w_.requests[submitted].step <= turn; ++submitted) {
        scheduler_.Apply(Submit{w_.requests[submitted].request});
      }
      for (const ArrivingRequest& r : w_.requests) {
        if (r.abort_step == turn) scheduler_.Apply(Abort{r.request.id});
      }
      const bool quiet = in_flight_ == 0;
      const bool launched = LaunchNext();
      CHECK(launched || !quiet || scheduler_.idle(), "nothing runs and somebody waits");  // I-18
      while (in_flight_ > w_.overlap_depth || (!launched && in_flight_ > 0)) Land();
      RETURN_IF_ERROR(TakeOutputs());
      if (w_.flush_step == turn) scheduler_.Apply(FlushCache{});
      if (Status audit = scheduler_.Audit(); !audit.ok()) return audit.error();
      executor_.CheckTables();
      if (submitted == w_.requests.size() && scheduler_.idle()) break;
    }
    return Conclude();
  }

 private:
  static Scheduler Create(const SchedulerConfig& config) {
    auto scheduler = Scheduler::Create(config);
    CHECK(scheduler.ok(), "{}", scheduler.error().message);
    return *std::move(scheduler);
  }

  static HashExecutorOptions Options(const Workload& w) {
    HashExecutorOptions options{.late = w.late, .before_step = {}, .row_fails = {}};
    if (w.row_error_one_in > 0) {
      options.row_fails = [seed = w.error_seed, n = w.row_error_one_in](RequestId id,
                                                                        int32_t length) {
        const uint64_t key =
            static_cast<uint64_t>(id.value) * 100000 + static_cast<uint64_t>(length);
        return RandomBits(seed, key) % static_cast<uint64_t>(n) == 0;
      };
    }
    return options;
  }

  bool LaunchNext() {
    Plan plan = scheduler_.NextPlan();
    if (plan.empty()) {
      CHECK(plan.admissions.empty() && plan.tables.empty() && plan.released.empty());
      return false;
    }
    CHECK(static_cast<int32_t>(plan.tokens.size()) <= w_.config.step_tokens_max);
    stats_.trace = HashPlan(plan, stats_.trace);
    CheckProgress(plan);
    executor_.Launch(std::move(plan));
    ++in_flight_;
    ++stats_.steps;
    return true;
  }

  // The best-ranked sequence that holds a slot is never passed over for long (I-18).
  void CheckProgress(const Plan& plan) {
    for (const Admission& a : plan.admissions) {
      slots_[a.slot] = a.request->id;
      for (const Row& row : plan.rows) {
        if (row.slot != a.slot) continue;
        answers_[row.request].first_start.push_back(row.start);
      }
    }
    const RequestId* best = nullptr;
    for (const auto& [slot, id] : slots_) {
      if (answers_[id].finish) continue;
      if (best == nullptr || Priority(id) > Priority(*best) ||
          (Priority(id) == Priority(*best) && id < *best)) {
        best = &id;
      }
    }
    const auto runs = [&](const Plan& p) {
      return std::any_of(p.rows.begin(), p.rows.end(),
                         [&](const Row& r) { return r.request == *best; });
    };
    if (best != nullptr) {
      passed_over_ = runs(plan) || last_best_ != *best ? 0 : passed_over_ + 1;
      last_best_ = *best;
      CHECK(passed_over_ <= kIdlePlansMax, "request {} is passed over", best->value);
    }
    for (SlotId slot : plan.released) slots_.erase(slot);
  }

  int32_t Priority(RequestId id) const {
    return w_.requests[static_cast<size_t>(id.value)].request.priority;
  }

  void Land() {
    StepDone done = executor_.Wait();
    for (const RowResult& row : done.rows) {
      stats_.late_tokens += row.token >= 0 && answers_[row.request].finish.has_value();
    }
    scheduler_.Apply(done);
    --in_flight_;
  }

  Status TakeOutputs() {
    for (Output& o : scheduler_.TakeOutputs()) {
      Answer& a = answers_[o.id];
      const auto wrong = [&](const char* what) {
        return Error{ErrorCode::kInternal, fmt::format("request {}: {}", o.id.value, what)};
      };
      if (a.finish) return wrong("an output after the last one");  // I-19
      const auto move = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
      move(o.tokens, a.tokens);
      move(o.logprobs, a.logprobs);
      move(o.prompt_logprobs, a.prompt_logprobs);
      a.finish = o.finish;
      a.refused = o.finish && o.error_code != ErrorCode::kInternal;
      a.preemptions = o.preemptions;
      if (o.preemptions == 0 && !a.first_start.empty() &&
          o.cached_tokens != a.first_start.front()) {
        return wrong("cached_tokens is not what was reused");
      }
      if (!a.refused && o.output_tokens != static_cast<int32_t>(a.tokens.size())) {
        return wrong("output_tokens is not the number of tokens");
      }
      for (TokenId token : o.tokens) {
        stats_.trace = MixBits(stats_.trace + static_cast<uint64_t>(token));
      }
    }
    return {};
  }

  // I-20 for one request.
  Status Compare(const ArrivingRequest& arriving, const Answer& a) const {
    const Request& r = arriving.request;
    const auto wrong = [&](std::string what) {
      return Error{ErrorCode::kInternal, fmt::format("request {}: {}", r.id.value, what)};
    };
    if (!a.finish) return wrong("it never ended");
    if (a.refused) return {};
    if (a.preemptions > w_.config.preemptions_max) return wrong("it was preempted too often");
    const OracleAnswer want = AskOracle(lm_, r, w_.config.context_tokens_max);
    const bool cut = *a.finish == FinishReason::kAbort || *a.finish == FinishReason::kError;
    if (*a.finish == FinishReason::kAbort && arriving.abort_step < 0)
      return wrong("nobody aborted it");
    if (a.tokens.size() > want.tokens.size() ||
        !std::equal(a.tokens.begin(), a.tokens.end(), want.tokens.begin())) {
      return wrong("its tokens are not the oracle's");
    }
    if (!cut && (a.tokens.size() != want.tokens.size() || *a.finish != want.finish)) {
      return wrong(fmt::format("{} tokens came out, the oracle has {}", a.tokens.size(),
                               want.tokens.size()));
    }
    return CompareLogprobs(r, a, cut);
  }

  Status CompareLogprobs(const Request& r, const Answer& a, bool cut) const {
    const auto wrong = [&](const char* what) {
      return Error{ErrorCode::kInternal, fmt::format("request {}: {}", r.id.value, what)};
    };
    if (a.logprobs.size() != (r.logprobs >= 0 ? a.tokens.size() : 0)) {
      return wrong("not one log-probability per token");
    }
    const size_t scored = r.prompt_logprobs >= 0 ? r.prompt.size() : 0;
    if (a.prompt_logprobs.size() > scored || (!cut && a.prompt_logprobs.size() != scored)) {
      return wrong("not one prompt log-probability per prompt token");
    }
    uint64_t prefix = kEmptyPrefix;
    for (size_t p = 0; p < r.prompt.size() + a.logprobs.size(); ++p) {
      const bool in_prompt = p < r.prompt.size();
      if (!in_prompt) {
        const size_t i = p - r.prompt.size();
        if (a.logprobs[i] != lm_.Distribution(prefix, a.tokens[i], r.logprobs)) {
          return wrong("a log-probability is wrong");
        }
      }
      prefix = AppendToken(prefix, in_prompt ? r.prompt[p] : a.tokens[p - r.prompt.size()]);
      if (!in_prompt || p >= a.prompt_logprobs.size()) continue;
      const TokenId next = p + 1 < r.prompt.size() ? r.prompt[p + 1] : -1;
      if (a.prompt_logprobs[p] != lm_.Distribution(prefix, next, r.prompt_logprobs)) {
        return wrong("a prompt log-probability is wrong");
      }
    }
    return {};
  }

  Result<SimulationStats> Conclude() {
    const SchedulerStats s = scheduler_.stats();
    scheduler_.Apply(FlushCache{});
    if (s.parents_used != 0 || scheduler_.stats().parents_cached != 0) {
      return Error{ErrorCode::kInternal,
                   fmt::format("{} parents are still in use", s.parents_used)};
    }
    for (const ArrivingRequest& r : w_.requests) {
      const Answer& a = answers_[r.request.id];
      RETURN_IF_ERROR(Compare(r, a));
      stats_.refused += a.refused;
      stats_.aborted += *a.finish == FinishReason::kAbort;
      stats_.failed += !a.refused && *a.finish == FinishReason::kError;
      stats_.stopped += *a.finish == FinishReason::kStop;
      stats_.protected_requests += a.preemptions == w_.config.preemptions_max;
    }
    stats_.preemptions = s.preemptions;
    stats_.prompt_tokens = s.prompt_tokens;
    stats_.reused_tokens = s.reused_tokens;
    stats_.reuse_stops = s.reuse_stops;
    stats_.evictions_full = s.evictions_full;
    stats_.evictions_state = s.evictions_state;
    stats_.rows = executor_.rows_run();
    stats_.tokens = executor_.tokens_run();
    return stats_;
  }

  const Workload& w_;
  const HashLm lm_;
  Scheduler scheduler_;
  HashExecutor executor_;
  int32_t in_flight_ = 0;
  std::map<RequestId, Answer> answers_;
  std::map<SlotId, RequestId> slots_;
  RequestId last_best_;
  int32_t passed_over_ = 0;
  SimulationStats stats_;
};

}  // namespace

Result<SimulationStats> RunWorkload(const Workload& workload) { return Run(workload).Go(); }

Result<SimulationStats> RunSimulation(uint64_t seed) { return RunWorkload(MakeWorkload(seed)); }

}  // namespace braid
