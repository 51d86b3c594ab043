// Registration of the metrics and the copy from the engine's own counters.
#include "server/metrics.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace braid {
namespace {

// vLLM's buckets, so that histograms of both can be added.
const std::vector<double> kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                                0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                                20,    40,    80,   160,  640,  2560};
const std::vector<double> kTokenSeconds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                           0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const std::vector<double> kRequestSeconds = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
// vLLM's series for counts of tokens: 1, 2, 5, 10, … up to the longest prompt.
std::vector<double> TokenBuckets(int32_t most) {
  std::vector<double> buckets;
  for (double power = 1;; power *= 10) {
    for (double digit : {1.0, 2.0, 5.0}) {
      if (digit * power > most) return buckets;
      buckets.push_back(digit * power);
    }
  }
}

constexpr int kStatuses[] = {400, 401, 403, 404, 405, 408, 413, 414, 415, 429, 431, 499, 500, 503};
constexpr const char* kWaitingHelp = "Waiting requests by reason: no capacity yet, or preempted.";
constexpr const char* kEvictionsHelp =
    "Evictions from the prefix cache, of key-value blocks and of states.";

// Mean over fullest, from 0 to 1, of each layer; a layer that computed nothing is even.
void ShowBalances(const std::vector<std::vector<int64_t>>& layers,
                  std::span<prometheus::Gauge* const> gauges) {
  for (size_t i = 0; i < std::min(layers.size(), gauges.size()); ++i) {
    const std::vector<int64_t>& loads = layers[i];
    const int64_t sum = std::accumulate(loads.begin(), loads.end(), int64_t{0});
    const auto fullest = static_cast<double>(std::ranges::max(loads) * std::ssize(loads));
    gauges[i]->Set(fullest > 0 ? static_cast<double>(sum) / fullest : 1);
  }
}

}  // namespace

std::string_view FinishName(FinishReason reason) {
  constexpr std::string_view kNames[] = {"stop", "length", "abort", "error", "sent"};
  return kNames[static_cast<size_t>(reason)];
}

prometheus::Histogram& ServerMetrics::Seconds(const char* name, const char* help,
                                              const std::vector<double>& buckets) {
  return registry_.AddHistogram(name, help, buckets, labels_);
}

ServerMetrics::ServerMetrics(Labels shown)
    : shown_(std::move(shown)),
      labels_{{"model_name", shown_.model_name}, {"engine", "0"}},
      token_buckets_(TokenBuckets(shown_.context_tokens_max)),
      prompt_tokens(registry_.AddCounter("braid:prompt_tokens_total",
                                         "Prompt tokens of answered requests.", labels_)),
      generation_tokens(
          registry_.AddCounter("braid:generation_tokens_total", "Tokens generated.", labels_)),
      corrupted_requests(registry_.AddCounter(
          "braid:corrupted_requests_total",
          "Answers aborted because the engine computed values that are not finite.", labels_)),
      time_to_first_token(Seconds("braid:time_to_first_token_seconds",
                                  "Time to first token, from the last byte of the request.",
                                  kFirstTokenSeconds)),
      inter_token_latency(Seconds("braid:inter_token_latency_seconds",
                                  "Time between consecutive tokens of an answer.", kTokenSeconds)),
      e2e_latency(
          Seconds("braid:e2e_request_latency_seconds",
                  "End-to-end latency, from the last byte of the request to the last token.",
                  kRequestSeconds)),
      queue_time(Seconds("braid:request_queue_time_seconds",
                         "Time in the queue, from the last byte of the request to admission.",
                         kRequestSeconds)),
      prefill_time(Seconds("braid:request_prefill_time_seconds",
                           "Prefill time, from admission to the first token.", kRequestSeconds)),
      decode_time(Seconds("braid:request_decode_time_seconds",
                          "Decode time, from the first token to the last.", kRequestSeconds)),
      inference_time(Seconds("braid:request_inference_time_seconds",
                             "Inference time, prefill and decode.", kRequestSeconds)),
      time_per_output_token(Seconds("braid:request_time_per_output_token_seconds",
                                    "Mean time between the tokens of one answer.", kTokenSeconds)),
      request_prompt_tokens(registry_.AddHistogram(
          "braid:request_prompt_tokens", "Prompt tokens of one answer.", token_buckets_, labels_)),
      request_generation_tokens(registry_.AddHistogram(
          "braid:request_generation_tokens", "Tokens of one answer.", token_buckets_, labels_)),
      running_(registry_.AddGauge("braid:num_requests_running", "Running requests.", labels_)),
      waiting_(registry_.AddGauge("braid:num_requests_waiting", "Waiting requests.", labels_)),
      waiting_room_(registry_.AddGauge("braid:num_requests_waiting_by_reason", kWaitingHelp,
                                       With("reason", "capacity"))),
      waiting_preempted_(registry_.AddGauge("braid:num_requests_waiting_by_reason", kWaitingHelp,
                                            With("reason", "preempted"))),
      cache_usage_(registry_.AddGauge("braid:kv_cache_usage_perc",
                                      "Fraction of the cache pages in use, from 0 to 1.", labels_)),
      prefix_queries_(registry_.AddCounter("braid:prefix_cache_queries_total",
                                           "Prompt tokens looked up in the prefix cache.",
                                           labels_)),
      prefix_hits_(registry_.AddCounter("braid:prefix_cache_hits_total",
                                        "Prompt tokens taken from the prefix cache.", labels_)),
      preemptions_(registry_.AddCounter("braid:num_preemptions_total",
                                        "Preemptions of running requests.", labels_)),
      evictions_keys_(registry_.AddCounter("braid:prefix_cache_evictions_total", kEvictionsHelp,
                                           With("kind", "keys_values"))),
      evictions_states_(registry_.AddCounter("braid:prefix_cache_evictions_total", kEvictionsHelp,
                                             With("kind", "state"))),
      audits_(registry_.AddCounter("braid:cache_audits_total",
                                   "Audits of the cache accounting, made while the engine is idle.",
                                   labels_)),
      repairs_(registry_.AddCounter(
          "braid:cache_repairs_total",
          "Audits that found an inconsistency and dropped all cached prefixes.", labels_)),
      steps_(registry_.AddCounter("braid:scheduler_steps_total", "Steps of the engine.", labels_)),
      prefill_rows_(registry_.AddCounter("braid:prefill_tokens_computed_total",
                                         "Prompt tokens computed, without those reused.", labels_)),
      step_seconds_(registry_.AddGauge("braid:step_seconds_last",
                                       "Duration of the last step in seconds.", labels_)),
      paused_(registry_.AddGauge("braid:engine_paused", "1 while the engine is paused.", labels_)),
      log_lines_dropped_(registry_.AddCounter("braid:request_log_dropped_total",
                                              "Lines dropped by the request log.", labels_)) {
  AddLabelled();
}

MetricsRegistry::Labels ServerMetrics::With(const std::string& label,
                                            std::string_view value) const {
  MetricsRegistry::Labels labels = labels_;
  labels[label] = value;
  return labels;
}

void ServerMetrics::AddLabelled() {
  registry_
      .AddGauge("braid:engine_load_weights_time", "Time to load the model in seconds.", labels_)
      .Set(shown_.load_seconds);
  MetricsRegistry::Labels cache = With("block_size", std::to_string(kBlockTokens));
  cache["num_gpu_blocks"] = std::to_string(shown_.cache_blocks);
  cache["enable_prefix_caching"] = shown_.prefix_cache ? "True" : "False";
  registry_.AddGauge("braid:cache_config_info", "The configuration of the cache, as labels.", cache)
      .Set(1);
  for (size_t i = 0; i < finished_.size(); ++i) {
    finished_[i] =
        &registry_.AddCounter("braid:request_success_total", "Finished answers by finish reason.",
                              With("finished_reason", FinishName(static_cast<FinishReason>(i))));
  }
  const auto rejected = [&](std::string_view status) {
    return &registry_.AddCounter("braid:admission_rejections_total",
                                 "Requests answered with an error, by status.",
                                 With("status", status));
  };
  for (int status : kStatuses) rejections_[status] = rejected(std::to_string(status));
  rejections_[0] = rejected("other");
  AddPrompts();
  AddDraftsAndExperts();
  for (const std::string& group : shown_.cache_groups) {
    for (const char* state : {"used", "cached"}) {
      MetricsRegistry::Labels labels = With("group", group);
      labels["state"] = state;
      blocks_.push_back(&registry_.AddGauge(
          "braid:cache_blocks", "Blocks of keys and values, and recurrent states, in the cache.",
          labels));
    }
  }
  stored_responses_ = &registry_.AddGauge("braid:stored_responses", "Stored responses.", labels_);
  stored_response_bytes_ = &registry_.AddGauge(
      "braid:stored_response_bytes", "Memory of stored responses and their items.", labels_);
  stored_response_evictions_ = &registry_.AddCounter(
      "braid:stored_response_evictions_total", "Stored responses evicted by newer ones.", labels_);
  grammar_bytes_ =
      &registry_.AddGauge("braid:grammar_bytes",
                          "Memory of compiled grammars and of the answers that use them.", labels_);
  constexpr std::string_view kMemory[] = {"used", "limit", "process_resident", "process_limit"};
  for (size_t i = 0; i < memory_.size(); ++i) {
    memory_[i] = &registry_.AddGauge("braid:server_memory_bytes",
                                     "Memory of requests and of the process, and their limits.",
                                     With("kind", kMemory[i]));
  }
  shed_ = &registry_.AddCounter("braid:requests_shed_total", "Requests refused for lack of memory.",
                                labels_);
  constexpr std::string_view kStates[] = {"used", "cached", "free"};
  for (size_t i = 0; i < pages_.size(); ++i) {
    pages_[i] = &registry_.AddGauge(
        "braid:cache_pages",
        "Pages of the cache arena: used by running requests, cached for later ones, free.",
        With("state", kStates[i]));
  }
}

// Where the tokens of prompts came from, and why not more of them were reused.
void ServerMetrics::AddPrompts() {
  constexpr std::string_view kSources[] = {"local_compute", "local_cache_hit",
                                           "external_kv_transfer"};
  for (size_t i = 0; i < by_source_.size(); ++i) {
    by_source_[i] = &registry_.AddCounter(
        "braid:prompt_tokens_by_source_total",
        "Prompt tokens by source: computed here, from the prefix cache or a tier below it, or "
        "computed by another engine, which handed their pages over.",
        With("source", kSources[i]));
  }
  for (size_t i = 0; i < kReuseStops; ++i) {
    const char* reason = NameOf(static_cast<ReuseStop>(i));
    reuse_stops_[i] = &registry_.AddCounter("braid:prefix_reuse_stops_total",
                                            "Requests by the reason why prefix reuse stopped.",
                                            With("reason", reason));
    lost_tokens_[i] =
        &registry_.AddCounter("braid:prefix_reuse_lost_tokens_total",
                              "Prompt tokens not reused, by reason.", With("reason", reason));
  }
}

// Of the tier below the memory of pages: what came from disk or from memory beside it, and what
// went to disk. Parts are told of both together, by where what stays is.
void ServerMetrics::AddTier() {
  const auto counter = [&](const char* name, const char* help, const char* tier = "disk") {
    return &registry_.AddCounter(name, help, With("tier", tier));
  };
  tier_parts_ = &registry_.AddGauge("braid:tier_parts", "Parts of pages known to be in a tier.",
                                    With("tier", shown_.tier_on_disk ? "disk" : "host"));
  constexpr const char* kHits = "Prompt tokens whose pages came from a tier.";
  constexpr const char* kRead = "Bytes of pages that came from a tier.";
  constexpr const char* kWaits = "Prompts that waited for pages of a tier.";
  constexpr const char* kWait = "Time that requests waited for pages of a tier.";
  tier_ = {counter("braid:tier_hits_total", kHits),
           counter("braid:tier_read_bytes_total", kRead),
           counter("braid:tier_written_bytes_total",
                   "Bytes of pages that were written to disk, of all ranks."),
           counter("braid:tier_failures_total",
                   "Parts of pages that could not be written to a tier or read from it."),
           counter("braid:tier_waits_total", kWaits),
           counter("braid:tier_wait_seconds_total", kWait),
           counter("braid:tier_unwritten_total",
                   "Prefixes not written to a tier in full: evicted first, or too many waited."),
           counter("braid:tier_read_ahead_bytes_total",
                   "Bytes of pages of waiting requests that the system read into its page cache or "
                   "had there, of this process's ranks.")};
  host_ = {counter("braid:tier_hits_total", kHits, "host"),
           counter("braid:tier_read_bytes_total", kRead, "host"),
           counter("braid:tier_waits_total", kWaits, "host"),
           counter("braid:tier_wait_seconds_total", kWait, "host")};
}

void ServerMetrics::ShowTier(const Outside& outside) {
  const SchedulerStats& scheduler = outside.driver.scheduler;
  const TierCounts& tier = scheduler.tier;
  tier_parts_->Set(static_cast<double>(scheduler.tier_parts));
  AdvanceTo(*tier_[0], static_cast<double>(scheduler.stored_tokens - scheduler.host_tokens));
  AdvanceTo(*tier_[1], static_cast<double>(tier.bytes_read));
  AdvanceTo(*host_[0], static_cast<double>(scheduler.host_tokens));
  AdvanceTo(*host_[1], static_cast<double>(tier.bytes_in_memory));
  AdvanceTo(*tier_[2], static_cast<double>(tier.bytes_written));
  AdvanceTo(*tier_[3], static_cast<double>(tier.failed_in + tier.failed_out));
  AdvanceTo(*tier_[4], static_cast<double>(tier.waits));
  AdvanceTo(*tier_[5], static_cast<double>(tier.wait_us) / 1e6);
  AdvanceTo(*tier_[6], static_cast<double>(tier.unwritten));
  AdvanceTo(*tier_[7], static_cast<double>(outside.tier_ahead_bytes));
  AdvanceTo(*host_[2], static_cast<double>(tier.waits_in_memory));
  AdvanceTo(*host_[3], static_cast<double>(tier.wait_in_memory_us) / 1e6);
}

void ServerMetrics::CountFinish(FinishReason reason) {
  finished_[static_cast<size_t>(reason)]->Increment();
}

void ServerMetrics::CountRejection(int status) {
  const auto at = rejections_.find(status);
  (at == rejections_.end() ? rejections_.at(0) : at->second)->Increment();
}

void ServerMetrics::AddDraftsAndExperts() {
  AddTier();
  drafts_ = {&registry_.AddCounter("braid:spec_decode_num_draft_tokens_total",
                                   "Draft tokens that steps verified.", labels_),
             &registry_.AddCounter("braid:spec_decode_num_accepted_tokens_total",
                                   "Draft tokens that became output.", labels_)};
  for (size_t i = 0; i < kDraftPlaces; ++i) {
    const MetricsRegistry::Labels labels = With("position", std::to_string(i));
    drafted_by_place_[i] = &registry_.AddCounter(
        "braid:spec_decode_num_draft_tokens_per_pos_total",
        "Draft tokens that steps verified, by their place in the row; 7: there and later.", labels);
    accepted_by_place_[i] = &registry_.AddCounter(
        "braid:spec_decode_num_accepted_tokens_per_pos_total",
        "Draft tokens that became output, by their place in the row; 7: there and later.", labels);
  }
  for (size_t i = 0; shown_.experts && i < kExpertWindows.size(); ++i) {
    expert_balances_[i] = &registry_.AddGauge(
        "braid:expert_balance",
        "Tokens of the mean expert over those of the fullest one, summed over layers, of the last "
        "complete window of so many steps.",
        With("steps", std::to_string(kExpertWindows[i])));
  }
  AddByLayer(
      "braid:expert_layer_balance",
      "Tokens of the layer's mean expert over those of its fullest one, of the last complete "
      "window of 100 steps, at first of 10; 0: there was none.",
      expert_layer_balances_);
  AddHandoffs();
  if (shown_.expert_ranks == 0) return;
  AddByLayer(
      "braid:expert_rank_layer_balance",
      "Experts' rows of the layer's mean rank over those of its fullest one, of the last complete "
      "window of 100 steps, at first of 10; 0: there was none.",
      expert_rank_layer_balances_);
  for (size_t i = 0; i < kExpertWindows.size(); ++i) {
    expert_rank_balances_[i] = &registry_.AddGauge(
        "braid:expert_rank_balance",
        "Experts' rows of the mean rank over those of the fullest one, summed over layers, of the "
        "last complete window of so many steps; 0: there was none.",
        With("steps", std::to_string(kExpertWindows[i])));
  }
  size_t next = 0;
  for (const char* result : {"done", "dropped"}) {
    expert_moves_[next++] = &registry_.AddCounter(
        "braid:expert_moves_total",
        "Placements of experts that were reached (done), or given up, so that the one before stays "
        "(dropped).",
        With("result", result));
  }
  expert_moves_[next] = &registry_.AddCounter("braid:expert_moved_bytes_total",
                                              "Bytes of experts that rank 0 received.", labels_);
  for (int32_t rank = 0; rank < shown_.expert_ranks; ++rank) {
    expert_rank_rows_.push_back(&registry_.AddGauge(
        "braid:expert_rank_rows",
        "Experts' rows that the rank computed in the last complete window of 10 steps.",
        With("rank", std::to_string(rank))));
  }
}

void ServerMetrics::AddByLayer(const char* name, const char* help,
                               std::vector<prometheus::Gauge*>& gauges) {
  for (const int32_t layer : shown_.expert_layers) {
    gauges.push_back(&registry_.AddGauge(name, help, With("layer", std::to_string(layer))));
  }
}

void ServerMetrics::AddHandoffs() {
  if (!shown_.handoffs) return;
  partners_ = &registry_.AddGauge("braid:handoff_partners", "Engines that this one is paired with.",
                                  labels_);
  constexpr std::string_view kEnds[] = {"done", "failed"}, kWhen[] = {"prefill", "after"};
  for (size_t i = 0; i < 2; ++i) {
    handoffs_[i] = &registry_.AddCounter("braid:handoffs_total",
                                         "Prompts whose pages went from one engine to the other.",
                                         With("end", kEnds[i]));
    handoff_bytes_[i] = &registry_.AddCounter(
        "braid:handoff_bytes_total",
        "Bytes of pages, sent while their prompt was computed, or after it or received.",
        With("when", kWhen[i]));
  }
}

void ServerMetrics::ShowHandoffs(const HandoffCounts& counts) {
  if (!shown_.handoffs) return;
  partners_->Set(static_cast<double>(counts.partners));
  AdvanceTo(*handoffs_[0], static_cast<double>(counts.done));
  AdvanceTo(*handoffs_[1], static_cast<double>(counts.failed));
  AdvanceTo(*handoff_bytes_[0], static_cast<double>(counts.early_bytes));
  AdvanceTo(*handoff_bytes_[1], static_cast<double>(counts.bytes - counts.early_bytes));
}

void ServerMetrics::ShowExpertRanks(const ExpertRanks& ranks) {
  if (shown_.expert_ranks == 0) return;
  for (size_t i = 0; i < kExpertWindows.size(); ++i) {
    expert_rank_balances_[i]->Set(ranks.balances[i]);
  }
  AdvanceTo(*expert_moves_[0], static_cast<double>(ranks.moves_done));
  AdvanceTo(*expert_moves_[1], static_cast<double>(ranks.moves_dropped));
  AdvanceTo(*expert_moves_[2], static_cast<double>(ranks.moved_bytes));
  for (size_t rank = 0; rank < std::min(ranks.rows.size(), expert_rank_rows_.size()); ++rank) {
    expert_rank_rows_[rank]->Set(static_cast<double>(ranks.rows[rank]));
  }
}

void ServerMetrics::ShowExpertLayers(const ExpertLoadView& loads) {
  ShowBalances(loads.counts, expert_layer_balances_);
  ShowBalances(loads.rank_rows, expert_rank_layer_balances_);
}

std::string ServerMetrics::Text(const Outside& outside) {
  const DriverStats& stats = outside.driver;
  const SchedulerStats& scheduler = stats.scheduler;
  running_.Set(scheduler.running);
  waiting_.Set(scheduler.waiting);
  waiting_room_.Set(scheduler.waiting - scheduler.waiting_preempted);
  waiting_preempted_.Set(scheduler.waiting_preempted);
  cache_usage_.Set(scheduler.pages_total == 0
                       ? 0
                       : static_cast<double>(scheduler.pages_used) / scheduler.pages_total);
  AdvanceTo(prefix_queries_, static_cast<double>(scheduler.prompt_tokens));
  AdvanceTo(prefix_hits_, static_cast<double>(scheduler.reused_tokens));
  AdvanceTo(evictions_keys_, static_cast<double>(scheduler.evictions_full));
  AdvanceTo(evictions_states_, static_cast<double>(scheduler.evictions_state));
  pages_[0]->Set(scheduler.pages_used);
  pages_[1]->Set(scheduler.pages_cached);
  pages_[2]->Set(scheduler.pages_total - scheduler.pages_used - scheduler.pages_cached);
  for (size_t i = 0; i < kReuseStops; ++i) {
    AdvanceTo(*reuse_stops_[i], static_cast<double>(scheduler.reuse_stops[i]));
    AdvanceTo(*lost_tokens_[i], static_cast<double>(scheduler.lost_tokens[i]));
  }
  ShowTier(outside);
  AdvanceTo(preemptions_, static_cast<double>(scheduler.preemptions));
  const DraftCounts& drafts = scheduler.drafts_by_place;
  AdvanceTo(*drafts_[0], static_cast<double>(drafts.drafted_total()));
  AdvanceTo(*drafts_[1], static_cast<double>(drafts.accepted_total()));
  for (size_t i = 0; i < kDraftPlaces; ++i) {
    AdvanceTo(*drafted_by_place_[i], static_cast<double>(drafts.drafted[i]));
    AdvanceTo(*accepted_by_place_[i], static_cast<double>(drafts.accepted[i]));
  }
  AdvanceTo(audits_, static_cast<double>(stats.audits));
  AdvanceTo(repairs_, static_cast<double>(stats.repairs));
  AdvanceTo(steps_, static_cast<double>(scheduler.steps));
  AdvanceTo(prefill_rows_, static_cast<double>(scheduler.prefill_tokens));
  step_seconds_.Set(static_cast<double>(stats.step_us_last) / 1e6);
  AdvanceTo(*by_source_[0], static_cast<double>(scheduler.computed_tokens));
  AdvanceTo(*by_source_[1], static_cast<double>(scheduler.reused_tokens));
  AdvanceTo(*by_source_[2], static_cast<double>(scheduler.received_tokens));
  for (size_t group = 0; group < scheduler.blocks_used.size(); ++group) {
    blocks_[2 * group]->Set(static_cast<double>(scheduler.blocks_used[group]));
    blocks_[2 * group + 1]->Set(static_cast<double>(scheduler.blocks_cached[group]));
  }
  for (size_t i = 0; shown_.experts && i < kExpertWindows.size(); ++i) {
    expert_balances_[i]->Set(outside.expert_balances[i]);
  }
  ShowHandoffs(outside.handoffs);
  ShowExpertRanks(outside.expert_ranks);
  ShowExpertLayers(outside.expert_loads);
  paused_.Set(stats.paused ? 1 : 0);
  AdvanceTo(log_lines_dropped_, static_cast<double>(outside.log_lines_dropped));
  const MemoryBudget::Stats& memory = outside.memory;
  memory_[0]->Set(static_cast<double>(memory.used_bytes));
  memory_[1]->Set(static_cast<double>(memory.limit_bytes));
  memory_[2]->Set(static_cast<double>(memory.resident_bytes));
  memory_[3]->Set(static_cast<double>(memory.process_limit_bytes));
  AdvanceTo(*shed_, static_cast<double>(memory.shed));
  stored_responses_->Set(static_cast<double>(outside.responses.responses));
  stored_response_bytes_->Set(static_cast<double>(outside.responses.bytes));
  AdvanceTo(*stored_response_evictions_, static_cast<double>(outside.responses.evictions));
  grammar_bytes_->Set(static_cast<double>(outside.grammar_bytes));
  std::string text = registry_.Text();
  if (!shown_.vllm_names) return text;
  std::string also;
  for (size_t begin = 0, at = 0; begin < text.size(); begin = at + 6) {
    at = std::min(text.find("braid:", begin), text.size());
    also.append(text, begin, at - begin);
    if (at < text.size()) also += "vllm:";
  }
  return text + also;
}

}  // namespace braid
