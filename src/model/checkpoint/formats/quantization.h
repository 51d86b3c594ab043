// Quantised weights as config.json describes them: the formats that tensors may have, their
// parameters, and the modules that are not quantised. Unknown methods and widths are errors; keys
// that only describe are not read. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint/hf_config.h"

namespace braid {

struct StorageFormat;

// The method of checkpoints whose matrices are panels as kernels read them, which are mapped
// instead of loaded (formats/panels.cc). `braid convert --mapped` writes them.
inline constexpr std::string_view kPanelsMethod = "braid-panels";

struct QuantizationSpec {
  std::string method;  // as config.json names it; empty: no quantised weights
  std::vector<const StorageFormat*> formats;
  std::vector<std::string> ignored;  // modules, or patterns after "re:"
  int64_t block_rows = 0;            // of an fp8 block
  int64_t block_columns = 0;
  int64_t group = 0;             // elements along k that share a scale; 0: all
  bool zero_off_by_one = false;  // GPTQ's first layout stores zero points less one
  // Panels: what the norms' weights are stored less, where that differs from the family's own.
  std::optional<double> norm_offset;

  bool panels() const { return method == kPanelsMethod; }
};

// Reads "quantization_config" (or "compression_config"); problems are noted in `config`.
QuantizationSpec ReadQuantization(HfConfig& config);
// Reads the text of a ModelOpt hf_quant_config.json, whose content config.json may lack.
QuantizationSpec ReadModelOptFile(const json::object& file, HfConfig& config);

// What comparing modules with the list of those that are not quantised may take: at the start, and
// more for each module that is compared. A step is an entry of the list, or a step of a pattern.
inline constexpr int64_t kIgnoreSteps = 10'000'000;
inline constexpr int64_t kIgnoreStepsPerModule = 10'000;

// Whether a module ("model.layers.0.mlp.gate") is on the list of modules that are not quantised.
// Takes what it needs from `steps_left`; if that is negative afterwards, the answer is not known.
bool IsIgnored(const QuantizationSpec& quantization, std::string_view module, int64_t& steps_left);

// Whether `pattern` matches a beginning of `text`: literals, '.', classes, \d \w \s, groups with
// '|', '*' '+' '?', '^' '$'. A pattern with anything else matches nothing. Takes steps as
// IsIgnored.
bool MatchesPattern(std::string_view pattern, std::string_view text, int64_t& steps_left);

}  // namespace braid
