// Runs one fuzz target over stored inputs, without a fuzzer: what was found once stays mended, and
// the targets are compiled and run wherever the tests are. One thread.
#include <fmt/core.h>

#include <cstdint>
#include <filesystem>

#include "base/check.h"
#include "base/system/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace braid {
namespace {

constexpr size_t kInputBytesMax = size_t{1} << 20;

void Run(const std::filesystem::path& path) {
  const Result<std::string> input = ReadFile(path.string(), kInputBytesMax);
  CHECK(input, "{}", input.error().message);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input->data()), input->size());
}

int Replay(int argc, char** argv) {
  int inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      fmt::print("{}\n", entry.path().string());
      std::fflush(stdout);
      Run(entry.path());
      ++inputs;
    }
  }
  fmt::print("{} inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) { return braid::Replay(argc, argv); }
