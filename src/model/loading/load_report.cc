// Sums over a report.
#include "model/loading/load_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantities.h"

namespace braid {

RunningFormats RunningFormatsOf(const LoadReport& report) {
  const WeightStorage& embedding = report.weights.front();
  const WeightStorage& last = report.weights.back();
  const WeightStorage& head = last.part == "head" ? last : embedding;
  std::map<ops::WeightFormat, int64_t> bytes;
  for (const WeightStorage& weight : report.weights) {
    if (&weight != &embedding && &weight != &head) bytes[weight.runs_as] += weight.packed_bytes;
  }
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& b) { return b.second; });
  return {.layers = most->first, .head = head.runs_as};
}

std::map<std::string_view, int64_t> WeightBytesOf(const LoadReport& report) {
  std::map<std::string_view, int64_t> bytes;
  for (const WeightStorage& weight : report.weights) {
    bytes[ops::NameOf(weight.runs_as)] += weight.packed_bytes;
  }
  return bytes;
}

std::string FormatsText(const std::map<std::string_view, int64_t>& bytes) {
  std::vector<std::pair<int64_t, std::string_view>> order;
  for (const auto& [name, size] : bytes) order.emplace_back(-size, name);
  std::ranges::sort(order);
  std::vector<std::string> parts;
  for (const auto& [size, name] : order) {
    parts.push_back(fmt::format("{} {}", name, ByteText(-size)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace braid
