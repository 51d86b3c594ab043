// Files as values: whole small files, and read-only maps of large ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace braid {

// The whole of a regular file of at most `bytes_max` bytes.
Result<std::string> ReadFile(const std::string& path, size_t bytes_max);

// Writes to a sibling temporary file and renames it, so that no reader sees half a file.
Status WriteFile(const std::string& path, std::string_view content);

bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
// A directory itself, or the one that a file lies in.
std::string DirectoryOf(const std::string& path);

// Tells the kernel that bytes of such a map will be read soon.
void WillRead(const std::byte* data, int64_t bytes);

// A read-only map of a whole regular file; move-only. The map's bytes stay valid while it lives.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that [offset, offset + size) will be read soon, is read now, or will not be
  // needed again.
  void WillNeed(size_t offset, size_t size) const;
  void Populate(size_t offset, size_t size) const;
  void DontNeed(size_t offset, size_t size) const;

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace braid
