// What placements of experts are worth for a recorded load: each algorithm places by the first
// windows of a file and is judged by the rest, which it has not seen. Balance is mean over fullest
// rank, summed over layers, so that a layer counts by its load. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "experts/expert_map.h"
#include "experts/load_file.h"
#include "forecast/hardware.h"
#include "model/spec.h"

namespace braid {

enum class PlacementMethod : uint8_t { kInOrder, kHierarchical, kGlobal, kIncremental };
std::string_view NameOf(PlacementMethod method);

struct ExpertPlanOptions {
  double known = 0.5;            // part of the windows that placements see
  int32_t groups = 0;            // of experts, for the hierarchical one; 0: none
  double wanted = 0.95;          // balance at which the incremental one is content
  uint64_t seed = kReplicaSeed;  // of the choice among replicas, as the engine has it
  int64_t step_tokens = 0;       // of all ranks, for times
};

// The model's experts on hardware, for bytes and times.
struct ExpertMachine {
  const ModelSpec& spec;
  const Hardware& hardware;
  ops::WeightFormat format = ops::WeightFormat::kBF16;
};

struct PlacementReport {
  PlacementMethod method = PlacementMethod::kInOrder;
  // Replicas of an expert share its load evenly.
  double balance_known = 0, balance_held_out = 0;
  // Each rank sends to the replica that it chooses, which prefers its own and its node's.
  double balance_chosen = 0;
  int64_t received = 0;  // experts that ranks receive, all layers, coming from the order of ids
  // Placed again after each held-out window by the windows so far, judged by the next one.
  double balance_online = 0;
  std::vector<double> windows_online;                    // the balance of each
  std::vector<double> windows_once;                      // the same, as placed by the known windows
  double received_online = 0;                            // per placement
  std::optional<double> received_bytes, expert_seconds;  // seconds: of all layers of a step
  // Held out: [layer][rank], what the rank computes over what the mean rank does.
  std::vector<std::vector<double>> rank_loads;
};

// Loads that nobody recorded: every layer has an order of its own in which its experts are chosen
// with the frequency of Zipf's law, which drifts from window to window.
struct DrawnLoads {
  double exponent = 1.2;
  int32_t windows = 20;
  int64_t tokens = 4096;  // of a window
  uint64_t seed = 42;
};
// Of the model's layers with experts; an error if it has none.
Result<ExpertLoads> DrawLoads(const ModelSpec& spec, const DrawnLoads& drawn);
// Of a file that an engine has recorded, or of "zipf=S", loads drawn for the model's experts with
// the exponent S, from 0 to 10.
Result<ExpertLoads> LoadsOf(const std::string& source, const ModelSpec& spec, uint64_t seed);

// The methods that the shape and the groups allow. Errors: a shape that does not divide, experts
// other than the file's, fewer than two windows, or a model with other layers of experts.
Result<std::vector<PlacementReport>> ComparePlacements(const ExpertLoads& loads,
                                                       const ExpertShape& shape,
                                                       const ExpertPlanOptions& options,
                                                       const ExpertMachine* machine);

// The placement of every layer of the file that the method makes of all its windows, coming from
// the order of ids. Errors: a shape that does not divide, or experts other than the file's.
Result<std::vector<LayerSlots>> PlaceBy(PlacementMethod method, const ExpertLoads& loads,
                                        const ExpertShape& shape, const ExpertPlanOptions& options);

// A layer's experts and how they were chosen.
struct LayerLoad {
  const MoeFfn& moe;
  const std::vector<double>& counts;  // of each expert
};
// Seconds of the fullest rank in one layer's routed experts, for a step of `tokens` tokens that are
// routed as was counted: its rows, and those of its experts that any token is expected to choose.
double FullestSeconds(const ExpertShape& shape, const LayerSlots& slots, const LayerLoad& load,
                      int64_t tokens, const ExpertMachine& machine);

}  // namespace braid
