// Joins the parts of a split file. The first part has the metadata; every part says its number and
// how many parts and tensors there are, and must bear the name that these numbers give it.
#include <fmt/format.h>

#include <algorithm>

#include "model/checkpoint/gguf_file.h"

namespace braid {
namespace {

constexpr int64_t kPartsMax = 4096;
constexpr size_t kTensorsMax = 262'144;

Error Bad(std::string message, std::string field) {
  return {ErrorCode::kInvalid, std::move(message), std::move(field)};
}

std::string Suffix(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

// The part at `path`, which must be number `index` of the file that `whole` tells of.
Result<GgufFile> ReadPart(const std::string& path, const GgufSplit& whole, int64_t index) {
  if (!FileExists(path)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is missing: part {} of {} of a split file; all parts must lie in "
                             "one directory",
                             path, index + 1, whole.count),
                 "split.count"};
  }
  ASSIGN_OR_RETURN(GgufFile part, ReadGgufPart(path));
  ASSIGN_OR_RETURN(const GgufSplit split, GgufSplitOf(part.metadata, path));
  if (split.count != whole.count || split.tensors != whole.tensors) {
    return Bad(fmt::format("{}: is of a file of {} parts and {} tensors and the other parts are of "
                           "one of {} parts and {} tensors: it belongs to another file",
                           path, split.count, split.tensors, whole.count, whole.tensors),
               "split.count");
  }
  if (split.index != index) {
    return Bad(fmt::format("{}: is part {} of {} by its split.no and part {} by its name: a part "
                           "was renamed or copied",
                           path, split.index + 1, split.count, index + 1),
               "split.no");
  }
  return part;
}

// Keys that both have must agree.
Status CheckSameModel(const GgufFile& whole, const GgufFile& part) {
  for (const auto& [key, value] : part.metadata) {
    const auto at = whole.metadata.find(key);
    if (!key.starts_with("general.") || at == whole.metadata.end() || at->second == value) continue;
    return Bad(fmt::format("{}: {} is {} and {} in {}: it belongs to another file", part.path(),
                           key, JsonExcerpt(value), JsonExcerpt(at->second), whole.path()),
               key);
  }
  return {};
}

Status Append(GgufFile part, GgufFile& whole) {
  if (!whole.parts.empty()) RETURN_IF_ERROR(CheckSameModel(whole, part));
  if (whole.tensors.size() + part.tensors.size() > kTensorsMax) {
    return Bad(fmt::format("{}: its parts have more than {} tensors", part.path(), kTensorsMax),
               "split.tensors.count");
  }
  for (GgufTensor& tensor : part.tensors) {
    tensor.part = static_cast<int32_t>(whole.parts.size());
    whole.tensors.push_back(std::move(tensor));
  }
  if (whole.parts.empty()) whole.metadata = std::move(part.metadata);
  whole.parts.push_back(std::move(part.parts.front()));
  return {};
}

Status CheckTensors(const GgufFile& whole, const GgufSplit& split) {
  const auto twice = std::ranges::adjacent_find(whole.tensors, {}, &GgufTensor::name);
  if (twice != whole.tensors.end()) {
    return Bad(
        fmt::format("the tensor \"{}\" is both in {} and in {}: a part belongs to another file",
                    twice->name, whole.parts[static_cast<size_t>(twice->part)].path(),
                    whole.parts[static_cast<size_t>(std::next(twice)->part)].path()),
        twice->name);
  }
  if (std::ssize(whole.tensors) == split.tensors) return {};
  return Bad(fmt::format("{}: its {} parts have {} tensors together and split.tensors.count is {}: "
                         "a part belongs to another file",
                         whole.path(), split.count, whole.tensors.size(), split.tensors),
             "split.tensors.count");
}

}  // namespace

Result<GgufSplit> GgufSplitOf(const GgufMetadata& metadata, const std::string& path) {
  GgufSplit split;
  const auto take = [&](std::string_view key, int64_t most, int64_t& to) -> Status {
    const auto at = metadata.find(key);
    const json::value value = at == metadata.end() ? json::value() : at->second;
    boost::system::error_code failed;
    const auto number = value.is_number() ? value.to_number<int64_t>(failed) : int64_t{-1};
    if (failed || number < 0 || number > most) {
      return Bad(fmt::format("{}: {} is {}; it must be an integer from 0 to {}", path, key,
                             at == metadata.end() ? "absent" : JsonExcerpt(value), most),
                 std::string(key));
    }
    to = number;
    return {};
  };
  if (!metadata.contains("split.count")) return split;
  RETURN_IF_ERROR(take("split.count", kPartsMax, split.count));
  if (split.count <= 1) return GgufSplit{};
  RETURN_IF_ERROR(take("split.no", split.count - 1, split.index));
  RETURN_IF_ERROR(take("split.tensors.count", kTensorsMax, split.tensors));
  return split;
}

Result<std::string> GgufPartPath(const std::string& path, const GgufSplit& split, int64_t index) {
  const std::string suffix = Suffix(split.index, split.count);
  if (path.ends_with(suffix)) {
    return path.substr(0, path.size() - suffix.size()) + Suffix(index, split.count);
  }
  return Bad(fmt::format("{}: is part {} of {} of a split file; its name must end with \"{}\", and "
                         "the other parts must lie beside it",
                         path, split.index + 1, split.count, suffix),
             "split.no");
}

Result<GgufFile> ReadGguf(const std::string& path) {
  ASSIGN_OR_RETURN(GgufFile given, ReadGgufPart(path));
  ASSIGN_OR_RETURN(const GgufSplit split, GgufSplitOf(given.metadata, path));
  if (split.count == 1) return given;
  GgufFile whole;
  for (int64_t i = 0; i < split.count; ++i) {
    ASSIGN_OR_RETURN(const std::string name, GgufPartPath(path, split, i));
    if (i == split.index) {
      RETURN_IF_ERROR(Append(std::move(given), whole));
      continue;
    }
    ASSIGN_OR_RETURN(GgufFile part, ReadPart(name, split, i));
    RETURN_IF_ERROR(Append(std::move(part), whole));
  }
  std::ranges::sort(whole.tensors, {}, &GgufTensor::name);
  RETURN_IF_ERROR(CheckTensors(whole, split));
  return whole;
}

}  // namespace braid
