// What all API requests share once the model is ready. Immutable or thread-safe.
#pragma once

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "server/access/api_keys.h"
#include "server/api/api_request.h"
#include "server/api/limits.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/serving/active_requests.h"
#include "server/serving/drain_rate.h"
#include "server/serving/mailbox.h"
#include "server/serving/response_store.h"
#include "text/grammar/compile_queue.h"

namespace braid {

inline std::vector<std::string> CacheGroups(const SchedulerConfig& config) {
  std::vector<std::string> names;
  for (const GroupGeometry& group : config.cache.groups) names.push_back(group.name);
  return names;
}

// A key with a name may store a quarter; without keys there is one client, which may store all.
inline ResponseStore::Limits StoreLimits(const ServerConfig& config) {
  return {.bytes = config.responses_bytes_max,
          .key_bytes = config.responses_bytes_max / 4,
          .responses = limits::kStoredResponsesMax,
          .key_responses = limits::kStoredResponsesMax / 4};
}

// Answers of one request. Each takes a place in the queue, which must hold them all.
inline int64_t AnswersMax(const SchedulerConfig& config) {
  return std::min<int64_t>(limits::kAnswersMax, config.waiting_max);
}

struct Service {
  Service(const ServerConfig& server_config, ServerContext server_context, uint64_t seeds)
      : config(server_config),
        context(std::move(server_context)),
        metrics({.model_name = context.card.name,
                 .context_tokens_max = context.card.context_tokens_max,
                 .cache_groups = CacheGroups(context.driver.config()),
                 .load_seconds = context.load_seconds,
                 .cache_blocks = SequenceTokensMax(context.driver.config().cache) / kBlockTokens,
                 .prefix_cache = context.driver.config().prefix_cache,
                 .experts = context.expert_balances != nullptr,
                 .expert_layers =
                     context.expert_loads ? context.expert_loads().layers : std::vector<int32_t>(),
                 .handoffs = context.handoffs != nullptr,
                 .expert_ranks = context.expert_rank_count,
                 .tier_on_disk = context.tier_on_disk,
                 .vllm_names = server_config.vllm_metrics}),
        responses(StoreLimits(server_config)),
        seed_base(seeds),
        compiles(context.grammars == nullptr
                     ? nullptr
                     : std::make_unique<CompileQueue>(*context.grammars, CompileQueue::Limits{})) {}

  const ServerConfig& config;
  ServerContext context;
  ServerMetrics metrics;
  Mailboxes mailboxes;
  ActiveRequests active;
  TenantLoad tenants;
  DrainRate drain_rate;
  ResponseStore responses;
  const uint64_t seed_base;
  std::unique_ptr<CompileQueue> compiles;  // null: there are no grammars
  MemoryBudget* memory = nullptr;          // pays for log-probabilities; null: they do not count

  // After how many seconds the queue should have a place again.
  int32_t RetryAfterSeconds() const {
    return drain_rate.SecondsFor(context.driver.stats().scheduler.waiting, MonotonicUs());
  }
  RequestLimits limits() const {
    return {.vocabulary = context.card.vocabulary,
            .answers_max = AnswersMax(context.driver.config())};
  }
};

}  // namespace braid
