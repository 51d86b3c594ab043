// Positioned writes into a temporary file beside the one to be.
#include "base/system/new_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace braid {
namespace {

Error NotWritten(const std::string& path, const char* act) {
  return {ErrorCode::kInternal, fmt::format("{}: cannot {}: {}", path, act, std::strerror(errno))};
}

std::string TemporaryName(const std::string& path) { return path + ".tmp"; }

}  // namespace

Result<NewFile> NewFile::Create(const std::string& path, mode_t mode) {
  NewFile file;
  file.path_ = path;
  const std::string temporary = TemporaryName(path);
  ::unlink(temporary.c_str());  // what a killed process left would keep its mode
  file.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file.fd_ < 0) return NotWritten(temporary, "create");
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept { *this = std::move(other); }

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  if (has_name()) ::unlink(TemporaryName(path_).c_str());
  ::close(fd_);
}

bool NewFile::has_name() const {
  struct stat own, named;
  return ::fstat(fd_, &own) == 0 && ::stat(TemporaryName(path_).c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

Status NewFile::Write(int64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd_, data.data(), data.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return NotWritten(path_, "write");
    data = data.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

Status NewFile::Finish() {
  if (!has_name()) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{}: another process writes this file, too; write it once", path_)};
  }
  if (::close(std::exchange(fd_, -1)) != 0) return NotWritten(path_, "close");
  if (std::rename(TemporaryName(path_).c_str(), path_.c_str()) != 0) {
    return NotWritten(path_, "rename");
  }
  return {};
}

}  // namespace braid
