// For tests: the tensors of a safetensors file of tests/formats/layouts, as bytes.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/system/file.h"
#include "model/checkpoint/safetensors_format.h"

namespace braid {

inline std::map<std::string, std::vector<std::byte>> TensorsOf(const std::string& path) {
  const Result<MappedFile> file = MappedFile::Open(path);
  CHECK(file.ok(), "{}", file.error().message);
  uint64_t length;
  std::memcpy(&length, file->bytes().data(), sizeof length);
  const std::byte* data = file->bytes().data() + sizeof length + length;
  std::map<std::string, std::vector<std::byte>> tensors;
  const Status status = ReadSafetensorsHeader(
      {reinterpret_cast<const char*>(file->bytes().data()) + sizeof length, length}, path,
      [&](const HeaderTensor& tensor) -> Status {
        tensors[tensor.name].assign(data + tensor.begin, data + tensor.end);
        return {};
      });
  CHECK(status.ok(), "{}", status.error().message);
  return tensors;
}

}  // namespace braid
