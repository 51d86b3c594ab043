// Reading is strict: slots that do not hold every expert would lose tokens.
#include "experts/placement_file.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 28;

class PlacementReader {
 public:
  PlacementReader(const json::object& object, std::string_view source)
      : object_(object), source_(source) {}

  Result<ExpertPlacement> Read() const {
    const json::value* version = object_.if_contains("braid_expert_placement");
    if (version == nullptr || *version != kExpertPlacementVersion) {
      return Wrong(
          fmt::format("\"braid_expert_placement\" must be {}, the version that this "
                      "program reads",
                      kExpertPlacementVersion));
    }
    ExpertPlacement out;
    if (const json::value* model = object_.if_contains("model"); model && model->is_string()) {
      out.model = std::string(model->as_string());
    }
    RETURN_IF_ERROR(Whole("experts", 1, 1 << 16, out.shape.experts));
    RETURN_IF_ERROR(Whole("ranks", 1, 1 << 16, out.shape.ranks));
    RETURN_IF_ERROR(Whole("ranks_per_node", 1, out.shape.ranks, out.shape.ranks_per_node));
    RETURN_IF_ERROR(Whole("redundant", 0, kRedundantExpertsMax, out.shape.redundant));
    if (const Status status = CheckShape(out.shape); !status) return Wrong(status.error().message);
    RETURN_IF_ERROR(Layers(out));
    return out;
  }

 private:
  Error Wrong(std::string_view what) const {
    return {ErrorCode::kInvalid, fmt::format("{}: {}", source_, what)};
  }

  Status Whole(std::string_view key, int64_t least, int64_t most, int32_t& out) const {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr || !value->is_int64() || value->get_int64() < least ||
        value->get_int64() > most) {
      return Wrong(fmt::format("\"{}\" must be a whole number from {} to {}", key, least, most));
    }
    out = static_cast<int32_t>(value->get_int64());
    return {};
  }

  const json::array* List(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value != nullptr ? value->if_array() : nullptr;
  }

  Status Layers(ExpertPlacement& out) const {
    const json::array *layers = List("layers"), *slots = List("slots");
    if (layers == nullptr || layers->empty() || slots == nullptr ||
        slots->size() != layers->size()) {
      return Wrong(
          "\"layers\" must list the layers that have experts, and \"slots\" must have an "
          "array for each");
    }
    for (size_t i = 0; i < layers->size(); ++i) {
      const json::value& layer = (*layers)[i];
      const int64_t before = out.layers.empty() ? -1 : out.layers.back();
      if (!layer.is_int64() || layer.get_int64() <= before || layer.get_int64() > (1 << 20)) {
        return Wrong("\"layers\" must be ascending whole numbers from 0");
      }
      out.layers.push_back(static_cast<int32_t>(layer.get_int64()));
      RETURN_IF_ERROR(Slots((*slots)[i], out));
    }
    return {};
  }

  Status Slots(const json::value& row, ExpertPlacement& out) const {
    LayerSlots& slots = out.slots.emplace_back();
    if (row.is_array()) {
      for (const json::value& expert : row.as_array()) {
        const bool known =
            expert.is_int64() && expert.get_int64() >= 0 && expert.get_int64() < out.shape.experts;
        slots.push_back(known ? static_cast<int32_t>(expert.get_int64()) : -1);
      }
    }
    const Status status = CheckSlots(out.shape, slots);
    if (status) return {};
    return Wrong(fmt::format("layer {}: {}", out.layers.back(), status.error().message));
  }

  const json::object& object_;
  const std::string_view source_;
};

}  // namespace

std::vector<LayerSlots> ExpertPlacement::ByLayer() const {
  std::vector<LayerSlots> all(static_cast<size_t>(layers.back()) + 1);
  for (size_t i = 0; i < layers.size(); ++i) all[static_cast<size_t>(layers[i])] = slots[i];
  return all;
}

Result<ExpertPlacement> ParseExpertPlacement(std::string_view text, std::string_view source) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text, std::string(source)));
  const json::object* object = value.if_object();
  if (object == nullptr) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: must be a JSON object", source)};
  }
  return PlacementReader(*object, source).Read();
}

Result<ExpertPlacement> ReadExpertPlacement(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  return ParseExpertPlacement(text, path);
}

Status WriteExpertPlacement(const std::string& path, const ExpertPlacement& placement) {
  json::array slots;
  for (const LayerSlots& layer : placement.slots) {
    slots.push_back(json::array(layer.begin(), layer.end()));
  }
  const json::object out{{"braid_expert_placement", kExpertPlacementVersion},
                         {"model", placement.model},
                         {"experts", placement.shape.experts},
                         {"ranks", placement.shape.ranks},
                         {"ranks_per_node", placement.shape.ranks_per_node},
                         {"redundant", placement.shape.redundant},
                         {"layers", json::array(placement.layers.begin(), placement.layers.end())},
                         {"slots", std::move(slots)}};
  return WriteFile(path, json::serialize(out) + "\n");
}

}  // namespace braid
