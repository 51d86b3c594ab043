// What /metrics shows. Names are vLLM's with the prefix braid:, so that dashboards and autoscalers
// written for it work; the engine's own numbers are copied in when the metrics are requested.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "scheduler/driver.h"
#include "server/http/memory_budget.h"
#include "server/server.h"
#include "server/serving/response_store.h"

namespace braid {

class ServerMetrics {
 public:
  struct Labels {
    std::string model_name;
    int32_t context_tokens_max = 0;         // bounds the buckets of token counts
    std::vector<std::string> cache_groups;  // in the scheduler's order
    double load_seconds = 0;                // of the model
    int64_t cache_blocks = 0;               // that one long sequence could fill
    bool prefix_cache = false;
    bool experts = false;                     // the model has some
    std::vector<int32_t> expert_layers = {};  // of the model, those with experts
    bool handoffs = false;                    // the engine has partners
    int32_t expert_ranks = 0;                 // that share them; 0: one rank has them all
    bool tier_on_disk = true;                 // a tier has a directory, or there is none
    bool vllm_names = false;                  // every metric a second time with the prefix vllm:
  };
  explicit ServerMetrics(Labels labels);

  void CountFinish(FinishReason reason);
  void CountRejection(int status);
  // Numbers that other parts of the server keep.
  struct Outside {
    DriverStats driver;
    int64_t log_lines_dropped = 0;
    MemoryBudget::Stats memory = {};
    ResponseStore::Stats responses = {};
    int64_t grammar_bytes = 0;
    ExpertBalances expert_balances = {};
    ExpertLoadView expert_loads = {};
    HandoffCounts handoffs = {};
    ExpertRanks expert_ranks = {};
    int64_t tier_ahead_bytes = 0;
  };
  std::string Text(const Outside& outside);

 private:
  MetricsRegistry::Labels With(const std::string& label, std::string_view value) const;
  void AddLabelled();
  void AddPrompts();
  void AddDraftsAndExperts();
  void AddByLayer(const char* name, const char* help, std::vector<prometheus::Gauge*>& gauges);
  void AddHandoffs();
  void ShowHandoffs(const HandoffCounts& counts);
  void AddTier();
  void ShowTier(const Outside& outside);
  void ShowExpertRanks(const ExpertRanks& ranks);
  void ShowExpertLayers(const ExpertLoadView& loads);
  prometheus::Histogram& Seconds(const char* name, const char* help,
                                 const std::vector<double>& buckets);

  // Declared before the references into it.
  MetricsRegistry registry_;
  const Labels shown_;
  MetricsRegistry::Labels labels_;
  const std::vector<double> token_buckets_;

 public:
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& corrupted_requests;  // whose numbers were not finite
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token_latency;
  prometheus::Histogram& e2e_latency;
  prometheus::Histogram& queue_time;
  prometheus::Histogram& prefill_time;
  prometheus::Histogram& decode_time;
  prometheus::Histogram& inference_time;
  prometheus::Histogram& time_per_output_token;
  prometheus::Histogram& request_prompt_tokens;
  prometheus::Histogram& request_generation_tokens;

 private:
  prometheus::Gauge& running_;
  prometheus::Gauge& waiting_;
  prometheus::Gauge &waiting_room_, &waiting_preempted_;
  prometheus::Gauge& cache_usage_;
  prometheus::Counter& prefix_queries_;
  prometheus::Counter& prefix_hits_;
  prometheus::Counter& preemptions_;
  prometheus::Gauge* tier_parts_;
  std::array<prometheus::Counter*, 8> tier_;
  std::array<prometheus::Counter*, 4> host_;    // tokens, bytes, waits, seconds
  std::array<prometheus::Counter*, 2> drafts_;  // verified, accepted
  std::array<prometheus::Counter*, kDraftPlaces> drafted_by_place_, accepted_by_place_;
  std::array<prometheus::Gauge*, kExpertWindows.size()> expert_balances_ = {};
  prometheus::Gauge* partners_ = nullptr;
  std::array<prometheus::Counter*, 2> handoffs_ = {}, handoff_bytes_ = {};
  std::array<prometheus::Counter*, 3> expert_moves_ = {};  // done, dropped, bytes
  std::array<prometheus::Gauge*, kExpertWindows.size()> expert_rank_balances_ = {};
  std::vector<prometheus::Gauge*> expert_rank_rows_;
  // By layer; of ranks: where there are several.
  std::vector<prometheus::Gauge*> expert_layer_balances_, expert_rank_layer_balances_;
  prometheus::Counter& evictions_keys_;
  prometheus::Counter& evictions_states_;
  prometheus::Counter& audits_;
  prometheus::Counter& repairs_;
  prometheus::Counter& steps_;
  prometheus::Counter& prefill_rows_;
  prometheus::Gauge& step_seconds_;
  prometheus::Gauge& paused_;
  prometheus::Counter& log_lines_dropped_;
  std::array<prometheus::Gauge*, 4> memory_;  // as in Text
  prometheus::Counter* shed_ = nullptr;
  prometheus::Gauge *stored_responses_, *stored_response_bytes_;
  prometheus::Counter* stored_response_evictions_;
  prometheus::Gauge* grammar_bytes_;
  std::array<prometheus::Counter*, 4> finished_;    // all but kSent, which no API asks for
  std::map<int, prometheus::Counter*> rejections_;  // by status; 0: any other
  std::array<prometheus::Counter*, 3> by_source_;   // computed, from the cache, received
  std::vector<prometheus::Gauge*> blocks_;          // of each group, used and cached
  std::array<prometheus::Gauge*, 3> pages_;         // used, cached, free
  std::array<prometheus::Counter*, kReuseStops> reuse_stops_;
  std::array<prometheus::Counter*, kReuseStops> lost_tokens_;
};

// "stop", "length", "abort", "error".
std::string_view FinishName(FinishReason reason);

}  // namespace braid
