// Submitting, collecting, ending.
#include "server/serving/generation.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/system/secure_random.h"

namespace braid {
namespace {
// Answers that take less may use what is left to requests.
constexpr int64_t kSmallHoldBytes = 64 << 10;
}  // namespace

ApiError EndError(EndReason reason) {
  switch (reason) {
    case EndReason::kDrained:
      return {503, "the server is shutting down", {}, "shutting_down"};
    case EndReason::kAborted:
      return {499, "another request aborted this one", {}, std::string(kAbortedCode)};
    case EndReason::kTooLong:
      return {503, "the request took too long", {}, "request_timeout"};
    case EndReason::kQueuedTooLong:
      return {503, "the request waited too long in the queue", {}, "queue_timeout"};
    case EndReason::kNoMemory:
      return {503, "no memory for the answer's log-probabilities; try again", {}, "overloaded"};
    case EndReason::kSlowReader:
      break;
  }
  return {503, "the client reads too slowly", {}, "slow_reader"};
}

struct Generation::Running {
  Running(Choice choice, Request request, RequestId id)
      : choice(std::move(choice)), id(id), prompt(request.prompt), request(std::move(request)) {}

  Choice choice;
  RequestId id;
  std::vector<TokenId> prompt;
  Request request;  // moved to the driver
  bool submitted = false;
  bool open = true;  // its mailbox is
  bool engine_done = false;
  std::optional<FinishReason> finish;
  Reuse reuse;
  int32_t preemptions = 0;
  DraftCounts drafts = {};
  int64_t admitted_us = 0, first_token_us = 0, last_token_us = 0;
};

Generation::Generation(Service& service, GenerationPlan plan, GenerationOrigin origin)
    : service_(service),
      text_(std::move(plan.text)),
      choices_per_prompt_(plan.choices_per_prompt),
      origin_(std::move(origin)),
      open_(plan.choices.size()),
      place_(std::move(plan.place)),
      hold_(std::move(plan.hold)),
      shown_(std::move(plan.shown)) {
  Driver& driver = service.context.driver;
  running_.reserve(plan.choices.size());
  for (PlannedChoice& planned : plan.choices) {
    auto index = static_cast<int32_t>(running_.size());
    RequestId id = driver.NewRequestId();
    planned.request.id = id;
    if (!plan.fixed_seed) {
      planned.request.sampling.seed =
          RandomBits(service.seed_base, static_cast<uint64_t>(id.value));
    }
    int32_t scored = planned.request.prompt_logprobs >= 0
                         ? static_cast<int32_t>(planned.request.prompt.size())
                         : 0;
    Choice choice(index, service.context.tokenizer, text_, planned.starts_in_reasoning, scored);
    running_.emplace_back(std::move(choice), std::move(planned.request), id);
  }
}

ActiveRequests::Entry ListRequest(Service& service, const GenerationPlan& plan,
                                  const GenerationOrigin& origin, std::string tenant, Wake wake) {
  auto shown = std::make_unique<ActiveRequest>();
  // Ids are random so that nobody can guess one.
  shown->id = fmt::format("{}{}", origin.id_prefix, SecureRandomHex(16));
  shown->client_id = origin.request_id;
  shown->body_id = origin.body_id;
  shown->tenant = std::move(tenant);
  shown->path = origin.path;
  shown->created = UnixSeconds();
  shown->received_us = origin.received_us;
  shown->choices = plan.choices_per_prompt;
  for (size_t i = 0; i < plan.choices.size(); i += static_cast<size_t>(shown->choices)) {
    shown->prompt_tokens += std::ssize(plan.choices[i].request.prompt);
  }
  shown->wake = std::move(wake);
  return service.active.Add(std::move(shown));
}

Result<std::unique_ptr<Generation>, ApiError> Generation::Start(Service& service,
                                                                GenerationPlan plan,
                                                                GenerationOrigin origin,
                                                                Wake wake) {
  if (plan.shown == nullptr) {
    std::string tenant = plan.place == nullptr ? "" : plan.place->tenant();
    plan.shown = ListRequest(service, plan, origin, std::move(tenant), wake);
  }
  std::unique_ptr<Generation> generation(
      new Generation(service, std::move(plan), std::move(origin)));
  Generation& started = *generation;
  started.shown_->waiting_tokens = started.shown_->prompt_tokens * started.shown_->choices;
  if (ApiStatus submitted = started.Submit(std::move(wake)); !submitted) {
    if (started.place_ != nullptr) started.place_->GiveTokensBack(MonotonicUs());
    return submitted.error();
  }
  return generation;
}

ApiStatus Generation::Submit(Wake wake) {
  for (Running& running : running_) {
    OutputSink* sink = service_.mailboxes.Open(running.id, wake);
    Status status = service_.context.driver.Submit(std::move(running.request), sink);
    if (!status) {
      error_ = ToApiError(status.error());
      service_.mailboxes.Close(running.id, false);
      running.open = false;
      break;
    }
    running.submitted = true;
  }
  if (!error_) return {};
  for (Running& running : running_) {
    if (!running.submitted) running.open = false;
  }
  return *error_;
}

Generation::~Generation() {
  for (Running& running : running_) {
    if (running.open) Close(running, FinishReason::kAbort);
  }
  if (running_.front().submitted) Log();
}

// Closes the reader's side of a choice and aborts it in the engine if it still runs.
void Generation::Close(Running& running, FinishReason reason) {
  if (!running.engine_done) service_.context.driver.Abort(running.id, reason);
  if (running.admitted_us == 0) shown_->waiting_tokens -= std::ssize(running.prompt);
  running.finish = reason;
  const int64_t now_us = MonotonicUs();
  service_.drain_rate.Ended(now_us);
  CountEnd(running, now_us);
  service_.mailboxes.Close(running.id, true);
  running.open = false;
}

void Generation::CountEnd(const Running& running, int64_t now_us) {
  ServerMetrics& metrics = service_.metrics;
  metrics.CountFinish(*running.finish);
  const auto seconds = [](int64_t from_us, int64_t to_us) {
    return static_cast<double>(to_us - from_us) / 1e6;
  };
  metrics.e2e_latency.Observe(seconds(origin_.received_us, now_us));
  metrics.request_prompt_tokens.Observe(static_cast<double>(running.prompt.size()));
  metrics.request_generation_tokens.Observe(running.choice.output_tokens());
  if (running.first_token_us == 0) return;
  metrics.inference_time.Observe(seconds(running.admitted_us, now_us));
  metrics.decode_time.Observe(seconds(running.first_token_us, running.last_token_us));
  const int32_t gaps = running.choice.output_tokens() - 1;
  if (gaps < 1) return;
  metrics.time_per_output_token.Observe(seconds(running.first_token_us, running.last_token_us) /
                                        gaps);
}

// Records the first admission by the engine.
void Generation::NoteAdmission(Running& running) {
  if (running.admitted_us > 0) return;
  running.admitted_us = service_.mailboxes.AdmittedUs(running.id);
  if (running.admitted_us == 0) return;
  shown_->waiting_tokens -= std::ssize(running.prompt);
  service_.metrics.queue_time.Observe(
      static_cast<double>(running.admitted_us - origin_.received_us) / 1e6);
  if (times_.admitted > 0) return;
  times_.admitted = running.admitted_us;
  shown_->admitted_us = running.admitted_us;
}

void Generation::Count(Running& running, const Output& output, int64_t at_us) {
  running.reuse = output.reuse;
  running.preemptions = output.preemptions;
  running.drafts = output.drafts;
  if (output.tokens.empty()) return;
  ServerMetrics& metrics = service_.metrics;
  const auto count = static_cast<int64_t>(output.tokens.size());
  if (running.first_token_us == 0) {
    running.first_token_us = at_us;
    metrics.time_to_first_token.Observe(static_cast<double>(at_us - origin_.received_us) / 1e6);
    metrics.prefill_time.Observe(static_cast<double>(at_us - running.admitted_us) / 1e6);
    metrics.prompt_tokens.Increment(static_cast<double>(running.prompt.size()));
    shown_->cached_tokens = usage().cached_tokens;
  } else {
    metrics.inter_token_latency.Observe(static_cast<double>(at_us - running.last_token_us) / 1e6);
  }
  metrics.generation_tokens.Increment(static_cast<double>(count));
  if (place_ != nullptr) place_->Spend(count, at_us);
  running.last_token_us = at_us;
  if (times_.first_token == 0) {
    times_.first_token = at_us;
    shown_->first_token_us = at_us;
  }
  times_.last_token = at_us;
  shown_->output_tokens += count;
}

std::optional<EndReason> Generation::Overdue(int64_t now_us) const {
  if (open_ == 0) return std::nullopt;
  const int64_t waited_us = now_us - origin_.received_us;
  const ServerConfig& config = service_.config;
  if (waited_us > int64_t{config.request_seconds_max} * 1'000'000) return EndReason::kTooLong;
  if (times_.admitted > 0 || waited_us <= int64_t{config.queue_seconds_max} * 1'000'000) {
    return std::nullopt;
  }
  // An unread mailbox may already record the admission: a long prefill has no output yet.
  for (const Running& running : running_) {
    if (running.open && service_.mailboxes.AdmittedUs(running.id) > 0) return std::nullopt;
  }
  return EndReason::kQueuedTooLong;
}

// Merges all new outputs of a choice into one delta.
void Generation::Collect(Running& running, std::vector<ChoiceDelta>* deltas) {
  std::optional<ChoiceDelta> merged;
  std::vector<Arrival> arrivals = service_.mailboxes.Collect(running.id);
  NoteAdmission(running);  // after Collect: a request is admitted before its first output
  for (Arrival& arrival : arrivals) {
    const Output& output = arrival.output;
    Count(running, output, arrival.at_us);
    running.engine_done = output.finish.has_value();
    if (output.finish == FinishReason::kError) {
      error_ = ToApiError({output.error_code, output.error});
      if (output.error_code == ErrorCode::kInternal) {
        service_.metrics.corrupted_requests.Increment();
      }
    } else if (output.finish == FinishReason::kAbort) {
      error_ = EndError(EndReason::kDrained);
    }
    if (!HoldMemory(MemoryOf(output.prompt_logprobs))) {
      out_of_memory_ = true;
      break;
    }
    std::optional<ChoiceDelta> delta = running.choice.Add(std::move(arrival.output));
    if (delta && merged) {
      merged->Merge(*std::move(delta));
    } else if (delta) {
      merged = std::move(delta);
    }
    if (running.choice.finished()) break;
  }
  if (!merged) return;
  if (merged->finish) {
    --open_;
    Close(running, *merged->finish);
  }
  deltas->push_back(*std::move(merged));
}

std::vector<ChoiceDelta> Generation::Poll() {
  if (shown_->end_asked.exchange(false)) End(EndReason::kAborted);
  std::vector<ChoiceDelta> deltas = std::exchange(ending_, {});
  for (Running& running : running_) {
    if (running.open && !out_of_memory_) Collect(running, &deltas);
  }
  if (out_of_memory_) {
    End(EndReason::kNoMemory);
    for (ChoiceDelta& delta : std::exchange(ending_, {})) deltas.push_back(std::move(delta));
  }
  return deltas;
}

bool Generation::HoldMemory(int64_t bytes) {
  MemoryBudget* const budget = service_.memory;
  if (budget == nullptr || bytes == 0) return true;
  if (memory_ == nullptr) memory_ = std::make_unique<MemoryBudget::Hold>(*budget, 0);
  const bool small = memory_->bytes() + bytes <= kSmallHoldBytes;
  return memory_->Grow(bytes, small ? 0 : budget->stats().limit_bytes / 2);
}

void Generation::FreeMemory(int64_t bytes) {
  if (memory_ != nullptr) memory_->Shrink(bytes);
}

void Generation::End(EndReason reason) {
  if (open_ == 0) return;
  error_ = EndError(reason);
  for (Running& running : running_) {
    if (!running.open) continue;
    ending_.push_back(running.choice.End(FinishReason::kAbort));
    --open_;
    Close(running, FinishReason::kAbort);
  }
}

Usage Generation::usage() const {
  Usage usage;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Running& running = running_[i];
    if (i % static_cast<size_t>(choices_per_prompt_) == 0) {
      usage.prompt_tokens += static_cast<int64_t>(running.prompt.size());
      usage.cached_tokens += running.reuse.tokens;
      usage.disk_tokens += running.reuse.stored - running.reuse.host;
      usage.host_tokens += running.reuse.host;
    }
    usage.completion_tokens += running.choice.output_tokens();
    usage.reasoning_tokens += running.choice.reasoning_tokens();
    usage.drafts += running.drafts;
  }
  return usage;
}

std::vector<PromptReuse> Generation::reuse() const {
  std::vector<PromptReuse> prompts;
  for (size_t i = 0; i < running_.size(); i += static_cast<size_t>(choices_per_prompt_)) {
    const Running& first = running_[i];
    prompts.push_back({.prompt_tokens = static_cast<int32_t>(first.prompt.size()),
                       .reuse = first.reuse,
                       .preemptions = first.preemptions});
  }
  return prompts;
}

size_t Generation::PendingBytes() const {
  size_t bytes = 0;
  for (const Running& running : running_) {
    if (running.open) bytes += service_.mailboxes.PendingBytes(running.id);
  }
  return bytes;
}

const std::vector<TokenId>& Generation::prompt(int32_t choice) const {
  return running_[static_cast<size_t>(choice)].prompt;
}

void Generation::Log() const {
  const Usage tokens = usage();
  std::string finish;
  for (const Running& running : running_) {
    if (!finish.empty()) finish += ',';
    finish += FinishName(running.finish.value_or(FinishReason::kAbort));
  }
  const int64_t now_us = MonotonicUs();
  const auto since = [&](int64_t at_us) { return at_us == 0 ? -1 : at_us - origin_.received_us; };
  if (service_.config.request_log == nullptr) {
    LogInfo("{} {} prompt {} cached {} out {} finish {} first {} ms total {} ms{}", id(),
            origin_.path, tokens.prompt_tokens, tokens.cached_tokens, tokens.completion_tokens,
            finish, times_.first_token == 0 ? -1 : since(times_.first_token) / 1000,
            since(now_us) / 1000,
            origin_.request_id.empty() ? "" : " x-request-id " + origin_.request_id);
    return;
  }
  service_.config.request_log->Add({.unix_seconds = UnixSeconds(),
                                    .method = "POST",
                                    .path = origin_.path,
                                    .status = error_ ? error_->status : 200,
                                    .id = id(),
                                    .client_id = origin_.request_id,
                                    .tenant = shown_->tenant,
                                    .finish = std::move(finish),
                                    .prompt_tokens = tokens.prompt_tokens,
                                    .cached_tokens = tokens.cached_tokens,
                                    .output_tokens = tokens.completion_tokens,
                                    .queue_us = since(times_.admitted),
                                    .first_token_us = since(times_.first_token),
                                    .total_us = since(now_us)});
}

}  // namespace braid
