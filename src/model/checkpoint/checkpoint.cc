// Reads a header twice: first to prove that its extents tile the file, keeping a few bytes per
// tensor, then to build the map. A malformed file therefore costs little before it is refused.
#include "model/checkpoint/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_set>

#include "model/checkpoint/safetensors_format.h"

namespace braid {
namespace {

constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr size_t kTensorsMax = 262'144;
constexpr size_t kNameBytesMax = size_t{16} << 20;  // of all names of a checkpoint together
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr size_t kShardsMax = 4096;
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

Error Bad(std::string message, std::string field = {}) {
  return {ErrorCode::kInvalid, std::move(message), std::move(field)};
}

// A tensor of a header that is not trusted yet.
struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  size_t name_hash = 0;
};

Result<std::string_view> HeaderText(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  uint64_t length = 0;
  if (bytes.size() < 8 + 2) {
    return Bad(
        fmt::format("{}: {} bytes; a safetensors file begins with 8 bytes of header length and "
                    "a header",
                    file.path(), bytes.size()));
  }
  std::memcpy(&length, bytes.data(), 8);
  if (length > kHeaderBytesMax) {
    return Bad(fmt::format("{}: the header claims {} bytes; at most {} are accepted", file.path(),
                           length, kHeaderBytesMax));
  }
  if (length > bytes.size() - 8) {
    return Bad(
        fmt::format("{}: truncated: the header claims {} bytes and the file has {} after its "
                    "first 8",
                    file.path(), length, bytes.size() - 8));
  }
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text.empty() || text[0] != '{') {
    return Bad(fmt::format("{}: the header does not begin with '{{': not a safetensors file",
                           file.path()));
  }
  return text;
}

// The name of the first tensor that `matches`, for messages.
std::string NameOfFirst(const MappedFile& file, std::string_view header,
                        const std::function<bool(const HeaderTensor&)>& matches) {
  std::string name;
  Status status = ReadSafetensorsHeader(header, file.path(), [&](const HeaderTensor& t) -> Status {
    if (!matches(t)) return {};
    name = t.name;
    return Bad("found");
  });
  return name;
}

// Sorted by offset, the extents must follow each other from 0 to the end of the file.
Status CheckTiling(const MappedFile& file, std::string_view header, std::vector<Extent>& extents) {
  const int64_t data_bytes = static_cast<int64_t>(file.bytes().size() - 8 - header.size());
  std::ranges::sort(extents, [](const Extent& a, const Extent& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (const Extent& extent : extents) {
    if (extent.begin == at) {
      at = extent.end;
      continue;
    }
    std::string name = NameOfFirst(file, header, [&](const HeaderTensor& t) {
      return t.begin == extent.begin && t.end == extent.end;
    });
    return Bad(fmt::format("{}: \"{}\" begins at byte {} of the data and must begin at {}: {}",
                           file.path(), name, extent.begin, at,
                           extent.begin < at ? "tensors overlap" : "there is a hole before it"),
               name);
  }
  if (at > data_bytes) {
    std::string name =
        NameOfFirst(file, header, [&](const HeaderTensor& t) { return t.end > data_bytes; });
    return Bad(
        fmt::format("{}: truncated: \"{}\" ends past the end of the file: the tensors need {} "
                    "bytes of data and there are {}",
                    file.path(), name, at, data_bytes),
        name);
  }
  if (at < data_bytes) {
    return Bad(fmt::format("{}: {} bytes after the last tensor belong to no tensor", file.path(),
                           data_bytes - at));
  }
  return {};
}

Status CheckNames(const MappedFile& file, std::string_view header, std::vector<Extent>& extents) {
  std::ranges::sort(extents, {}, &Extent::name_hash);
  const auto twice = std::ranges::adjacent_find(extents, {}, &Extent::name_hash);
  if (twice == extents.end()) return {};
  std::string name = NameOfFirst(file, header, [&](const HeaderTensor& t) {
    return std::hash<std::string>{}(t.name) == twice->name_hash;
  });
  return Bad(fmt::format("{}: the tensor \"{}\" appears twice in the header", file.path(), name),
             name);
}

Status CheckHeader(const MappedFile& file, std::string_view header) {
  std::vector<Extent> extents;
  size_t name_bytes = 0;
  RETURN_IF_ERROR(ReadSafetensorsHeader(header, file.path(), [&](const HeaderTensor& t) -> Status {
    name_bytes += t.name.size();
    if (extents.size() == kTensorsMax || name_bytes > kNameBytesMax) {
      return Bad(fmt::format("{}: more than {} tensors, or more than {} bytes of names",
                             file.path(), kTensorsMax, kNameBytesMax));
    }
    extents.push_back({t.begin, t.end, std::hash<std::string>{}(t.name)});
    return {};
  }));
  if (extents.empty()) return Bad(fmt::format("{}: holds no tensor", file.path()));
  RETURN_IF_ERROR(CheckTiling(file, header, extents));
  return CheckNames(file, header, extents);
}

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

// The shards that an index names, in its order.
Result<std::vector<std::string>> ReadShardNames(std::string_view index, const std::string& path) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  size_t entries = 0;
  RETURN_IF_ERROR(
      ReadWeightMap(index, path, [&](std::string_view name, std::string_view file) -> Status {
        if (++entries > kTensorsMax) {
          return Bad(fmt::format("{}: more than {} entries", path, kTensorsMax), "weight_map");
        }
        if (!known.contains(std::string(file))) {
          if (!IsPlainFileName(file)) {
            return Bad(
                fmt::format("{}: places \"{}\" in \"{}\", which must be a plain file name in "
                            "the same directory",
                            path, name, file),
                "weight_map");
          }
          if (names.size() == kShardsMax) {
            return Bad(fmt::format("{}: more than {} files", path, kShardsMax), "weight_map");
          }
          known.emplace(file);
          names.emplace_back(file);
        }
        return {};
      }));
  return names;
}

}  // namespace

Status Checkpoint::AddFile(MappedFile file) {
  ASSIGN_OR_RETURN(std::string_view header, HeaderText(file));
  RETURN_IF_ERROR(CheckHeader(file, header));
  const std::byte* data = file.bytes().data() + 8 + header.size();
  const int32_t index = static_cast<int32_t>(files_.size());
  Status status = ReadSafetensorsHeader(header, file.path(), [&](const HeaderTensor& t) -> Status {
    TensorEntry entry{.name = t.name,
                      .dtype = t.dtype,
                      .shape = t.shape,
                      .file = index,
                      .data = data + t.begin,
                      .bytes = t.end - t.begin};
    const auto [at, added] = tensors_.emplace(t.name, std::move(entry));
    if (added && tensors_.size() <= kTensorsMax) return {};
    if (added) return Bad(fmt::format("{}: more than {} tensors", directory_, kTensorsMax));
    return Bad(fmt::format("the tensor \"{}\" is both in {} and in {}", t.name,
                           file_path(at->second), file.path()),
               t.name);
  });
  RETURN_IF_ERROR(status);
  file.DontNeed(0, 8 + header.size());
  files_.push_back(std::move(file));
  return {};
}

// The index and the shards must say the same about every tensor.
Status Checkpoint::CheckIndex(std::string_view index, const std::string& path) const {
  std::unordered_set<const TensorEntry*> seen;
  RETURN_IF_ERROR(
      ReadWeightMap(index, path, [&](std::string_view name, std::string_view file) -> Status {
        const TensorEntry* entry = Find(name);
        if (entry == nullptr || file_path(*entry) != fmt::format("{}/{}", directory_, file)) {
          return Bad(fmt::format("{}: places \"{}\" in {}, which does not contain it{}", path, name,
                                 file, entry ? "; " + file_path(*entry) + " does" : ""),
                     std::string(name));
        }
        if (!seen.insert(entry).second) {
          return Bad(fmt::format("{}: \"{}\" appears twice", path, name), std::string(name));
        }
        return {};
      }));
  if (seen.size() == tensors_.size()) return {};
  for (const auto& [name, entry] : tensors_) {
    if (seen.contains(&entry)) continue;
    return Bad(
        fmt::format("{}: does not name \"{}\", which {} holds", path, name, file_path(entry)),
        name);
  }
  return {};
}

Result<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  const std::string single = fmt::format("{}/{}", directory, kSingleName);
  const std::string index_path = fmt::format("{}/{}", directory, kIndexName);
  const bool has_single = FileExists(single), has_index = FileExists(index_path);
  if (has_single == has_index) {
    return Error{has_single ? ErrorCode::kInvalid : ErrorCode::kNotFound,
                 fmt::format("{}: {} {} {} {}; exactly one of them must be there", directory,
                             has_single ? "holds both" : "holds neither", kSingleName,
                             has_single ? "and" : "nor", kIndexName)};
  }
  if (has_single) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(single));
    RETURN_IF_ERROR(checkpoint.AddFile(std::move(file)));
    return checkpoint;
  }
  ASSIGN_OR_RETURN(std::string index, ReadFile(index_path, kIndexBytesMax));
  ASSIGN_OR_RETURN(std::vector<std::string> names, ReadShardNames(index, index_path));
  for (const std::string& name : names) {
    const std::string path = fmt::format("{}/{}", directory, name);
    if (!FileExists(path)) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: names {}, which is not in the directory", index_path, name),
                   name};
    }
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    RETURN_IF_ERROR(checkpoint.AddFile(std::move(file)));
  }
  RETURN_IF_ERROR(checkpoint.CheckIndex(index, index_path));
  return checkpoint;
}

Checkpoint Checkpoint::OfGguf(Gguf gguf) {
  Checkpoint checkpoint;
  checkpoint.directory_ = gguf.parts.front().path();
  checkpoint.files_ = std::move(gguf.parts);
  checkpoint.views_ = std::move(gguf.views);
  checkpoint.tensors_ = std::move(gguf.tensors);
  checkpoint.left_out_ = std::move(gguf.left_out);
  checkpoint.gguf_config_ = std::move(gguf.config);
  return checkpoint;
}

const TensorEntry* Checkpoint::Find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

const std::string& Checkpoint::file_path(const TensorEntry& entry) const {
  return files_[static_cast<size_t>(entry.file)].path();
}

std::vector<std::string> Checkpoint::file_paths() const {
  std::vector<std::string> paths;
  for (const MappedFile& file : files_) paths.push_back(file.path());
  return paths;
}

void Checkpoint::WillNeed(const TensorEntry& entry, int64_t offset, int64_t bytes) const {
  const MappedFile& file = files_[static_cast<size_t>(entry.file)];
  file.WillNeed(static_cast<size_t>(entry.data + offset - file.bytes().data()),
                static_cast<size_t>(bytes));
}

void Checkpoint::Populate(const TensorEntry& entry, int64_t offset, int64_t bytes) const {
  const MappedFile& file = files_[static_cast<size_t>(entry.file)];
  file.Populate(static_cast<size_t>(entry.data + offset - file.bytes().data()),
                static_cast<size_t>(bytes));
}

void Checkpoint::DontNeed(const TensorEntry& entry, int64_t offset, int64_t bytes) const {
  const MappedFile& file = files_[static_cast<size_t>(entry.file)];
  file.DontNeed(static_cast<size_t>(entry.data + offset - file.bytes().data()),
                static_cast<size_t>(bytes));
}

int64_t Checkpoint::total_bytes() const {
  int64_t total = 0;
  for (const auto& [name, entry] : tensors_) total += entry.bytes;
  return total;
}

}  // namespace braid
