// For tests: a root folder with files as the kernel has them in proc and sys; it goes away with the
// test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace braid {

class FakeRoot {
 public:
  explicit FakeRoot(const std::string& name)
      : path_(testing::TempDir() + "root_" + name + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void Put(const std::string& file, const std::string& text) const {
    const std::filesystem::path target = path_ + "/" + file;
    std::filesystem::create_directories(target.parent_path());
    std::ofstream(target) << text << '\n';
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace braid
