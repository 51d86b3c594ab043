// A file that is written in pieces and appears under its name only when it is complete. Move-only;
// Write from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace braid {

class NewFile {
 public:
  // `mode` as for open(2), also where a file of that name is there. Of two that write one path at
  // once, the first one's Finish fails.
  static Result<NewFile> Create(const std::string& path, mode_t mode = 0644);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  ~NewFile();  // an unfinished file is removed

  // Bytes [offset, offset + data.size()) of the file.
  Status Write(int64_t offset, std::span<const std::byte> data) const;
  // Every byte has been written: gives the file its name.
  Status Finish();

 private:
  NewFile() = default;
  bool has_name() const;  // the temporary one; not another file has it

  std::string path_;
  int fd_ = -1;
};

}  // namespace braid
