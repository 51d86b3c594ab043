// Sums over a report.
#include "model/loading/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

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

Expansion ExpansionOf(const LoadReport& report) {
  struct Sum {
    int64_t stored = 0;
    int64_t packed = 0;
    std::set<std::string_view> runs_as;
  };
  std::map<std::string_view, Sum> formats;
  Expansion all;
  for (const WeightStorage& weight : report.weights) {
    Sum& sum = formats[weight.stored_as];
    sum.stored += weight.stored_bytes;
    sum.packed += weight.packed_bytes;
    sum.runs_as.insert(ops::NameOf(weight.runs_as));
    all.stored += weight.stored_bytes;
    all.packed += weight.packed_bytes;
  }
  for (const auto& [name, sum] : formats) {
    // Rows are filled up to whole panels, so that a format of a few small weights says nothing.
    if (2 * sum.packed <= 3 * sum.stored || 100 * sum.packed < all.packed) continue;
    all.formats.push_back(fmt::format("{} from {} to {} in {}", name, ByteText(sum.stored),
                                      ByteText(sum.packed), fmt::join(sum.runs_as, " and ")));
  }
  return all;
}

Status CheckExpansion(const LoadReport& report, std::string_view name) {
  const Expansion expansion = ExpansionOf(report);
  if (!expansion.must_be_asked_for()) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: its weights would take {} in memory, {:.1f} times the {} stored, "
                           "because no memory format holds some of them as they are ({}). --expand "
                           "loads them so; --weights int8 (or int4, q4_k, …) rounds them to fewer "
                           "bits",
                           name, ByteText(expansion.packed), expansion.times(),
                           ByteText(expansion.stored), fmt::join(expansion.formats, "; ")),
               "expand"};
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
