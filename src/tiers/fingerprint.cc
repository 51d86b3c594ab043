// See the header.
#include "tiers/fingerprint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

#include "base/check.h"

namespace braid {
namespace {

// Of the layout of parts and segments.
constexpr int kPagesVersion = 1;
constexpr int64_t kWholeBytes = 4 << 20, kSampleBytes = 4096, kSamples = 1024;

class Sum {
 public:
  Sum() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
          "OpenSSL cannot compute SHA-256");
  }
  void Add(const void* data, size_t size) {
    CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void Add(std::string_view text) { Add(text.data(), text.size()); }
  std::string Hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
    unsigned size = 0;
    CHECK(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) == 1);
    std::string hex;
    for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

Status AddFile(const std::filesystem::path& path, Sum& sum) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info;
  Status status;
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    status =
        Error{ErrorCode::kInternal, fmt::format("{}: {}", path.string(), std::strerror(errno))};
  } else {
    const bool whole = info.st_size <= kWholeBytes;
    sum.Add(fmt::format("{} {} {}\n", path.filename().string(), info.st_size,
                        whole ? 0 : info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec));
    const int64_t step = whole ? kSampleBytes : info.st_size / kSamples;
    std::vector<std::byte> bytes(kSampleBytes);
    FileLayer files;
    for (int64_t at = 0; at < info.st_size && status.ok(); at += step) {
      const auto size = static_cast<size_t>(std::min(kSampleBytes, info.st_size - at));
      status = ReadAll(files, fd, std::span(bytes).first(size), at);
      sum.Add(bytes.data(), size);
    }
  }
  if (fd >= 0) ::close(fd);
  return status;
}

}  // namespace

Result<TierFingerprint> MakeFingerprint(const std::string& model, std::string_view how,
                                        const CacheGeometry& geometry) {
  Sum sum;
  sum.Add(fmt::format("braid pages {}\n{}\n", kPagesVersion, how));
  for (const GroupGeometry& g : geometry.groups) {
    sum.Add(fmt::format("{} {} {}\n", g.name, static_cast<int>(g.kind), g.block_bytes));
  }
  // What decides about states, keys and values: not the tokenizer, whose ids the keys hold.
  static const std::set<std::string> kKinds = {".safetensors", ".gguf", ".bin"};
  std::set<std::filesystem::path> paths;
  const bool directory = std::filesystem::is_directory(model);
  const std::filesystem::path path_given(model);
  const std::filesystem::path parent = directory ? path_given : path_given.parent_path();
  std::error_code error;
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end;
       at.increment(error)) {
    const std::filesystem::path& path = at->path();
    const bool weights =
        directory ? kKinds.contains(path.extension().string()) || path.filename() == "config.json"
                  : path.extension() == path_given.extension();
    if (weights && at->is_regular_file(error)) paths.insert(path);
  }
  if (error) {
    return Error{ErrorCode::kInternal, fmt::format("{}: {}", parent.string(), error.message())};
  }
  for (const std::filesystem::path& path : paths) RETURN_IF_ERROR(AddFile(path, sum));
  return sum.Hex();
}

}  // namespace braid
