// The header, then positioned writes behind it.
#include "model/checkpoint/safetensors_writer.h"

#include "base/json.h"
#include "base/math.h"
#include "model/checkpoint/safetensors_format.h"

namespace braid {

int64_t TensorPlan::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    std::span<const TensorPlan> tensors) {
  json::object header = {{"__metadata__", {{"format", "pt"}}}};
  std::vector<int64_t> begins;
  int64_t at = 0;
  for (const TensorPlan& tensor : tensors) {
    begins.push_back(at);
    header[tensor.name] = {{"dtype", SafetensorsName(tensor.dtype)},
                           {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = json::serialize(header);
  // Blanks, so that the data begins at a multiple of 64 bytes: panels are read where they lie.
  text.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(text.size()) + 8, 64) - 8), ' ');
  const uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), 8);
  for (int64_t& begin : begins) begin += static_cast<int64_t>(text.size());
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(text))));
  SafetensorsWriter writer(std::move(file));
  writer.begin_ = std::move(begins);
  return writer;
}

Status SafetensorsWriter::Write(size_t index, int64_t offset,
                                std::span<const std::byte> data) const {
  return file_.Write(begin_[index] + offset, data);
}

}  // namespace braid
