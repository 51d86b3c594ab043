// One step: apply the plan's deltas, run the decoder over all rows, turn wanted states into logits
// slice by slice (so that no step needs [tokens, vocabulary] at once), describe or sample them,
// accept drafts as far as they are what was sampled, ask the drafters for the next ones.
#include "runtime/model_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "model/decoder.h"
#include "runtime/batch_rows.h"
#include "runtime/constraint_worker.h"
#include "runtime/device_draws.h"
#include "runtime/drafts/proposals.h"
#include "runtime/logits_rows.h"
#include "runtime/recorded_routes.h"
#include "runtime/sampler.h"
#include "runtime/slots.h"

namespace braid {

struct ModelExecutor::State {
  const ModelSpec& spec;
  ModelWeights weights;
  ModelExecutorConfig config;
  CachePlan cache_plan;
  Buffer arena;
  ThreadPool pool;
  Workspace workspace;
  ops::OpChoices choices;
  Decoder decoder;
  Slots slots;
  Sampler sampler;
  ConstraintWorker constraints;
  BatchRows rows;
  std::vector<Choice> chosen;  // of `rows.wanted`, where sampled
  // On a device: what is asked of it for each of `rows.wanted`; states and logits that come back.
  std::vector<ops::gpu::DeviceDraw> draws;
  std::vector<Matrix> last, seen;
  std::unique_ptr<Proposals> proposals;
  PlanMoves moves;
  ops::Ranks ranks;
  std::unique_ptr<RankCounts> rank_counts;    // null: of one rank, or nobody counts
  std::unique_ptr<ExpertMover> expert_mover;  // null: experts stay where they are
  EventSink* sink = nullptr;                  // of the last launch
  std::unique_ptr<HalfBatches> halves;        // null: no batch is cut
  OverlapChoice overlap;
  int32_t fullest = 0;              // tokens of a data-parallel rank in the step, at most
  ResultExchange exchange;          // with the other ranks
  std::vector<RequestId> requests;  // of the step's rows, of all data-parallel ranks
  size_t first_row = 0;             // of this rank's among them

  State(const ModelSpec& model, ModelWeights loaded, const ModelExecutorConfig& c)
      : spec(model),
        weights(std::move(loaded)),
        config(c),
        cache_plan(CachePlanOf(model, c.kv_dtype)),
        arena(c.home ? 0 : c.cache.page_bytes * c.cache.pages),
        pool(c.threads, c.places),
        decoder(spec, weights, cache_plan, c.kv_dtype),
        slots(config.cache, c.home ? c.home->arena() : arena.data(), c.running_max,
              c.context_tokens_max),
        sampler(model.vocabulary, c.sampled_vocabulary, c.threads),
        constraints(c.constraints, c.running_max, model.vocabulary),
        moves(c.movers, c.home ? c.home->moved_arena() : Arena{arena.data()}, config.cache),
        ranks(c.ranks),
        overlap(c.overlap) {
    ranks.sums = c.reduce_fast;
    proposals =
        std::make_unique<Proposals>(Proposals::Parts{.spec = spec,
                                                     .weights = weights,
                                                     .cache = cache_plan,
                                                     .kv_dtype = c.kv_dtype,
                                                     .decoder = decoder,
                                                     .sampler = sampler,
                                                     .constraints = constraints,
                                                     .slots = slots,
                                                     .running_max = c.running_max,
                                                     .context_tokens_max = c.context_tokens_max,
                                                     .step_tokens_max = c.step_tokens_max,
                                                     .draft_tokens_max = c.draft_tokens_max,
                                                     .stand_in = c.draft_head,
                                                     .rehearsal = c.rehearsal,
                                                     .dp_ranks = c.dp_ranks,
                                                     .home = c.home,
                                                     .samples = samples(),
                                                     .trace = c.trace});
    if (!alone()) {
      if (c.experts != nullptr) rank_counts = std::make_unique<RankCounts>(*c.experts, ranks);
      ChooseAllReplicas(spec, c.experts_at, *ranks.experts, weights, rank_counts.get());
      if (c.moves != nullptr) {
        expert_mover = std::make_unique<ExpertMover>(ExpertMover::Parts{.spec = spec,
                                                                        .weights = weights,
                                                                        .slots = config.experts_at,
                                                                        .group = *c.moves,
                                                                        .loads = rank_counts.get(),
                                                                        .rank = ranks.all->rank(),
                                                                        .limits = c.move_limits});
      }
    }
    workspace = c.home ? c.home->MakeWorkspace() : Workspace(MeasureStep(c.step_tokens_max, true));
    if (!alone() && c.overlap != Overlap::kOff) {
      halves = std::make_unique<HalfBatches>(
          HalfBatches::Parts{.cache = config.cache,
                             .pool = pool,
                             .groups = {c.ranks, c.second_half},
                             .workspace_bytes = MeasureStep(c.step_tokens_max / 2, false),
                             .spec = spec});
    }
    pool.set_trace(c.trace);
    if (c.home != nullptr) c.home->SetTrace(c.trace);
  }

  bool alone() const { return ranks.all == nullptr; }
  bool lost() const { return config.home != nullptr && !ranks.status.ok(); }
  bool samples() const { return alone() || ranks.tensor->rank() == 0; }

  // Of ops that record for the device where the model lives.
  ops::OpContext RecordingContext() {
    ops::OpContext context{VulkanDevice(), &pool, &workspace, &choices};
    context.recorder = &config.home->recorder();
    context.handed = config.home->handed();
    return context;
  }

  ops::OpContext ContextOn(Workspace& on) {
    return {config.device, &pool, &on, on.measuring() ? nullptr : &choices,
            alone() ? nullptr : &ranks};
  }

  // The most a step of so many tokens can need: of as many sequences, or of one that ends with the
  // longest context; each token's distribution is wanted, or none is.
  int64_t MeasureStep(int32_t tokens, bool wanted) {
    const int32_t most = std::min(tokens, config.context_tokens_max);
    const ops::SequenceSpan longest{0, most, config.context_tokens_max - most, {}};
    std::vector<ops::SequenceSpan> spans;
    for (int32_t i = 0; i < tokens; ++i) spans.push_back({i, 1, 0, {}});
    return std::max(Measure({spans.data(), tokens, tokens}, wanted),
                    Measure({&longest, 1, tokens}, wanted));
  }

  int64_t Measure(const ops::SequenceIndex& sequences, bool wanted) {
    Workspace measuring = Workspace::Measuring();
    const ops::OpContext context = ContextOn(measuring);
    Matrix states = measuring.TakeMatrix(sequences.tokens, spec.hidden);
    decoder.Forward(context, {.sequences = sequences}, states);
    if (!wanted) return measuring.peak();
    proposals->Measure(context);
    measuring.TakeMatrix(sequences.tokens, spec.hidden);  // the wanted ones
    Matrix logits = measuring.TakeMatrix(kLogitsRows, spec.vocabulary);
    decoder.Logits(context, states.first_rows(std::min(kLogitsRows, sequences.tokens)), logits);
    return measuring.peak();
  }

  // All bits set are NaN in every format that pages are kept in.
  void Poison(const Plan& plan) {
    for (const FreedBlock& freed : plan.freed) {
      const auto group = static_cast<size_t>(freed.group.value);
      std::memset(arena.data() + BlockBytesOffset(config.cache, freed.group, freed.block), 0xff,
                  static_cast<size_t>(config.cache.groups[group].block_bytes));
    }
  }

  void CheckLastStates(const Matrix& states, StepDone& out) const {
    for (const auto& [row, at] : rows.last_states) CheckState(states.row(at), row, out);
  }

  void CheckState(const float* state, int32_t row, StepDone& out) const {
    const bool finite =
        std::all_of(state, state + spec.hidden, [](float x) { return std::isfinite(x); });
    if (!finite) {
      out.rows[static_cast<size_t>(row)].error =
          "the model's states are not finite for this request";
    }
  }

  static TokenLogprob& DescriptionAt(const Plan& plan, const BatchRows::Wanted& w, StepDone& out) {
    const int32_t start = plan.rows[static_cast<size_t>(w.row)].start;
    return out.rows[static_cast<size_t>(w.row)]
        .prompt_logprobs[static_cast<size_t>(w.position - start)];
  }

  void Finish(const ops::OpContext& context, const Plan& plan, int member, size_t at,
              std::span<const float> logits, StepDone& out) {
    const BatchRows::Wanted& w = rows.wanted[at];
    const Row& row = plan.rows[static_cast<size_t>(w.row)];
    const Slot& slot = slots[row.slot];
    if (w.describe) {
      DescriptionAt(plan, w, out) = Sampler::Describe(context, logits, slot.prompt_logprobs,
                                                      FollowingToken(slot, w.position));
    }
    if (!w.sample) return;
    Choice& choice = chosen[at];
    choice = {};
    const uint32_t* allowed = nullptr;
    if (!slot.grammar.empty()) {
      const auto drafts = static_cast<int32_t>(at - rows.first_choices[static_cast<size_t>(w.row)]);
      const Result<const uint32_t*> mask = constraints.Await(row.slot, drafts);
      if (!mask) {
        choice.error = "the request's grammar: " + mask.error().message;
        // A grammar that is over its budget is the request's fault.
        const ErrorCode code = mask.error().code;
        choice.error_code = code == ErrorCode::kExhausted ? ErrorCode::kInvalid : code;
        return;
      }
      if (*mask == nullptr) return;  // a draft before this one is never accepted
      allowed = *mask;
    }
    const int32_t length = w.position + 1;
    sampler.Choose(context, {slot, length, member, slot.ForcedToken(length), allowed}, logits,
                   choice);
  }

  // The model's states of all tokens to `all`, of ranks perhaps in two halves.
  void Forward(const ops::OpContext& context, Matrix all) {
    RecordedRoutes routes(config.experts);
    const auto run = [&](const ops::OpContext& on, const ops::SequenceIndex& sequences,
                         int32_t begin, LayerWatch* watch) {
      decoder.Forward(on,
                      {.tokens = rows.tokens.data() + begin,
                       .sequences = sequences,
                       .routes = config.experts == nullptr ? nullptr : &routes,
                       .watch = watch},
                      all.some_rows(begin, sequences.tokens));
    };
    if (halves != nullptr && overlap.Cuts(fullest)) {
      ranks.status = halves->Run(context, rows.sequences(), [&](const HalfBatches::Half& half) {
        run(half.context, half.sequences, half.begin, &half.watch);
      });
      return;
    }
    const OverlapChoice::Measured measured(overlap, ranks, fullest);
    run(context, rows.sequences(), 0, nullptr);
  }

  // The model's states of all tokens to `all`, then what is wanted of them.
  void Run(const ops::OpContext& context, const Plan& plan, Matrix all, StepDone& out) {
    Forward(context, all);
    EndPass(static_cast<int64_t>(plan.tokens.size()));
    WorkspaceScope scope(workspace);
    Matrix states = workspace.TakeMatrix(std::ssize(rows.wanted_tokens), spec.hidden);
    for (int64_t i = 0; i < states.rows; ++i) {
      std::copy_n(all.row(rows.wanted_tokens[static_cast<size_t>(i)]), spec.hidden, states.row(i));
    }
    CheckLastStates(states, out);
    const auto distributions = static_cast<int32_t>(rows.wanted.size());
    chosen.resize(std::max(chosen.size(), rows.wanted.size()));
    for (int32_t begin = 0; begin < distributions && ranks.status.ok(); begin += kLogitsRows) {
      const int32_t count = std::min(kLogitsRows, distributions - begin);
      WorkspaceScope slice(workspace);
      Matrix logits = workspace.TakeMatrix(count, spec.vocabulary);
      decoder.Logits(context, {states.row(begin), count, states.cols, states.stride}, logits);
      if (!samples() || !ranks.status.ok()) continue;
      const TraceSpan span(config.trace, "sample", count);
      pool.Run(count, [&](int64_t i, int member) {
        Finish(context, plan, member, static_cast<size_t>(begin + i),
               {logits.row(i), static_cast<size_t>(spec.vocabulary)}, out);
      });
    }
  }

  const Slot& SlotAt(const Plan& plan, const BatchRows::Wanted& w) {
    return slots[plan.rows[static_cast<size_t>(w.row)].slot];
  }

  // The same on a device: one submission, which brings its choices, and the logits of at most
  // kLogitsRows rows that the host samples; one more for each further kLogitsRows of these.
  void RunOnDevice(ops::OpContext context, const Plan& plan, Matrix all, StepDone& out) {
    ModelDevice& home = *config.home;
    home.BeginPasses();
    const DevicePass pass = home.LayPass(rows.slot_ids, rows.sequences(), rows.tokens);
    context.batch = &pass.batch;
    home.LayWanted(rows.wanted_tokens);
    draws.clear();
    for (const BatchRows::Wanted& w : rows.wanted) draws.push_back(DrawOf(SlotAt(plan, w), w));
    home.LayDraws(draws);
    WorkspaceScope scope(workspace);
    decoder.Forward(context, {.tokens = pass.tokens, .sequences = rows.sequences()}, all);
    Matrix states = workspace.TakeMatrix(std::ssize(rows.wanted_tokens), spec.hidden);
    ops::AddRows(context, {.rows = all, .at = home.wanted(), .out = states});
    last.clear();
    seen.clear();
    for (const auto& [row, at] : rows.last_states)
      last.push_back(home.Return(states.some_rows(at, 1)));
    chosen.resize(std::max(chosen.size(), rows.wanted.size()));
    const auto end = static_cast<int32_t>(rows.wanted.size());
    int32_t begin = 0, submitted = 0;
    do {
      const int32_t next = std::min(begin + kLogitsRows, end);
      WorkspaceScope slice(workspace);
      Matrix logits = workspace.TakeMatrix(next - begin, spec.vocabulary);
      if (next > begin) decoder.Logits(context, states.some_rows(begin, next - begin), logits);
      ops::gpu::RunSample(context, {.logits = logits,
                                    .sampled = sampler.sampled_vocabulary(),
                                    .draws = home.draws() + begin,
                                    .drawn = home.drawn() + begin});
      for (int32_t i = begin; i < next; ++i) {
        if (HostDraws(i)) seen.push_back(home.Return(logits.some_rows(i - begin, 1)));
      }
      begin = next;
      int32_t more = 0;  // for the host, in the next slice
      for (int32_t i = begin; i < std::min(begin + kLogitsRows, end); ++i) more += HostDraws(i);
      if (begin < end && std::ssize(seen) + more <= kLogitsRows) continue;
      ranks.status = home.Finish();
      if (!ranks.status.ok()) return Fail(out);
      for (size_t i = 0; submitted == 0 && i < last.size(); ++i) {
        CheckState(last[i].data, rows.last_states[i].first, out);
      }
      TakeDrawn(plan, submitted, begin, out);
      submitted = begin;
    } while (begin < end);
  }

  bool HostDraws(int32_t at) const { return draws[static_cast<size_t>(at)].flags == 0; }

  // What the device says of some distributions; those in `seen` are sampled here.
  void TakeDrawn(const Plan& plan, int32_t begin, int32_t end, StepDone& out) {
    const TraceSpan span(config.trace, "sample", end - begin);
    std::vector<size_t> here;
    for (int32_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      if (HostDraws(i)) {
        here.push_back(at);
        continue;
      }
      const BatchRows::Wanted& w = rows.wanted[at];
      const Slot& slot = SlotAt(plan, w);
      const ops::gpu::DeviceDrawn& drawn = config.home->drawn_seen()[at];
      if (w.describe) {
        DescriptionAt(plan, w, out) = DescriptionOf(drawn, FollowingToken(slot, w.position),
                                                    drawn.next_logit, slot.prompt_logprobs);
      }
      if (!w.sample) continue;
      chosen[at] = {};
      TakeChoice(drawn, slot, w, chosen[at]);
    }
    const ops::OpContext host = ContextOn(workspace);
    pool.Run(std::ssize(here), [&](int64_t i, int member) {
      const auto vocabulary = static_cast<size_t>(spec.vocabulary);
      const std::span<const float> logits(seen[static_cast<size_t>(i)].data, vocabulary);
      Finish(host, plan, member, here[static_cast<size_t>(i)], logits, out);
    });
    seen.clear();
  }

  // Of so many tokens of all ranks.
  void EndPass(int64_t pass_tokens) {
    if (config.experts == nullptr || !ranks.status.ok()) return;
    if (config.balancer != nullptr) config.balancer->AddStep(pass_tokens);
    if (rank_counts == nullptr) return config.experts->EndPass(pass_tokens);
    const Result<bool> complete = rank_counts->EndPass(pass_tokens);
    if (!complete) {
      ranks.status = complete.error();
    } else if (*complete && config.balancer != nullptr && expert_mover != nullptr) {
      config.balancer->Add({.counts = rank_counts->sum(),
                            .steps = ExpertRecorder::kWindows[0],
                            .moving = expert_mover->progress().moving},
                           *sink, [&] { return expert_mover->placement(); });
    }
  }

  StepDone RunStep(Plan whole, EventSink& events) {
    requests.clear();
    first_row = 0;
    for (const Row& row : whole.rows) {
      requests.push_back(row.request);
      first_row += row.slot.value < config.dp_rank * config.running_max ? 1 : 0;
    }
    if (!alone()) {
      fullest = TokensOfTheFullest(whole, config.running_max);
      ranks.parcel_rows =
          ParcelRowsOf(config.dispatch, whole, config.running_max, ranks.tensor->size());
    }
    const Plan plan = config.dp_ranks == 1
                          ? std::move(whole)
                          : PlanOf(std::move(whole), config.dp_rank, config.running_max);
    const TraceSpan span(config.trace, "step", static_cast<int64_t>(plan.tokens.size()));
    StepDone out;
    out.step = plan.step;
    // What the last step recorded and did not submit is of pages that may leave now.
    if (config.home != nullptr && ranks.status.ok() && !plan.moves.empty()) {
      ranks.status = config.home->Finish();
    }
    if (!ranks.status.ok()) {
      lost() ? PlanMoves::End(plan, ranks.status.error(), events) : moves.Start(plan, events);
      Fail(out);
      return out;
    }
    if (expert_mover != nullptr) {
      if (!plan.experts.empty()) expert_mover->Begin(plan.experts);
      expert_mover->Step();
    }
    if (config.poison_freed && config.home == nullptr) Poison(plan);
    slots.Begin(plan);
    if (config.home != nullptr) config.home->Apply(plan, slots);
    moves.Start(plan, events);
    for (const Admission& admission : plan.admissions) {
      constraints.Reset(admission.slot);
      proposals->Reset(admission.slot);
    }
    rows.Lay(plan, slots);
    CHECK(static_cast<int32_t>(rows.tokens.size()) <= config.step_tokens_max,
          "{} tokens in a step of at most {}", rows.tokens.size(), config.step_tokens_max);
    // The masks are computed while the decoder runs.
    for (const Row& row : plan.rows) {
      if (samples() && row.sample && !slots[row.slot].grammar.empty()) {
        const Slot& slot = slots[row.slot];
        constraints.Prepare(row.slot, slot, slot.length() - row.drafts);
      }
    }
    for (const Row& row : plan.rows) {
      RowResult result;
      result.request = row.request;
      if (row.prompt_logprobs) result.prompt_logprobs.resize(static_cast<size_t>(row.token_count));
      out.rows.push_back(std::move(result));
    }
    Compute(plan, out);
    slots.End(plan);
    return out;
  }

  // The plan's rows, whose results are `out`; then of all ranks.
  void Compute(const Plan& plan, StepDone& out) {
    const ops::OpContext context = config.home ? RecordingContext() : ContextOn(workspace);
    WorkspaceScope scope(workspace);
    const Matrix states = workspace.TakeMatrix(std::ssize(rows.tokens), spec.hidden);
    if (config.home != nullptr) {
      if (!plan.rows.empty()) RunOnDevice(context, plan, states, out);
    } else if (!plan.rows.empty() || !alone()) {
      Run(context, plan, states, out);
    }
    const DraftRows proposed{.context = context,
                             .plan = plan,
                             .states = states,
                             .rows = rows,
                             .first_row = first_row,
                             .status = &ranks.status};
    if (samples() && ranks.status.ok()) {
      for (size_t r = 0; r < plan.rows.size(); ++r) {
        if (plan.rows[r].sample) Accept(plan.rows[r], rows.first_choices[r], out.rows[r]);
      }
      Commit(plan, out.rows);
      proposals->OfOneRank(proposed, out.rows);
    }
    if (!alone()) Agree(plan, out);
    if (!ranks.status.ok()) return;
    proposals->OfTheHead(proposed, std::span(out.rows));
    if (!ranks.status.ok()) Fail(out);
  }

  // All ranks get the results of those that sample.
  void Agree(const Plan& plan, StepDone& out) {
    if (ranks.status.ok()) {
      const RankWord own{.halves_from = overlap.tokens_least(),
                         .vote = expert_mover ? expert_mover->vote() : MoveVote::kBusy};
      ranks.status = exchange.Share(*ranks.all, samples(), own, requests.size(), out);
    }
    if (!ranks.status.ok()) return Fail(out);
    overlap.Agree(exchange.halves_from());
    if (!samples()) Commit(plan, std::span(out.rows).subspan(first_row));
    if (expert_mover != nullptr) expert_mover->Apply(exchange.votes(), pool);
  }

  // The step of a group, or on a device, that has ended.
  void Fail(StepDone& out) const {
    out.rows.clear();
    const std::string why = config.home ? "" : "the group of ranks has ended: ";
    for (const RequestId request : requests) {
      out.rows.push_back({.request = request,
                          .error = why + ranks.status.error().message,
                          .error_code = ErrorCode::kUnavailable});
    }
  }

  // Drafts are output as long as they are what was chosen; the choice after them is the row's
  // token.
  void Accept(const Row& row, size_t first, RowResult& result) {
    const Slot& slot = slots[row.slot];
    const int32_t known = slot.length() - row.drafts;
    CHECK(known == row.start + row.token_count - row.drafts);
    const auto choice = [&](int32_t drafts) -> Choice& {
      return chosen[first + static_cast<size_t>(drafts)];
    };
    int32_t& accepted = result.accepted;
    while (accepted < row.drafts &&
           choice(accepted).token == slot.tokens[static_cast<size_t>(known + accepted)]) {
      ++accepted;
    }
    // Nothing could be chosen behind an accepted draft: it ends the answer, or there was an error,
    // which the next row meets again after everything that was right.
    if (accepted > 0 && choice(accepted).token < 0) --accepted;
    for (int32_t i = 0; i < accepted && slot.logprobs >= 0; ++i) {
      result.accepted_logprobs.push_back(std::move(choice(i).logprob));
    }
    Choice& last = choice(accepted);
    result.token = last.token;
    result.logprob = std::move(last.logprob);
    result.error = std::move(last.error);
    result.error_code = last.error_code;
  }

  // What has become output is known from here on, also to the next plan's kSampledInFlight.
  void Commit(const Plan& plan, std::span<const RowResult> results) {
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const Row& row = plan.rows[r];
      if (!row.sample) continue;
      const RowResult& result = results[r];
      std::vector<TokenId>& known = slots[row.slot].tokens;
      known.resize(known.size() - static_cast<size_t>(row.drafts - result.accepted));
      if (result.token >= 0) known.push_back(result.token);
    }
  }
};

Status ModelExecutor::CanRun(const SchedulerConfig& config, int32_t dp_ranks) {
  const auto bad = [](std::string message, const char* field) {
    return Error{ErrorCode::kInvalid, std::move(message), field};
  };
  if (config.dp_ranks != dp_ranks) {
    return bad(fmt::format("dp_ranks is {}; this engine has {}", config.dp_ranks, dp_ranks),
               "dp_ranks");
  }
  if (config.handoff) {
    return bad(
        "handoff is on; this engine computes requests from their first token to their last, "
        "so it must be off",
        "handoff");
  }
  return {};
}

ModelExecutor::ModelExecutor(const ModelSpec& spec, ModelWeights weights,
                             const ModelExecutorConfig& config)
    : state_(std::make_unique<State>(spec, std::move(weights), config)) {}

ModelExecutor::~ModelExecutor() = default;

void ModelExecutor::BindEngineThread() const { state_->pool.BindCaller(); }

void ModelExecutor::Launch(Plan plan, EventSink& events) {
  if (state_->lost()) Reopen();
  state_->sink = &events;
  if (state_->config.times != nullptr) {
    state_->config.times->Begin(static_cast<int64_t>(plan.tokens.size()));
  }
  StepDone done = state_->RunStep(std::move(plan), events);
  if (state_->config.times != nullptr) state_->config.times->End(BesideStepOf(mover()));
  events.Post(std::move(done));
  if (!state_->lost()) return;
  state_->moves.Drain();
  events.Post(ArenasLost{state_->ranks.status.error().message});
}

// Everything that was of the old device goes with the old state.
void ModelExecutor::Reopen() {
  if (!state_->config.reopen) return;
  Result<Reopened> opened = state_->config.reopen();
  if (!opened) {
    state_->ranks.status = opened.error();
    return;
  }
  ModelExecutorConfig config = state_->config;
  config.home = opened->home;
  state_ = std::make_unique<State>(state_->spec, std::move(opened->weights), config);
  BindEngineThread();
}

const ExpertMover* ModelExecutor::mover() const { return state_->expert_mover.get(); }
const RankCounts* ModelExecutor::rank_counts() const { return state_->rank_counts.get(); }
const Status& ModelExecutor::group_status() const { return state_->ranks.status; }

std::string ModelExecutor::ExplainOps() const {
  std::string text;
  for (const auto& choice : state_->choices.choices) {
    text += fmt::format("{:<18} {}", choice.op, choice.taken);
    for (const std::string& refused : choice.refused) text += "   (" + refused + ")";
    text += '\n';
  }
  return text;
}

int64_t ModelExecutor::arena_bytes() const {
  const CacheGeometry& cache = state_->config.cache;
  return cache.page_bytes * cache.pages;
}
int64_t ModelExecutor::workspace_bytes() const {
  const HalfBatches* halves = state_->halves.get();
  return state_->workspace.capacity() + (halves ? halves->workspace_bytes() : 0);
}

}  // namespace braid
