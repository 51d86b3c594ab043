// Reading is strict: a file that was cut short or edited must not decide a placement.
#include "experts/load_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;
constexpr int64_t kMost = int64_t{1} << 40;

class LoadReader {
 public:
  explicit LoadReader(std::string_view source) : source_(source) {}

  Status Line(std::string_view line, int64_t number, ExpertLoads& out) {
    number_ = number;
    ASSIGN_OR_RETURN(const json::value value, ParseJson(line, At()));
    const json::object* object = value.if_object();
    if (object == nullptr) return Wrong("must be an object");
    return out.experts == 0 ? Header(*object, out) : Window(*object, out);
  }
  std::string At() const { return fmt::format("{}, line {}", source_, number_); }
  Error Wrong(std::string_view what) const {
    return {ErrorCode::kInvalid, fmt::format("{}: {}", At(), what)};
  }

 private:
  Status Whole(const json::object& object, std::string_view key, int64_t least, int64_t most,
               int64_t& out) const {
    const json::value* value = object.if_contains(key);
    if (value == nullptr || !value->is_int64() || value->get_int64() < least ||
        value->get_int64() > most) {
      return Wrong(fmt::format("\"{}\" must be a whole number from {} to {}", key, least, most));
    }
    out = value->get_int64();
    return {};
  }

  Status Header(const json::object& object, ExpertLoads& out) const {
    const json::value* version = object.if_contains("braid_expert_loads");
    if (version == nullptr || *version != kExpertLoadsVersion) {
      return Wrong(
          fmt::format("the first line must have \"braid_expert_loads\": {}, the version "
                      "that this program reads",
                      kExpertLoadsVersion));
    }
    int64_t experts = 0, top_k = 0;
    RETURN_IF_ERROR(Whole(object, "top_k", 1, 1 << 16, top_k));
    RETURN_IF_ERROR(Whole(object, "experts", top_k, 1 << 16, experts));
    const json::value* layers = object.if_contains("layers");
    if (layers == nullptr || !layers->is_array() || layers->as_array().empty()) {
      return Wrong("\"layers\" must list the layers that have experts");
    }
    for (const json::value& layer : layers->as_array()) {
      const int64_t before = out.layers.empty() ? -1 : out.layers.back();
      if (!layer.is_int64() || layer.get_int64() <= before || layer.get_int64() > (1 << 20)) {
        return Wrong("\"layers\" must be ascending whole numbers from 0");
      }
      out.layers.push_back(static_cast<int32_t>(layer.get_int64()));
    }
    if (const json::value* model = object.if_contains("model"); model && model->is_string()) {
      out.model = std::string(model->as_string());
    }
    out.experts = static_cast<int32_t>(experts);
    out.top_k = static_cast<int32_t>(top_k);
    return {};
  }

  Status Window(const json::object& object, ExpertLoads& out) const {
    LoadWindow window;
    RETURN_IF_ERROR(Whole(object, "passes", 1, kMost, window.passes));
    RETURN_IF_ERROR(Whole(object, "tokens", 0, kMost, window.tokens));
    const json::value* counts = object.if_contains("counts");
    if (counts == nullptr || !counts->is_array() ||
        counts->as_array().size() != out.layers.size()) {
      return Wrong(fmt::format("\"counts\" must have an array for each of the {} layers",
                               out.layers.size()));
    }
    for (const json::value& row : counts->as_array()) {
      RETURN_IF_ERROR(Row(row, out, window));
    }
    RETURN_IF_ERROR(Choices(object, out, window));
    out.windows.push_back(std::move(window));
    return {};
  }

  Status Choices(const json::object& object, const ExpertLoads& loads, LoadWindow& window) const {
    const json::value* choices = object.if_contains("choices");
    if (choices == nullptr) return {};
    if (!choices->is_array() || choices->as_array().size() != loads.layers.size()) {
      return Wrong(fmt::format("\"choices\" must have an array for each of the {} layers",
                               loads.layers.size()));
    }
    for (const json::value& layer : choices->as_array()) {
      const size_t at = window.choices.size();
      std::vector<int64_t> counts(static_cast<size_t>(loads.experts));
      std::vector<int32_t>& out = window.choices.emplace_back();
      for (const json::value& expert : layer.is_array() ? layer.as_array() : json::array()) {
        if (!expert.is_int64() || expert.get_int64() < 0 || expert.get_int64() >= loads.experts) {
          return Wrong(fmt::format("the choices of layer {} must be experts from 0 to {}",
                                   loads.layers[at], loads.experts - 1));
        }
        out.push_back(static_cast<int32_t>(expert.get_int64()));
        ++counts[static_cast<size_t>(out.back())];
      }
      if (counts != window.counts[at]) {
        return Wrong(
            fmt::format("the choices of layer {} do not give its counts", loads.layers[at]));
      }
    }
    return {};
  }

  Status Row(const json::value& row, const ExpertLoads& loads, LoadWindow& window) const {
    const int32_t layer = loads.layers[window.counts.size()];
    if (!row.is_array() || row.as_array().size() != static_cast<size_t>(loads.experts)) {
      return Wrong(fmt::format("the counts of layer {} must be {} numbers, one for each expert",
                               layer, loads.experts));
    }
    std::vector<int64_t>& counts = window.counts.emplace_back();
    for (const json::value& count : row.as_array()) {
      if (!count.is_int64() || count.get_int64() < 0 || count.get_int64() > kMost) {
        return Wrong(fmt::format("the counts of layer {} must be whole numbers from 0", layer));
      }
      counts.push_back(count.get_int64());
    }
    const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (sum == window.tokens * loads.top_k) return {};
    return Wrong(
        fmt::format("the counts of layer {} add up to {}; {} tokens that choose {} each "
                    "give {}",
                    layer, sum, window.tokens, loads.top_k, window.tokens * loads.top_k));
  }

  const std::string_view source_;
  int64_t number_ = 0;
};

}  // namespace

LoadWindow& LoadWindow::operator+=(const LoadWindow& other) {
  passes += other.passes;
  tokens += other.tokens;
  counts.resize(other.counts.size());
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    counts[layer].resize(other.counts[layer].size());
    for (size_t e = 0; e < counts[layer].size(); ++e) counts[layer][e] += other.counts[layer][e];
  }
  return *this;
}

std::string HeaderLine(const ExpertLoads& loads) {
  const json::object header{{"braid_expert_loads", kExpertLoadsVersion},
                            {"model", loads.model},
                            {"experts", loads.experts},
                            {"top_k", loads.top_k},
                            {"layers", json::value_from(loads.layers)}};
  return json::serialize(header) + "\n";
}

std::string WindowLine(const LoadWindow& window) {
  json::object line{{"passes", window.passes},
                    {"tokens", window.tokens},
                    {"counts", json::value_from(window.counts)}};
  if (!window.choices.empty()) line["choices"] = json::value_from(window.choices);
  return json::serialize(line) + "\n";
}

Result<ExpertLoads> ParseExpertLoads(std::string_view text, std::string_view source) {
  ExpertLoads loads;
  LoadReader reader(source);
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    RETURN_IF_ERROR(reader.Line(line, number, loads));
  }
  if (loads.windows.empty()) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: has no window; it needs a first line with "
                             "\"braid_expert_loads\" and a line with \"counts\"",
                             source)};
  }
  return loads;
}

Result<ExpertLoads> ReadExpertLoads(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  return ParseExpertLoads(text, path);
}

Status WriteExpertLoads(const std::string& path, const ExpertLoads& loads) {
  std::string text = HeaderLine(loads);
  for (const LoadWindow& window : loads.windows) text += WindowLine(window);
  return WriteFile(path, text);
}

}  // namespace braid
