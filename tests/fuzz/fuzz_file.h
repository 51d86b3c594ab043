// For fuzz targets of readers that map files: the input under a name, in a directory of this
// process. One thread.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace braid {

class FuzzDirectory {
 public:
  FuzzDirectory() {
    const std::filesystem::path memory = "/dev/shm";
    const auto base =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    path_ = (base / ("braid_fuzz_" + std::to_string(::getpid()))).string();
    std::filesystem::create_directories(path_);
  }
  ~FuzzDirectory() { std::filesystem::remove_all(path_); }
  FuzzDirectory(const FuzzDirectory&) = delete;
  FuzzDirectory& operator=(const FuzzDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view content) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace braid
