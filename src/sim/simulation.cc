// See the header. What concerns memory is checked by Scheduler::Audit and the hash executor, what
// concerns requests here.
#include "sim/simulation.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "scheduler/planning/plan_hash.h"
#include "sim/hash_executor.h"

namespace braid {
namespace {

// Plans in a row in which the highest-priority sequence may be without a row: it waits for a
// victim's rows.
constexpr int32_t kIdlePlansMax = 3;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::optional<FinishReason> finish;
  bool refused = false;
  int32_t preemptions = 0;
  std::vector<int32_t> first_start;  // where the row after each admission began
  int32_t priority = 0;
  int64_t submitted = 0;  // turn
  bool answered = false;  // had its first output
  // Of its first admission: what it asks for, and how far its rows and their results have come.
  const Request* request = nullptr;
  bool resumed = false;
  int32_t planned = 0, landed = 0;
  size_t returned = 0;  // tokens of its rows that have come back
};

class Run {
 public:
  Run(const Workload& workload, SimulatedEngine& engine)
      : w_(workload),
        lm_{w_.config.vocabulary},
        engine_(engine),
        has_state_(std::any_of(w_.config.cache.groups.begin(), w_.config.cache.groups.end(),
                               [](const GroupGeometry& g) { return g.kind == GroupKind::kState; })),
        before_(engine.scheduler().stats()),
        rows_before_(engine.executor().rows_run()),
        tokens_before_(engine.executor().tokens_run()) {
    for (const ArrivingRequest& r : w_.requests) {
      answers_[r.request.id].priority = r.request.priority;
    }
  }

  Result<SimulationStats> Go() {
    engine_.Begin(w_, [this](const Plan& plan) { OnLaunch(plan); });
    const auto runs = [&] { return !engine_.ended() && !engine_.scheduler().idle(); };
    for (; submitted_ < w_.requests.size() || runs(); ++turn_) {
      const SchedulerStats stats = engine_.scheduler().stats();
      CHECK(turn_ < 200000, "I-18: no end: {} running, {} waiting", stats.running, stats.waiting);
      SubmitAndAbort();
      if (engine_.ended()) continue;
      Interfere();
      ASSIGN_OR_RETURN(const bool goes_on, engine_.Turn());
      RETURN_IF_ERROR(wrong_);
      RETURN_IF_ERROR(CheckDelivered());
      if (!goes_on) {
        RETURN_IF_ERROR(CheckEnded());
        continue;
      }
      if (Status audit = engine_.scheduler().Audit(); !audit.ok()) return audit.error();
      engine_.executor().CheckTables();
      const int32_t steps = engine_.executor().in_flight();
      CHECK(
          steps > 0 || engine_.executor().fake_moves() > 0 || engine_.scheduler().idle() || paused_,
          "I-17: nothing runs and somebody waits");
      EndMoves(steps == 0);
      if (steps > 0 && (!w_.slow || RandomBits(w_.error_seed, ++draws_) % 3 > 0)) EndStep();
    }
    return Conclude();
  }

 private:
  void SubmitAndAbort() {
    for (; submitted_ < w_.requests.size() && w_.requests[submitted_].step <= turn_; ++submitted_) {
      const Request& request = w_.requests[submitted_].request;
      Answer& answer = answers_[request.id];
      answer.submitted = turn_;
      sinks_.emplace_back(*this);
      if (const Status status = engine_.driver().Submit(request, &sinks_.back()); !status) {
        answer.refused = true;
        answer.finish = FinishReason::kError;
      }
    }
    for (const ArrivingRequest& r : w_.requests) {
      if (r.abort_step == turn_) engine_.driver().Abort(r.request.id);
      if (r.abort_step == turn_) aborted_.insert(r.request.id);
    }
  }

  // What an operator or the world does.
  void Interfere() {
    Driver& driver = engine_.driver();
    const auto n = static_cast<uint64_t>(w_.drop_one_in);
    if (n > 0 && RandomBits(w_.error_seed, ++draws_) % n == 0) engine_.DropStored(draws_);
    if (w_.flush_step == turn_) driver.FlushCache();
    if (w_.pause_step == turn_ || (paused_ && w_.resume_step <= turn_)) {
      paused_ = w_.pause_step == turn_ && !stopped_;
      driver.SetPaused(w_.pause_step == turn_);
    }
    if (w_.stop_step == turn_) {
      stopped_ = true;
      paused_ = false;
      driver.Stop(w_.stop_now);
    }
    if (w_.lost_step == turn_) engine_.LoseGroup();
  }

  // With nothing alive or in flight after a stop, or when the group is lost.
  Status CheckEnded() {
    const bool lost = !engine_.driver().ended().ok();
    if (lost ? w_.lost_step >= 0 && w_.lost_step <= turn_
             : stopped_ && engine_.scheduler().idle() && engine_.executor().in_flight() == 0 &&
                   engine_.executor().fake_moves() == 0) {
      return {};
    }
    return Error{ErrorCode::kInternal, "I-26: the driver ends too early"};
  }

  // Everything that has come back has been delivered, or its request has ended.
  Status CheckDelivered() {
    for (const auto& [id, tokens] : std::exchange(returned_, {})) {
      Answer& a = answers_[id];
      a.returned += tokens;
      if (a.finish || a.returned == a.tokens.size()) continue;
      return Error{ErrorCode::kInternal,
                   fmt::format("I-25: {} tokens of request {} came back, {} were delivered",
                               a.returned, id.value, a.tokens.size())};
    }
    return {};
  }

  void OnLaunch(const Plan& plan) {
    CHECK(!paused_, "I-22: a step begins in a pause");
    CHECK(engine_.executor().in_flight() <= w_.overlap_depth, "I-23: {} steps are in flight",
          engine_.executor().in_flight());
    CheckBudgets(plan);
    CheckShared(plan);
    stats_.trace = HashPlan(plan, stats_.trace);
    CheckProgress(plan);
    ends_.emplace_back();
    for (const Row& row : plan.rows) {
      ends_.back().emplace_back(row.request, row.start + row.token_count);
    }
    ++stats_.steps;
  }

  // Moves take their time; when nothing else goes on, one ends.
  void EndMoves(bool must) {
    while (const int32_t count = engine_.executor().fake_moves()) {
      const uint64_t draw = RandomBits(w_.error_seed, ++draws_);
      if (!std::exchange(must, false) && draw % 4 != 0) return;
      const auto index = static_cast<int32_t>(draw / 4 % static_cast<uint64_t>(count));
      const auto n = static_cast<uint64_t>(w_.move_error_one_in);
      const RequestId receiver = engine_.executor().fake_move(index).request;
      const PageMove move = engine_.executor().fake_move(index);
      const PagesMoved done = engine_.EndFakeMove(index, n > 0 && draw / 4096 % n == 0);
      if (draw / 1024 % 4 == 0) engine_.driver().Post(done);  // a peer may say it twice
      if (move.place == Place::kDisk && move.in() && done.error.empty()) {
        answers_[receiver].first_start.push_back(move.end);
      }
      if (done.token >= 0 && done.error.empty()) returned_.emplace_back(receiver, 1);
    }
  }

  // Every rank has a budget of its own.
  void CheckBudgets(const Plan& plan) const {
    std::vector<int32_t> tokens(static_cast<size_t>(w_.config.dp_ranks));
    for (const Row& row : plan.rows) {
      int32_t& of_rank = tokens[static_cast<size_t>(row.slot.value / w_.config.running_max)];
      of_rank += row.token_count;
      CHECK(of_rank <= w_.config.step_tokens_max, "I-18: a rank's budget is passed");
    }
  }

  // Of requests that were submitted a moment ago and are admitted already: none begins with whole
  // blocks that a higher-priority one on its rank is computing, unless the state for them will not
  // be left any more (I-21).
  void CheckShared(const Plan& plan) {
    for (SlotId slot : plan.released) slots_.erase(slot);
    for (const Admission& a : plan.admissions) slots_.erase(a.slot);
    for (const Admission& a : plan.admissions) {
      const Answer& answer = answers_[a.request->id];
      if (answer.submitted != turn_ || !answer.first_start.empty()) continue;
      for (const Row& row : plan.rows) {
        if (row.slot == a.slot) CheckAlone(*a.request, row);
      }
    }
    for (const Admission& a : plan.admissions) {
      Answer& answer = answers_[a.request->id];
      answer.request = a.request;
      answer.resumed = !a.output.empty() || !answer.first_start.empty();
    }
    for (const PageMove& move : plan.moves) {
      if (move.place == Place::kDisk && move.in()) answers_[move.request].planned = move.end;
    }
    for (const Row& row : plan.rows) {
      Answer& answer = answers_[row.request];
      if (answer.planned == 0) answer.landed = row.start;
      answer.planned = row.start + row.token_count;
    }
  }

  void CheckAlone(const Request& r, const Row& row) {
    if (!w_.config.prefix_cache || r.prompt_logprobs >= 0 || r.role == RequestRole::kDecode) return;
    for (const auto& [slot, id] : slots_) {
      const Answer& other = answers_[id];
      const bool runs = !other.finish && other.request != nullptr && !other.resumed &&
                        !aborted_.contains(id) && other.request->role != RequestRole::kDecode;
      const int32_t slots = w_.config.running_max;
      const bool rank = slot.value / slots == row.slot.value / slots;
      const bool before = Priority(id) > r.priority || (Priority(id) == r.priority && id < r.id);
      if (!runs || !rank || !before || other.request->tenant != r.tenant ||
          other.request->cache_salt != r.cache_salt) {
        continue;
      }
      const std::vector<TokenId>& prompt = other.request->prompt;
      const auto limit = static_cast<int32_t>(std::min(prompt.size(), r.prompt.size() - 1));
      const auto in_whole_blocks = [](auto n) {
        return static_cast<int32_t>(n) / kBlockTokens * kBlockTokens;
      };
      const int32_t common = in_whole_blocks(
          std::mismatch(prompt.begin(), prompt.begin() + limit, r.prompt.begin()).first -
          prompt.begin());
      const auto planned = std::min(other.planned, static_cast<int32_t>(prompt.size()));
      const bool passed = has_state_ && common < in_whole_blocks(planned);
      CHECK(common <= row.start || common <= in_whole_blocks(other.landed) || passed ||
                other.planned < row.start,
            "I-21: request {} computes {} tokens from {} on that request {} is about to publish",
            r.id.value, common, row.start, id.value);
    }
  }

  // The highest-priority sequence that holds a slot is never passed over for long (I-18).
  void CheckProgress(const Plan& plan) {
    for (const Admission& a : plan.admissions) {
      slots_[a.slot] = a.request->id;
      for (const Row& row : plan.rows) {
        if (row.slot != a.slot) continue;
        answers_[row.request].first_start.push_back(row.start);
      }
      for (const PageMove& t : plan.moves) {
        if (t.slot != a.slot || t.request != a.request->id) continue;
        if (t.place == Place::kPeer) answers_[t.request].first_start.push_back(t.begin);
      }
    }
    const RequestId* best = nullptr;
    for (const auto& [slot, id] : slots_) {
      if (answers_[id].finish || engine_.executor().Moving(id)) continue;
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
      CHECK(passed_over_ <= kIdlePlansMax, "I-18: request {} is passed over", best->value);
    }
    for (SlotId slot : plan.released) slots_.erase(slot);
  }

  int32_t Priority(RequestId id) { return answers_[id].priority; }

  void EndStep() {
    const StepDone done = engine_.EndStep();
    for (const auto& [id, end] : ends_.front()) answers_[id].landed = end;
    ends_.pop_front();
    for (const RowResult& row : done.rows) {
      stats_.late_tokens += row.token >= 0 && answers_[row.request].finish.has_value();
      if (row.token >= 0 && row.error.empty()) {
        returned_.emplace_back(row.request, static_cast<size_t>(row.accepted) + 1);
      }
    }
  }

  void Take(const Output& o) {
    Answer& a = answers_[o.id];
    const auto check = [&](bool right, const char* what) {
      if (right || !wrong_.ok()) return;
      wrong_ = Error{ErrorCode::kInternal, fmt::format("request {}: {}", o.id.value, what)};
    };
    check(!a.finish, "I-19: an output after the last one");
    const auto move = [](auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
    move(o.tokens, a.tokens);
    move(o.logprobs, a.logprobs);
    move(o.prompt_logprobs, a.prompt_logprobs);
    a.finish = o.finish;
    if (!std::exchange(a.answered, true)) CountWait(turn_ - a.submitted);
    a.refused = o.finish && o.error_code != ErrorCode::kInternal;
    a.preemptions = o.preemptions;
    check(a.refused || o.preemptions != 0 || a.first_start.empty() ||
              o.cached_tokens == a.first_start.front(),
          "I-20: cached_tokens is not what was reused");
    check(a.refused || o.output_tokens == static_cast<int32_t>(a.tokens.size()),
          "I-20: output_tokens is not the number of tokens");
    for (TokenId token : o.tokens) {
      stats_.trace = MixBits(stats_.trace + static_cast<uint64_t>(token));
    }
  }

  void CountWait(int64_t turns) {
    ++stats_.waits[std::min<size_t>(std::bit_width(static_cast<uint64_t>(turns)),
                                    stats_.waits.size() - 1)];
    stats_.wait_max = std::max(stats_.wait_max, turns);
  }

  // I-20 for one request.
  Status Compare(const ArrivingRequest& arriving, const Answer& a) const {
    const Request& r = arriving.request;
    const auto wrong = [&](std::string what) {
      return Error{ErrorCode::kInternal, fmt::format("request {}: {}", r.id.value, what)};
    };
    if (!a.finish) return wrong("I-19: it never ended");
    if (a.refused) return {};
    if (a.preemptions > w_.config.preemptions_max) return wrong("I-18: it was preempted too often");
    const OracleAnswer want = AskOracle(lm_, r, w_.config.context_tokens_max);
    const bool sent = *a.finish == FinishReason::kSent;
    if (sent && (r.role != RequestRole::kPrefill || a.tokens.size() != 1)) {
      return wrong("I-19: its pages are gone");
    }
    const bool cut = sent || *a.finish == FinishReason::kAbort || *a.finish == FinishReason::kError;
    if (*a.finish == FinishReason::kAbort && arriving.abort_step < 0 && !stopped_) {
      return wrong("I-19: nobody aborted it");
    }
    if (a.tokens.size() > want.tokens.size() ||
        !std::equal(a.tokens.begin(), a.tokens.end(), want.tokens.begin())) {
      return wrong("I-20: its tokens are not the oracle's");
    }
    if (!cut && (a.tokens.size() != want.tokens.size() || *a.finish != want.finish)) {
      return wrong(fmt::format("I-20: {} tokens came out, the oracle has {}", a.tokens.size(),
                               want.tokens.size()));
    }
    return CompareLogprobs(r, a, cut);
  }

  Status CompareLogprobs(const Request& r, const Answer& a, bool cut) const {
    const auto wrong = [&](const char* what) {
      return Error{ErrorCode::kInternal, fmt::format("request {}: {}", r.id.value, what)};
    };
    if (a.logprobs.size() != (r.logprobs >= 0 ? a.tokens.size() : 0)) {
      return wrong("I-20: not one log-probability per token");
    }
    const size_t scored = r.prompt_logprobs >= 0 ? r.prompt.size() : 0;
    if (a.prompt_logprobs.size() > scored || (!cut && a.prompt_logprobs.size() != scored)) {
      return wrong("I-20: not one prompt log-probability per prompt token");
    }
    uint64_t prefix = kEmptyPrefix;
    for (size_t p = 0; p < r.prompt.size() + a.logprobs.size(); ++p) {
      const bool in_prompt = p < r.prompt.size();
      if (!in_prompt) {
        const size_t i = p - r.prompt.size();
        if (a.logprobs[i] != lm_.Distribution(prefix, a.tokens[i], r.logprobs)) {
          return wrong("I-20: a log-probability is wrong");
        }
      }
      prefix = AppendToken(prefix, in_prompt ? r.prompt[p] : a.tokens[p - r.prompt.size()]);
      if (!in_prompt || p >= a.prompt_logprobs.size()) continue;
      const TokenId next = p + 1 < r.prompt.size() ? r.prompt[p + 1] : -1;
      if (a.prompt_logprobs[p] != lm_.Distribution(prefix, next, r.prompt_logprobs)) {
        return wrong("I-20: a prompt log-probability is wrong");
      }
    }
    return {};
  }

  Result<SimulationStats> Conclude() {
    if (paused_) engine_.driver().SetPaused(false);
    const SchedulerStats s = engine_.scheduler().stats();
    if (s.pages_used != 0 && engine_.driver().ended().ok()) {
      return Error{ErrorCode::kInternal,
                   fmt::format("I-1: {} pages are still in use", s.pages_used)};
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
    stats_.requests = static_cast<int64_t>(w_.requests.size());
    stats_.preemptions = s.preemptions - before_.preemptions;
    stats_.prompt_tokens = s.prompt_tokens - before_.prompt_tokens;
    stats_.reused_tokens = s.reused_tokens - before_.reused_tokens;
    for (size_t i = 0; i < kReuseStops; ++i) {
      stats_.reuse_stops[i] = s.reuse_stops[i] - before_.reuse_stops[i];
    }
    stats_.evictions_full = s.evictions_full - before_.evictions_full;
    stats_.evictions_state = s.evictions_state - before_.evictions_state;
    stats_.drafts = s.drafts - before_.drafts;
    stats_.drafts_accepted = s.drafts_accepted - before_.drafts_accepted;
    stats_.moves = s.moves - before_.moves;
    stats_.moves_failed = s.moves_failed - before_.moves_failed;
    stats_.parts_stored = s.tier.parts_out - before_.tier.parts_out;
    stats_.tokens_restored = s.stored_tokens - before_.stored_tokens;
    stats_.rows = engine_.executor().rows_run() - rows_before_;
    stats_.tokens = engine_.executor().tokens_run() - tokens_before_;
    return stats_;
  }

  struct Sink final : OutputSink {
    explicit Sink(Run& r) : run(r) {}
    void OnOutput(Output output) override { run.Take(output); }
    Run& run;
  };

  const Workload& w_;
  const HashLm lm_;
  SimulatedEngine& engine_;
  const bool has_state_;
  const SchedulerStats before_;
  const int64_t rows_before_, tokens_before_;
  int64_t turn_ = 0;
  size_t submitted_ = 0;
  uint64_t draws_ = 0;  // for the ends of moves and steps
  bool paused_ = false, stopped_ = false;
  Status wrong_;
  std::deque<Sink> sinks_;
  std::vector<std::pair<RequestId, size_t>> returned_;  // tokens that came back this turn
  std::map<RequestId, Answer> answers_;
  std::map<SlotId, RequestId> slots_;
  std::set<RequestId> aborted_;
  std::deque<std::vector<std::pair<RequestId, int32_t>>> ends_;  // of the rows in flight
  RequestId last_best_;
  int32_t passed_over_ = 0;
  SimulationStats stats_;
};

}  // namespace

void SimulationStats::Add(const SimulationStats& other) {
  trace += other.trace;
  requests += other.requests;
  steps += other.steps;
  rows += other.rows;
  tokens += other.tokens;
  preemptions += other.preemptions;
  protected_requests += other.protected_requests;
  aborted += other.aborted;
  failed += other.failed;
  refused += other.refused;
  stopped += other.stopped;
  late_tokens += other.late_tokens;
  prompt_tokens += other.prompt_tokens;
  reused_tokens += other.reused_tokens;
  for (size_t i = 0; i < kReuseStops; ++i) reuse_stops[i] += other.reuse_stops[i];
  evictions_full += other.evictions_full;
  evictions_state += other.evictions_state;
  drafts += other.drafts;
  drafts_accepted += other.drafts_accepted;
  moves += other.moves;
  moves_failed += other.moves_failed;
  parts_stored += other.parts_stored;
  tokens_restored += other.tokens_restored;
  for (size_t i = 0; i < waits.size(); ++i) waits[i] += other.waits[i];
  wait_max = std::max(wait_max, other.wait_max);
}

int64_t SimulationStats::WaitQuantile(double share) const {
  int64_t all = 0, seen = 0;
  for (int64_t n : waits) all += n;
  for (size_t i = 0; i < waits.size(); ++i) {
    seen += waits[i];
    if (static_cast<double>(seen) >= share * static_cast<double>(all)) return (int64_t{1} << i) - 1;
  }
  return wait_max;
}

Result<SimulationStats> RunWave(const Workload& workload, SimulatedEngine& engine) {
  return Run(workload, engine).Go();
}

Result<SimulationStats> RunWorkload(const Workload& workload) {
  SimulatedEngine engine(workload);
  ASSIGN_OR_RETURN(SimulationStats stats, RunWave(workload, engine));
  if (workload.config.tier) {
    SimulatedEngine after(workload);
    after.AdoptTier(engine);
    ASSIGN_OR_RETURN(const SimulationStats again, RunWave(workload, after));
    stats.Add(again);
  }
  if (engine.ended()) return stats;
  engine.driver().FlushCache();
  ASSIGN_OR_RETURN(const bool goes_on, engine.Turn());
  if (const int32_t left = engine.scheduler().stats().pages_cached; left != 0 || !goes_on) {
    return Error{ErrorCode::kInternal, fmt::format("I-1: {} pages outlive a flush", left)};
  }
  engine.driver().Stop(workload.stop_now);
  ASSIGN_OR_RETURN(const bool ends_not, engine.Turn());
  if (ends_not) return Error{ErrorCode::kInternal, "I-26: an idle driver does not stop"};
  return stats;
}

Result<SimulationStats> RunSeed(uint64_t seed, const WorkloadOptions& options) {
  return RunWorkload(MakeWorkload(seed, options));
}

}  // namespace braid
