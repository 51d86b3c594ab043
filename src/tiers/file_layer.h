// Reading and writing at an offset of an open file, so that tests can fail, cut or delay them. Any
// thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace braid {

struct FileLayer {
  virtual ~FileLayer() = default;
  // As pread and pwrite: bytes done, or -1 with errno set.
  virtual int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) {
    return ::pread(fd, data, size, offset);
  }
  virtual int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) {
    return ::pwrite(fd, data, size, offset);
  }
  // Asks the kernel to read bytes into its page cache, and returns mostly before it has them.
  // Promises nothing.
  virtual void WillNeed(int fd, int64_t size, int64_t offset) {
    (void)::posix_fadvise(fd, offset, size, POSIX_FADV_WILLNEED);
  }
};

}  // namespace braid
