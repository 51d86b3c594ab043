// A cluster in simulated time: engines with the real scheduler and prefix cache, whose steps last
// as the forecast says, behind the real router's placement, which knows of their caches what it has
// sent there. Some of the engines may compute prompts for the others, that with the fewest prompts
// the next: then a prompt's pages move when both sides have them ready, in the time that their
// bytes take. Engines may fail and come back empty; their requests start again elsewhere, or, if
// they wait for a prompt, compute it themselves. Autoscaling starts and stops engines.
// Deterministic: the same options give the same report. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cluster/time_histogram.h"
#include "cluster/workload.h"
#include "forecast/forecast.h"
#include "router/placement/placer.h"

namespace braid {

// How even the ranks of an engine were in so many of its steps (ForecastOptions::expert_balance).
struct ReplayedBalance {
  int64_t steps = 1;
  double balance = 1;
};

struct ClusterOptions {
  int32_t engines = 1;
  int32_t prefill_engines =
      0;      // the first of them, fewer than all; the others decode. 0: all do both
  Mesh mesh;  // of an engine; dp groups share its scheduler
  Policy route = Policy::kLeastLoad;  // of the engines that answer
  int32_t running_max = 256;          // sequences of a group
  int32_t step_tokens_max = 8192;     // of a group
  int64_t decode_latency_us = 0;      // as --decode-latency-ms of `braid serve`; 0: no bound
  bool overlap = true;                // communication is hidden behind computation
  // So many engines, one after the other, are on one machine and share its memory's bandwidth. A
  // step that begins while all others of the machine compute lasts as on `shared`, one that begins
  // while none does as on the hardware; between these in proportion. `shared` is set if there are
  // several.
  int32_t machine_engines = 1;
  std::optional<Hardware> shared = std::nullopt;
  double fail_every_seconds = 0;  // mean time between failures of an engine; 0: none
  double repair_seconds = 60;
  // Autoscaling: every ten seconds engines start or leave, so that each has so many requests; 0:
  // all of them run all the time. From engines_min to `engines` of them; one that leaves gets
  // nothing new and stops when it has answered. Without prefill engines only.
  double scale_requests = 0;
  int32_t engines_min = 1;
  double start_seconds = 60;
  uint64_t seed = 1;
  // Of each engine's steps, one after the other and again from the first; none: as the forecast.
  std::vector<ReplayedBalance> balances = {};
};

// Of the timeline: a two-hundredth of the time in which requests come.
struct ClusterMoment {
  double input_tokens = 0, output_tokens = 0;  // computed during it
  double running = 0, waiting = 0;             // requests when it began
  double balance = 0;  // of experts, the mean of the steps that began during it
  int64_t steps = 0;   // with ClusterOptions::balances
};

struct ClusterReport {
  int64_t requests = 0, finished = 0, refused = 0, restarted = 0, failures = 0;
  int64_t input_tokens = 0, reused_tokens = 0, output_tokens = 0, steps = 0, preemptions = 0;
  double seconds = 0;         // until the last request ended
  double engine_seconds = 0;  // that engines ran or started in, all together
  int64_t starts = 0;         // of engines, by autoscaling
  double busy = 0;            // part of engine_seconds that engines computed
  double prefill_busy = 0;    // the same of the prefill engines
  int64_t transfers_failed = 0;
  double transferred_bytes = 0;
  // Of a prompt's pages: from when both sides were ready. Their number is that of the transfers.
  TimeHistogram transfer;
  TimeHistogram first_token, inter_token, whole;
  double expert_balance = 1;  // the mean of all steps
  double moment_seconds = 1;
  std::vector<ClusterMoment> moments;
};

// kInvalid if the mesh does not divide the model, if engines fail so often that a request has
// started a thousand times, or if requests have not ended after 41,943 times as long as they come
// (a second at least), or after 1e9 s; kExhausted if the model does not fit.
Result<ClusterReport> SimulateCluster(const ModelSpec& spec, const Hardware& hardware,
                                      const ForecastOptions& forecast,
                                      const ClusterOptions& options,
                                      const std::vector<ClusterRequest>& requests);

}  // namespace braid
