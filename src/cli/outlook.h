// What a person asks first of a checkpoint: do its weights run as stored, do they fit into this
// machine's memory, and how fast does one sequence decode. From the binding, the memory plan and
// the cost formula; weights are not read.
#pragma once

#include <string>

#include "base/json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/loading/weight_binding.h"

namespace braid {

struct Outlook {
  std::string text;              // "runs as stored: 20.6 GiB; fits; about 22 tokens/s"
  bool as_stored = false;        // or in the format that was chosen
  bool needs_expand = false;     // see CheckExpansion
  int64_t weight_bytes = 0;      // in memory
  int64_t draft_head_bytes = 0;  // of them
  bool fits = false;
  int32_t context_tokens = 0;    // of the longest sequence that fits; 0: the weights do not fit
  double tokens_per_second = 0;  // one sequence; 0: not measured, because caches hold the weights,
                                 // or some of them stay on disk
  int64_t on_disk_bytes = 0;     // of a mapped file's experts
};

// Of what `braid serve` loads, the draft head included. Measures the memory's bandwidth (0.5 s and
// 512 MiB) for a model that is larger than caches. Errors: what ResolveMachine and BindWeights say.
Result<Outlook> OutlookOf(ModelSpec spec, const Checkpoint& checkpoint, const WeightChoice& choice);
json::object OutlookObject(const Outlook& outlook);

}  // namespace braid
