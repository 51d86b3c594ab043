// OpenSSL computes the sums over maps of the files, a few megabytes at a time.
#include "model/checkpoint/checksums.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>

#include "base/system/file.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr size_t kListBytesMax = size_t{4} << 20;
constexpr size_t kStepBytes = size_t{8} << 20;
constexpr size_t kSumDigits = 64;

bool IsSum(std::string_view text) {
  return text.size() == kSumDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string_view::npos;
}

Result<std::string> SumOf(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  const std::span<const std::byte> bytes = file.bytes();
  for (size_t at = 0; good && at < bytes.size(); at += kStepBytes) {
    const size_t count = std::min(kStepBytes, bytes.size() - at);
    good = EVP_DigestUpdate(context.get(), bytes.data() + at, count) == 1;
    file.DontNeed(at, count);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned int size = 0;
  good = good && EVP_DigestFinal_ex(context.get(), sum.data(), &size) == 1;
  if (!good) return Error{ErrorCode::kInternal, path + ": the sum could not be computed"};
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", sum[i]);
  return text;
}

Status ReadSumsFile(const std::string& directory, std::map<std::string, std::string>& sums) {
  const std::string path = directory + "/SHA256SUMS";
  if (!FileExists(path)) return {};
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kListBytesMax));
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const std::string sum = line.substr(0, std::min(kSumDigits, line.size()));
    // Two blanks, or a blank and a star for files read as bytes.
    const std::string name = line.size() > kSumDigits + 2 ? line.substr(kSumDigits + 2) : "";
    if (!IsSum(sum) || !IsPlainName(name)) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{}: line {} is not a sum, two blanks and the name of a file in "
                               "the same directory",
                               path, number)};
    }
    sums[name] = sum;
  }
  return {};
}

Status ReadDownloadRecord(const std::string& directory, const std::string& name,
                          std::map<std::string, std::string>& sums) {
  const std::string path =
      fmt::format("{}/.cache/huggingface/download/{}.metadata", directory, name);
  if (!FileExists(path)) return {};
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kListBytesMax));
  std::istringstream lines(text);
  std::string commit, tag;
  std::getline(lines, commit);
  std::getline(lines, tag);
  if (IsSum(tag)) sums.emplace(name, tag);  // small files have another kind of sum
  return {};
}

// "m" of "m-00001-of-00003.gguf", a part of a split file; else the whole name.
std::string StemOf(const std::string& name) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00003.gguf").size();
  const bool part = name.size() > kSuffix && name.ends_with(".gguf") &&
                    name.compare(name.size() - kSuffix + 6, 4, "-of-") == 0;
  return part ? name.substr(0, name.size() - kSuffix) : name;
}

}  // namespace

Result<ChecksumReport> VerifyChecksums(const std::string& model,
                                       const std::function<void(const std::string&)>& progress) {
  const bool one = FileExists(model) && !IsDirectory(model);
  const std::string directory = one ? DirectoryOf(model) : model;
  const std::string stem = StemOf(fs::path(model).filename().string());
  std::map<std::string, std::string> sums;
  RETURN_IF_ERROR(ReadSumsFile(directory, sums));
  ChecksumReport report;
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ec)) {
    const std::string name = entry.path().filename().string();
    std::error_code broken;  // a link without a file
    if (!entry.is_regular_file(broken) || (one && StemOf(name) != stem)) continue;
    RETURN_IF_ERROR(ReadDownloadRecord(directory, name, sums));
    const bool weights = name.ends_with(".safetensors") || name.ends_with(".gguf");
    if (weights && !sums.contains(name)) report.unknown.push_back(name);
  }
  if (ec) return Error{ErrorCode::kNotFound, fmt::format("{}: {}", directory, ec.message())};
  if (one) std::erase_if(sums, [&](const auto& sum) { return StemOf(sum.first) != stem; });
  std::vector<std::string> wrong;
  for (const auto& [name, sum] : sums) {
    const std::string path = directory + "/" + name;
    if (progress) progress(name);
    if (!FileExists(path)) {
      wrong.push_back(name + " is not there");
      continue;
    }
    ASSIGN_OR_RETURN(const std::string found, SumOf(path));
    if (found == sum) {
      report.checked.push_back(name);
    } else {
      wrong.push_back(fmt::format("{} has {} and should have {}", name, found, sum));
    }
  }
  std::ranges::sort(report.unknown);
  if (wrong.empty()) return report;
  return Error{ErrorCode::kInvalid,
               fmt::format("{}: files do not match their checksums:\n  {}", directory,
                           fmt::join(wrong, "\n  ")),
               sums.begin()->first};
}

}  // namespace braid
