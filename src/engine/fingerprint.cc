// Samples, because reading all of the weights would take as long as loading them.
#include "engine/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/system/file.h"
#include "comm/launch.h"
#include "model/loading/load_weights.h"
#include "model/loading/weight_binding.h"
#include "parallel/page_layout.h"
#include "text/grammar/grammar.h"

namespace braid {
namespace {

class Digest {
 public:
  void Add(std::string_view bytes) {
    sum_ = MixBits(sum_ + bytes.size());
    for (size_t at = 0; at < bytes.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
      sum_ = MixBits(sum_ + 0x9e3779b97f4a7c15ull + word);
    }
  }
  std::string Text() const { return fmt::format("{:016x}", sum_); }

 private:
  uint64_t sum_ = 1;
};

// All of a tensor, or the first rows of one that a GGUF file has in several places.
std::pair<const std::byte*, int64_t> BytesOf(const TensorEntry& entry) {
  if (entry.view == nullptr) return {entry.data, entry.bytes};
  const GgufView::Rows& rows = entry.view->rows.front();
  return {rows.first, rows.count * entry.view->row_bytes};
}

std::string WeightsDigest(const Checkpoint& checkpoint) {
  constexpr int64_t kSampleBytes = 256, kSamples = 4;
  Digest digest;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    digest.Add(
        fmt::format("{} {} {}", name, static_cast<int>(entry.dtype), fmt::join(entry.shape, "x")));
    const auto [data, bytes] = BytesOf(entry);
    for (int64_t i = 0; i < kSamples; ++i) {
      const int64_t size = std::min(kSampleBytes, bytes);
      const int64_t at = (bytes - size) * i / (kSamples - 1);
      digest.Add({reinterpret_cast<const char*>(data + at), static_cast<size_t>(size)});
    }
  }
  return digest.Text();
}

// Of config.json, or of what the metadata of a GGUF file says in its place: the tensors do not tell
// the base of positions, the norms' epsilon or how many experts a token has.
std::string ConfigDigest(const Checkpoint& checkpoint) {
  constexpr size_t kConfigBytesMax = size_t{16} << 20;
  Digest digest;
  if (!checkpoint.gguf_config().empty()) {
    digest.Add(checkpoint.gguf_config());
  } else if (const auto config =
                 ReadFile(checkpoint.directory() + "/config.json", kConfigBytesMax)) {
    digest.Add(*config);
  }
  return digest.Text();
}

// Of the CPU, whatever --isa says: the C library chooses by them too.
std::string FeaturesText(const CpuFeatures& cpu) {
  std::string text;
  const std::pair<const char*, bool> all[] = {
      {"avx2", cpu.avx2},
      {"avx512", cpu.avx512},
      {"avx512_bf16", cpu.avx512_bf16},
      {"avx512_vnni", cpu.avx512_vnni},
      {"avx512_vbmi", cpu.avx512_vbmi},
      {"avx_vnni", cpu.avx_vnni},
      {"amx_bf16", cpu.amx_bf16},
      {"amx_int8", cpu.amx_int8},
  };
  for (const auto& [name, present] : all) {
    if (present) text += fmt::format("{}{}", text.empty() ? "" : " ", name);
  }
  return text.empty() ? "none" : text;
}

std::string WeightsText(const std::map<std::string_view, int64_t>& weights) {
  std::string text;
  for (const auto& [format, bytes] : weights) {
    text += fmt::format("{}{} bytes of {}", text.empty() ? "" : ", ", bytes, format);
  }
  return text;
}

std::string CacheText(const CacheGeometry& cache) {
  std::string text;
  for (const GroupGeometry& group : cache.groups) {
    text +=
        fmt::format("{}{} of {} bytes", text.empty() ? "" : ", ", group.name, group.block_bytes);
  }
  return text;
}

struct Lines {
  void operator()(const char* name, const std::string& value) {
    text += fmt::format("{}: {}\n", name, value);
  }
  std::string text;
};

constexpr const char* kTokenizerLine = "the tokenizer";

Status CheckPartners(const EngineOptions& options) {
  const auto bad = [](const char* message) { return Error{ErrorCode::kInvalid, message, "role"}; };
  if (options.mesh.dp > 1) {
    return bad(
        "--role prefill and decode need one group of ranks; leave out --dp and start an engine for "
        "each group");
  }
  if (LaunchHere().several()) {
    return bad("--role prefill and decode need ranks that are threads; start one process");
  }
  if (!options.event_log.empty()) {
    return bad("--event-log holds no pages of other engines; leave it out or use --role both");
  }
  if (options.reduce != "exact") {
    return bad(
        "--role prefill and decode exchange pages whose bits do not depend on where experts lie; "
        "leave out --reduce fast");
  }
  return {};
}

}  // namespace

std::string TokensDigest(const std::optional<Tokenizer>& tokenizer,
                         const std::vector<TokenId>& eos) {
  if (!tokenizer) return "none";
  Digest digest;
  digest.Add(PackVocabulary(*tokenizer, eos.empty() ? TokenId{-1} : eos.front()));
  return digest.Text();
}

Status DescribeTo(EngineOptions& options, const FingerprintParts& parts) {
  RETURN_IF_ERROR(CheckPartners(options));
  handoff::PartnerOptions& partners = *options.partners;
  Lines line;
  ASSIGN_OR_RETURN(line.text, WholeFingerprintOf(options, parts));
  line(kTokenizerLine, parts.tokens);
  partners.fingerprint = std::move(line.text);
  if (options.mesh.tp > 1) {
    partners.layout = PageLayoutOf(parts.spec, options.mesh, parts.machine.kv_dtype);
  }
  return {};
}

Result<std::string> WholeFingerprintOf(const EngineOptions& options,
                                       const FingerprintParts& parts) {
  if (options.mesh.ranks() == 1) return FingerprintOf(parts);
  const DType kv_dtype = parts.machine.kv_dtype;
  ASSIGN_OR_RETURN(const Binding whole,
                   BindWeights(parts.spec, parts.checkpoint, options.weight_choice()));
  const std::map<std::string_view, int64_t> weights = WeightBytesOf(whole.report);
  const CacheGeometry cache{.groups = CachePlanOf(parts.spec, kv_dtype).groups};
  return FingerprintOf(
      {parts.spec, parts.checkpoint, parts.machine, cache, weights, parts.mla, parts.device});
}

std::string ModelLinesOf(const FingerprintParts& parts) {
  std::vector<std::string_view> formats;
  for (const auto& [format, bytes] : parts.weights) formats.push_back(format);
  Lines line;
  line("the architecture", parts.spec.architecture);
  line("the vocabulary", fmt::format("{} tokens", parts.spec.vocabulary));
  line(kTokenizerLine, parts.tokens);
  line("config.json", ConfigDigest(parts.checkpoint));
  line("the weights' digest", WeightsDigest(parts.checkpoint));
  line("--weights", fmt::format("{}", fmt::join(formats, ", ")));
  line("--kv-dtype", std::string(NameOf(parts.machine.kv_dtype)));
  line("--state-dtype", std::string(NameOf(parts.machine.state_dtype)));
  return line.text;
}

std::string FilesTextOf(const FingerprintParts& parts) {
  return fmt::format(
      ", arithmetic {}, C library {}, config.json {}, digest of weights {}, tokenizer {}",
      kNumerics, ::gnu_get_libc_version(), ConfigDigest(parts.checkpoint),
      WeightsDigest(parts.checkpoint), parts.tokens);
}

std::string FingerprintOf(const FingerprintParts& parts) {
  const ModelSpec& spec = parts.spec;
  Lines line;
  line("the digest of the program's arithmetic", std::string(kNumerics));
  line("the C library", ::gnu_get_libc_version());
  line("the CPU's extensions", FeaturesText(parts.machine.cpu));
  line("the architecture", spec.architecture);
  line("the vocabulary", fmt::format("{} tokens", spec.vocabulary));
  line("config.json", ConfigDigest(parts.checkpoint));
  line("the weights' digest", WeightsDigest(parts.checkpoint));
  line("--weights", WeightsText(parts.weights));
  line("--kv-dtype", std::string(NameOf(parts.machine.kv_dtype)));
  line("--state-dtype", std::string(NameOf(parts.machine.state_dtype)));
  line("--compute", parts.machine.device.compute == Compute::kF32 ? "fp32" : "bf16");
  line("--isa", std::string(NameOf(parts.machine.device.isa)));
  line("--mla", parts.mla);
  if (!parts.device.empty()) line("--device", parts.device);
  line("the cache", CacheText(parts.cache));
  return line.text;
}

Result<std::string> FilesLine(const Checkpoint& checkpoint) {
  std::set<std::string> lines;  // in the order of the names, whatever part was named
  for (const std::string& path : checkpoint.file_paths()) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) {
      return Error{ErrorCode::kInternal, fmt::format("{}: {}", path, std::strerror(errno))};
    }
    lines.insert(fmt::format("{} {} {}.{:09}", std::filesystem::path(path).filename().string(),
                             info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec));
  }
  Digest digest;
  for (const std::string& line : lines) digest.Add(line);
  return fmt::format("the digest of the weights' files: {}\n", digest.Text());
}

}  // namespace braid
