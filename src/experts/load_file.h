// Recorded loads of experts as a file of JSON lines. The first line says what was counted:
//   {"braid_expert_loads": 1, "model": "...", "experts": 256, "top_k": 8, "layers": [3, 4, ...]}
// Each further line is a window of consecutive passes:
//   {"passes": 100, "tokens": 51200, "counts": [[...], ...]}
// with, for each of the layers, how many real tokens chose each logical expert. Counts do not
// depend on ranks and placements, so a file serves to plan other meshes. A line may also have
// "choices": for each layer the experts of every token, top_k each. Pure but for the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace braid {

inline constexpr int64_t kExpertLoadsVersion = 1;

struct LoadWindow {
  int64_t passes = 0;
  int64_t tokens = 0;
  std::vector<std::vector<int64_t>> counts;        // [layer][expert]
  std::vector<std::vector<int32_t>> choices = {};  // [layer][token * top_k]; empty: not recorded

  // Without choices.
  LoadWindow& operator+=(const LoadWindow& other);
  bool operator==(const LoadWindow&) const = default;
};

struct ExpertLoads {
  std::string model;
  int32_t experts = 0;
  int32_t top_k = 0;
  std::vector<int32_t> layers;  // of the model: those with experts
  std::vector<LoadWindow> windows;
  bool operator==(const ExpertLoads&) const = default;
};

// Each with the line's end.
std::string HeaderLine(const ExpertLoads& loads);
std::string WindowLine(const LoadWindow& window);

// The error names the line and what it must be: whole counts, as many as experts, whose sum is
// tokens * top_k in every layer; and choices that give these counts.
Result<ExpertLoads> ParseExpertLoads(std::string_view text, std::string_view source);
Result<ExpertLoads> ReadExpertLoads(const std::string& path);
Status WriteExpertLoads(const std::string& path, const ExpertLoads& loads);

}  // namespace braid
