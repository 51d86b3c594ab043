// Files in the order of the tensors; the index comes last, so that half a checkpoint has none.
#include "model/checkpoint/checkpoint_writer.h"

#include <fmt/core.h>

#include "base/json.h"
#include "base/system/file.h"

namespace braid {

std::string CheckpointWriter::FileName(size_t file) const {
  if (places_.back().file == 0) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, places_.back().file + 1);
}

Result<CheckpointWriter> CheckpointWriter::Create(const std::string& directory,
                                                  std::vector<TensorPlan> tensors,
                                                  int64_t file_bytes_max) {
  CheckpointWriter writer;
  writer.directory_ = directory;
  writer.tensors_ = std::move(tensors);
  std::vector<std::vector<TensorPlan>> files;
  int64_t file_bytes = 0;
  for (const TensorPlan& plan : writer.tensors_) {
    if (files.empty() || file_bytes + plan.bytes() > file_bytes_max) {
      files.emplace_back();
      file_bytes = 0;
    }
    writer.places_.push_back({files.size() - 1, files.back().size()});
    files.back().push_back(plan);
    file_bytes += plan.bytes();
    writer.bytes_ += plan.bytes();
  }
  for (size_t file = 0; file < files.size(); ++file) {
    ASSIGN_OR_RETURN(
        SafetensorsWriter one,
        SafetensorsWriter::Create(directory + "/" + writer.FileName(file), files[file]));
    writer.writers_.push_back(std::move(one));
  }
  return writer;
}

Status CheckpointWriter::Write(size_t index, int64_t offset,
                               std::span<const std::byte> data) const {
  const Place& place = places_[index];
  return writers_[place.file].Write(place.index, offset, data);
}

Status CheckpointWriter::Finish() {
  for (SafetensorsWriter& writer : writers_) RETURN_IF_ERROR(writer.Finish());
  if (writers_.size() == 1) return {};
  json::object map;
  for (size_t i = 0; i < tensors_.size(); ++i) map[tensors_[i].name] = FileName(places_[i].file);
  const json::object index = {{"metadata", {{"total_size", bytes_}}}, {"weight_map", map}};
  return WriteFile(directory_ + "/model.safetensors.index.json", json::serialize(index));
}

}  // namespace braid
