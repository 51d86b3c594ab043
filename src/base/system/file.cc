// POSIX files; every failure names the path and the system's reason.
#include "base/system/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace braid {
namespace {

Error SystemError(const std::string& path, const char* act) {
  ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInternal;
  return Error{code, fmt::format("{}: cannot {}: {}", path, act, std::strerror(errno))};
}

// A descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Result<size_t> RegularFileSize(int fd, const std::string& path) {
  struct stat st = {};
  if (::fstat(fd, &st) != 0) return SystemError(path, "stat");
  if (!S_ISREG(st.st_mode)) return Error{ErrorCode::kInvalid, path + ": not a regular file"};
  return static_cast<size_t>(st.st_size);
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t bytes_max) {
  Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (d.fd < 0) return SystemError(path, "open");
  ASSIGN_OR_RETURN(size_t size, RegularFileSize(d.fd, path));
  if (size > bytes_max) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{}: {} bytes, at most {} are accepted", path, size, bytes_max)};
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    ssize_t n = ::read(d.fd, text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SystemError(path, "read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

Status WriteFile(const std::string& path, std::string_view content) {
  std::string temporary = path + ".tmp";
  {
    Descriptor d{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (d.fd < 0) return SystemError(temporary, "create");
    while (!content.empty()) {
      ssize_t n = ::write(d.fd, content.data(), content.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return SystemError(temporary, "write");
      content.remove_prefix(static_cast<size_t>(n));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return SystemError(path, "rename");
  return {};
}

bool FileExists(const std::string& path) {
  struct stat st = {};
  return ::stat(path.c_str(), &st) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat st = {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::string DirectoryOf(const std::string& path) {
  if (IsDirectory(path)) return path;
  return std::filesystem::absolute(path).parent_path().string();
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (d.fd < 0) return SystemError(path, "open");
  ASSIGN_OR_RETURN(size_t size, RegularFileSize(d.fd, path));
  MappedFile file;
  file.path_ = path;
  file.size_ = size;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, d.fd, 0);
    if (data == MAP_FAILED) return SystemError(path, "map");
    file.data_ = static_cast<const std::byte*>(data);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void WillRead(const std::byte* data, int64_t bytes) {
  const auto inside = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) & 4095);
  ::madvise(const_cast<std::byte*>(data) - inside, static_cast<size_t>(bytes + inside),
            MADV_WILLNEED);
}

void MappedFile::WillNeed(size_t offset, size_t size) const {
  WillRead(data_ + offset, static_cast<int64_t>(size));
}

void MappedFile::Populate(size_t offset, size_t size) const {
  size_t page = offset & ~size_t{4095};
  // Not known before Linux 5.14; pages then come one fault at a time.
  ::madvise(const_cast<std::byte*>(data_) + page, size + (offset - page), MADV_POPULATE_READ);
}

void MappedFile::DontNeed(size_t offset, size_t size) const {
  size_t page = offset & ~size_t{4095};
  ::madvise(const_cast<std::byte*>(data_) + page, size + (offset - page), MADV_DONTNEED);
}

}  // namespace braid
