// Positioned writes into a temporary file.
#include "model/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "base/math.h"
#include "model/checkpoint/safetensors_format.h"

namespace braid {
namespace {

Error SystemError(const std::string& path, const char* act) {
  return {ErrorCode::kInternal, fmt::format("{}: cannot {}: {}", path, act, std::strerror(errno))};
}

Status WriteAll(int fd, const std::string& path, std::span<const std::byte> data, int64_t at) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "write");
    data = data.subspan(static_cast<size_t>(n));
    at += n;
  }
  return {};
}

std::string TemporaryName(const std::string& path) { return path + ".tmp"; }

}  // namespace

int64_t TensorPlan::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    std::span<const TensorPlan> tensors) {
  json::object header = {{"__metadata__", {{"format", "pt"}}}};
  SafetensorsWriter writer;
  writer.path_ = path;
  int64_t at = 0;
  for (const TensorPlan& tensor : tensors) {
    writer.begin_.push_back(at);
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
  for (int64_t& begin : writer.begin_) begin += static_cast<int64_t>(text.size());

  const std::string temporary = TemporaryName(path);
  writer.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (writer.fd_ < 0) return SystemError(temporary, "create");
  RETURN_IF_ERROR(WriteAll(writer.fd_, temporary, std::as_bytes(std::span(text)), 0));
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept {
  *this = std::move(other);
}

SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(begin_, other.begin_);
  std::swap(fd_, other.fd_);
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(TemporaryName(path_).c_str());
}

Status SafetensorsWriter::Write(size_t index, int64_t offset,
                                std::span<const std::byte> data) const {
  return WriteAll(fd_, path_, data, begin_[index] + offset);
}

Status SafetensorsWriter::Finish() {
  if (::close(std::exchange(fd_, -1)) != 0) return SystemError(path_, "close");
  if (::rename(TemporaryName(path_).c_str(), path_.c_str()) != 0) {
    return SystemError(path_, "rename");
  }
  return {};
}

}  // namespace braid
