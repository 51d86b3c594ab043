// The head of the file in memory, then positioned writes behind it.
#include "model/checkpoint/gguf_writer.h"

#include <cstdint>

#include "base/check.h"
#include "base/math.h"

namespace braid {
namespace {

constexpr int64_t kAlignment = 32;
enum Kind : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kList = 9 };

class Head {
 public:
  template <class T>
  void Put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutText(std::string_view text) {
    Put<uint64_t>(text.size());
    text_.append(text);
  }
  void PutValue(const json::value& value);
  std::string Take() && { return std::move(text_); }
  int64_t size() const { return static_cast<int64_t>(text_.size()); }

 private:
  void PutItem(const json::value& value);

  std::string text_;
};

Kind KindOf(const json::value& value) {
  if (value.is_bool()) return kBool;
  if (value.is_string()) return kString;
  if (value.is_double()) return kF32;
  CHECK(value.is_int64(), "metadata of the kind {}", JsonKindName(value));
  return kU32;
}

void Head::PutItem(const json::value& value) {
  switch (KindOf(value)) {
    case kBool:
      return Put<uint8_t>(value.get_bool() ? 1 : 0);
    case kString:
      return PutText(value.get_string());
    case kF32:
      return Put(static_cast<float>(value.get_double()));
    default:
      return Put(static_cast<uint32_t>(value.get_int64()));
  }
}

void Head::PutValue(const json::value& value) {
  if (!value.is_array()) {
    Put<uint32_t>(KindOf(value));
    return PutItem(value);
  }
  const json::array& list = value.get_array();
  CHECK(!list.empty(), "an empty list of metadata");
  const Kind kind = KindOf(list[0]);
  Put<uint32_t>(kList);
  Put<uint32_t>(kind == kU32 ? kI32 : kind);
  Put<uint64_t>(list.size());
  for (const json::value& item : list) {
    CHECK(KindOf(item) == kind, "a list of several kinds: {}", JsonExcerpt(value));
    PutItem(item);
  }
}

}  // namespace

int64_t GgufTensorPlan::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

Result<GgufWriter> GgufWriter::Create(const std::string& path, const json::object& metadata,
                                      std::span<const GgufTensorPlan> tensors) {
  Head head;
  head.Put<uint32_t>(0x46554747);  // "GGUF"
  head.Put<uint32_t>(3);
  head.Put<uint64_t>(tensors.size());
  head.Put<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    head.PutText(key);
    head.PutValue(value);
  }
  int64_t at = 0;
  std::vector<int64_t> begins;
  for (const GgufTensorPlan& tensor : tensors) {
    CHECK(tensor.columns() % tensor.type->block_elements == 0, "rows of {} in {}", tensor.columns(),
          tensor.type->name);
    head.PutText(tensor.name);
    head.Put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      head.Put(static_cast<uint64_t>(tensor.shape[i]));
    }
    head.Put(tensor.type->id);
    head.Put(static_cast<uint64_t>(at));
    begins.push_back(at);
    at = RoundUp(at + tensor.bytes(), kAlignment);
  }
  const int64_t begin = RoundUp(head.size(), kAlignment);
  for (int64_t& tensor : begins) tensor += begin;
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  std::string text = std::move(head).Take();
  text.resize(static_cast<size_t>(begin));
  RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(text))));
  GgufWriter writer(std::move(file));
  writer.begin_ = std::move(begins);
  writer.bytes_ = begin + at;
  // The padding behind the last tensor.
  if (at > 0) {
    const std::byte zero{};
    RETURN_IF_ERROR(writer.file_.Write(writer.bytes_ - 1, {&zero, 1}));
  }
  return writer;
}

Status GgufWriter::Write(size_t index, int64_t offset, std::span<const std::byte> data) const {
  return file_.Write(begin_[index] + offset, data);
}

}  // namespace braid
