// What `braid inspect` shows: a model in numbers, from its config alone or with its checkpoint. One
// list of facts, two renderings. Pure apart from the checkpoint's headers.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/loading/load_report.h"
#include "model/loading/weight_choice.h"
#include "model/spec.h"

namespace braid {

struct Fact {
  std::string key;    // "kv_bytes_per_token"; its name in JSON, and with blanks in the table
  std::string text;   // "20.0 KiB"
  json::value value;  // 20480
};

struct FactSection {
  std::string name;
  std::vector<Fact> facts;
};

// `checkpoint` and `report` (of its binding) may be null: then the config alone is described, with
// sizes as in bf16.
std::vector<FactSection> DescribeModel(const ModelSpec& spec, const Checkpoint* checkpoint,
                                       const LoadReport* report, const WeightChoice& choice = {});

std::string FactsAsText(const std::vector<FactSection>& sections);
json::object FactsAsJson(const std::vector<FactSection>& sections);

}  // namespace braid
