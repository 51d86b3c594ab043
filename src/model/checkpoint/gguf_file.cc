// A bounds-checked cursor, and the checks of the values it reads.
#include "model/checkpoint/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/math.h"

namespace braid {
namespace {

constexpr uint64_t kTensorsMax = 262'144;
constexpr uint64_t kMetadataMax = 65'536;
constexpr uint64_t kNameBytesMax = 1024;
constexpr uint64_t kStringBytesMax = size_t{1} << 20;
constexpr uint64_t kListKeptMax = 4096;
constexpr uint64_t kKeptBytesMax = uint64_t{16} << 20;  // of all values that are kept
constexpr uint64_t kTokenizerBytesMax = uint64_t{32} << 20;
constexpr std::string_view kTokenizerPrefix = "tokenizer.";
constexpr uint32_t kRankMax = 4;
constexpr uint32_t kAlignmentMax = 65'536;

enum Kind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kList,
  kU64,
  kI64,
  kF64,
  kKinds
};
constexpr uint64_t kSizes[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Reads forward. After the first problem it returns zeros and keeps the problem.
class Cursor {
 public:
  // Lists of any length are kept whose keys begin with `long_lists`, if it is not empty.
  explicit Cursor(std::span<const std::byte> bytes, std::string_view long_lists = {})
      : bytes_(bytes), long_lists_(long_lists) {}

  template <class T>
  T Take() {
    T value{};
    if (Has(sizeof(T))) {
      std::memcpy(&value, bytes_.data() + at_, sizeof(T));
      at_ += sizeof(T);
    }
    return value;
  }
  std::string_view TakeString(uint64_t bytes_max, std::string_view what) {
    const uint64_t size = Take<uint64_t>();
    if (size > bytes_max) {
      Fail(fmt::format("{} of {} bytes; at most {} are accepted", what, size, bytes_max));
    }
    if (!Has(size)) return {};
    const auto* text = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += size;
    return {text, size};
  }
  void Skip(uint64_t size) {
    if (Has(size)) at_ += size;
  }
  bool Has(uint64_t size) {
    if (!problem_.empty()) return false;
    if (size <= bytes_.size() - at_) return true;
    Fail(fmt::format("truncated: {} bytes are needed at byte {} and the file has {}", size, at_,
                     bytes_.size()));
    return false;
  }
  void Fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  // Counts what is kept of the metadata.
  void Keep(uint64_t bytes) {
    kept_ += bytes;
    const uint64_t most = long_lists_.empty() ? kKeptBytesMax : kTokenizerBytesMax;
    if (kept_ > most) {
      Fail(fmt::format("has metadata of more than {} bytes{}", most,
                       long_lists_.empty() ? " beside its long lists" : ""));
    }
  }
  bool KeepsList(std::string_view key, uint64_t count) const {
    return count <= kListKeptMax || (!long_lists_.empty() && key.starts_with(long_lists_));
  }
  bool ok() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }
  uint64_t at() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  std::string_view long_lists_;
  uint64_t at_ = 0;
  uint64_t kept_ = 0;
  std::string problem_;
};

json::value TakeText(Cursor& cursor) {
  const std::string_view text = cursor.TakeString(kStringBytesMax, "a value");
  cursor.Keep(text.size());
  return cursor.ok() ? json::value(json::string(text)) : nullptr;
}

json::value TakeScalar(Cursor& cursor, uint32_t kind, const std::string& key) {
  cursor.Keep(sizeof(json::value));
  switch (kind) {
    case kU8:
      return cursor.Take<uint8_t>();
    case kI8:
      return cursor.Take<int8_t>();
    case kU16:
      return cursor.Take<uint16_t>();
    case kI16:
      return cursor.Take<int16_t>();
    case kU32:
      return cursor.Take<uint32_t>();
    case kI32:
      return cursor.Take<int32_t>();
    case kF32:
      return cursor.Take<float>();
    case kBool:
      return cursor.Take<uint8_t>() != 0;
    case kU64:
      return cursor.Take<uint64_t>();
    case kI64:
      return cursor.Take<int64_t>();
    case kF64:
      return cursor.Take<double>();
    case kString:
      return TakeText(cursor);
    default:
      cursor.Fail(fmt::format("the value of \"{}\" has the unknown type {}", key, kind));
  }
  return nullptr;
}

// A list, or null for one that is too long to be of interest.
json::value TakeList(Cursor& cursor, const std::string& key) {
  const auto kind = cursor.Take<uint32_t>();
  const auto count = cursor.Take<uint64_t>();
  if (kind >= kKinds || kind == kList) {
    cursor.Fail(fmt::format("the list \"{}\" has items of the type {}", key, kind));
    return nullptr;
  }
  const uint64_t least = kind == kString ? 8 : kSizes[kind];
  if (count > UINT64_MAX / least || !cursor.Has(count * least)) {
    cursor.Fail(
        fmt::format("the list \"{}\" claims {} items, more than the file holds", key, count));
    return nullptr;
  }
  if (!cursor.KeepsList(key, count)) {
    if (kind != kString) cursor.Skip(count * least);
    for (uint64_t i = 0; kind == kString && i < count && cursor.ok(); ++i) {
      cursor.TakeString(kStringBytesMax, "an item");
    }
    return nullptr;
  }
  json::array list;
  for (uint64_t i = 0; i < count && cursor.ok(); ++i) {
    list.push_back(TakeScalar(cursor, kind, key));
  }
  return list;
}

void TakeMetadata(Cursor& cursor, uint64_t count, GgufFile& gguf) {
  for (uint64_t i = 0; i < count && cursor.ok(); ++i) {
    const std::string key(cursor.TakeString(kNameBytesMax, "a key"));
    const auto kind = cursor.Take<uint32_t>();
    json::value value = kind == kList ? TakeList(cursor, key) : TakeScalar(cursor, kind, key);
    if (cursor.ok() && !gguf.metadata.emplace(key, std::move(value)).second) {
      cursor.Fail(fmt::format("the key \"{}\" appears twice", key));
    }
  }
}

// Bytes of the tensor in checked arithmetic; notes a problem.
int64_t CheckedBytes(Cursor& cursor, const GgufTensor& tensor) {
  if (tensor.columns() % tensor.type->block_elements != 0) {
    cursor.Fail(fmt::format("\"{}\": rows of {} are no multiple of the {} elements of a {} block",
                            tensor.name, tensor.columns(), tensor.type->block_elements,
                            tensor.type->name));
    return 0;
  }
  std::optional<int64_t> bytes =
      CheckedMul(tensor.columns() / tensor.type->block_elements, tensor.type->block_bytes);
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    if (bytes) bytes = CheckedMul(*bytes, tensor.shape[i]);
  }
  if (!bytes) cursor.Fail(fmt::format("\"{}\": the shape has more than 2^63 bytes", tensor.name));
  return bytes.value_or(0);
}

// One entry of the table of tensors; returns its offset into the data.
uint64_t TakeTensor(Cursor& cursor, GgufTensor& tensor) {
  tensor.name = cursor.TakeString(kNameBytesMax, "a tensor's name");
  const auto rank = cursor.Take<uint32_t>();
  if (rank < 1 || rank > kRankMax) {
    cursor.Fail(
        fmt::format("\"{}\" has {} dimensions; 1 to {} are accepted", tensor.name, rank, kRankMax));
    return 0;
  }
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = cursor.Take<uint64_t>();
    if (size < 1 || size > uint64_t{1} << 62) {
      cursor.Fail(fmt::format("\"{}\" has a dimension of {}", tensor.name, size));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = cursor.Take<uint32_t>();
  const auto offset = cursor.Take<uint64_t>();
  tensor.type = FindGgufType(type);
  if (cursor.ok() && tensor.type == nullptr) {
    cursor.Fail(
        fmt::format("\"{}\" has the type {}; known are {}", tensor.name, type, GgufTypeNames()));
  }
  if (cursor.ok()) tensor.bytes = CheckedBytes(cursor, tensor);
  return offset;
}

// Offsets must be aligned and the tensors must follow each other without overlap, padded to the
// alignment, up to the end of the file.
void CheckOffsets(Cursor& cursor, const GgufFile& gguf, const std::vector<uint64_t>& offsets,
                  uint64_t data_bytes, uint64_t alignment) {
  std::vector<size_t> order(offsets.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return offsets[i]; });
  uint64_t at = 0;
  for (size_t i : order) {
    const GgufTensor& tensor = gguf.tensors[i];
    const auto bytes = static_cast<uint64_t>(tensor.bytes);
    const uint64_t want = (at + alignment - 1) / alignment * alignment;
    if (offsets[i] != want) {
      return cursor.Fail(
          fmt::format("\"{}\" begins at byte {} of the data and must begin at {}: {}", tensor.name,
                      offsets[i], want, offsets[i] < want ? "tensors overlap" : "there is a hole"));
    }
    if (want > data_bytes || bytes > data_bytes - want) {
      return cursor.Fail(
          fmt::format("truncated: \"{}\" ends past the end of the file", tensor.name));
    }
    at = want + bytes;
  }
}

uint64_t AlignmentOf(Cursor& cursor, const GgufFile& gguf) {
  const auto at = gguf.metadata.find("general.alignment");
  if (at == gguf.metadata.end()) return 32;
  const int64_t* value = at->second.if_int64();
  const uint64_t* large = at->second.if_uint64();
  const int64_t alignment = value ? *value : large ? static_cast<int64_t>(*large) : 0;
  if (alignment >= 1 && alignment <= kAlignmentMax && (alignment & (alignment - 1)) == 0) {
    return static_cast<uint64_t>(alignment);
  }
  cursor.Fail(fmt::format("general.alignment is {}; it must be a power of two up to {}",
                          JsonExcerpt(at->second), kAlignmentMax));
  return 32;
}

// Head and metadata; returns the number of tensors.
uint64_t TakeHead(Cursor& cursor, GgufFile& gguf) {
  if (cursor.Take<uint32_t>() != 0x46554747) {
    cursor.Fail("does not begin with \"GGUF\": not a GGUF file");
    return 0;
  }
  const auto version = cursor.Take<uint32_t>();
  if (version < 2 || version > 3) {
    cursor.Fail(fmt::format("is of version {}; versions 2 and 3 are known", version));
  }
  const auto tensors = cursor.Take<uint64_t>(), keys = cursor.Take<uint64_t>();
  if (tensors > kTensorsMax || keys > kMetadataMax) {
    cursor.Fail(fmt::format("claims {} tensors and {} keys; at most {} and {} are accepted",
                            tensors, keys, kTensorsMax, kMetadataMax));
  }
  TakeMetadata(cursor, keys, gguf);
  return tensors;
}

void TakeAll(Cursor& cursor, GgufFile& gguf) {
  const uint64_t tensors = TakeHead(cursor, gguf);
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < tensors && cursor.ok(); ++i) {
    offsets.push_back(TakeTensor(cursor, gguf.tensors.emplace_back()));
  }
  if (!cursor.ok()) return;
  const uint64_t alignment = AlignmentOf(cursor, gguf);
  const uint64_t begin = (cursor.at() + alignment - 1) / alignment * alignment;
  const uint64_t size = gguf.parts.front().bytes().size();
  CheckOffsets(cursor, gguf, offsets, begin <= size ? size - begin : 0, alignment);
  if (!cursor.ok()) return;
  for (size_t i = 0; i < offsets.size(); ++i) {
    gguf.tensors[i].data = gguf.parts.front().bytes().data() + begin + offsets[i];
  }
  std::ranges::sort(gguf.tensors, {}, &GgufTensor::name);
  const auto twice = std::ranges::adjacent_find(gguf.tensors, {}, &GgufTensor::name);
  if (twice != gguf.tensors.end()) {
    cursor.Fail(fmt::format("the tensor \"{}\" appears twice", twice->name));
  }
}

}  // namespace

const GgufTensor* GgufFile::Find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(tensors, name, {}, &GgufTensor::name);
  return at == tensors.end() || at->name != name ? nullptr : &*at;
}

Result<GgufFile> ReadGgufPart(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  GgufFile gguf;
  gguf.parts.push_back(std::move(file));
  Cursor cursor(gguf.parts.front().bytes());
  TakeAll(cursor, gguf);
  if (cursor.ok()) return gguf;
  return Error{ErrorCode::kInvalid, fmt::format("{}: {}", path, cursor.problem())};
}

Result<json::object> ReadGgufTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  GgufFile gguf;
  Cursor cursor(file.bytes(), kTokenizerPrefix);
  TakeHead(cursor, gguf);
  if (!cursor.ok()) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: {}", path, cursor.problem())};
  }
  ASSIGN_OR_RETURN(const GgufSplit split, GgufSplitOf(gguf.metadata, path));
  if (split.index > 0) {
    ASSIGN_OR_RETURN(const std::string first, GgufPartPath(path, split, 0));
    return ReadGgufTokenizer(first);
  }
  json::object found;
  for (auto at = gguf.metadata.lower_bound(kTokenizerPrefix);
       at != gguf.metadata.end() && at->first.starts_with(kTokenizerPrefix); ++at) {
    found[at->first] = std::move(at->second);
  }
  return found;
}

}  // namespace braid
