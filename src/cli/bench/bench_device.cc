// An allocation for each piece of data: a case has few.
#include "cli/bench/bench_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/math.h"
#include "engine/device_choice.h"

namespace braid {

Result<std::unique_ptr<BenchDevice>> BenchDevice::Open(const EngineOptions& options) {
  std::string note;
  ASSIGN_OR_RETURN(std::unique_ptr<vulkan::Gpu> gpu, OpenDevice(options, note));
  if (!note.empty()) fmt::print(stderr, "--device auto: the CPU ({})\n", note);
  if (!gpu) return std::unique_ptr<BenchDevice>();
  std::unique_ptr<BenchDevice> device(new BenchDevice(std::move(gpu)));
  ASSIGN_OR_RETURN(device->limits_, vulkan::MeasureDevice(*device->gpu_));
  return device;
}

void BenchDevice::BeginCase() {
  memory_.clear();
  status_ = {};
}

std::byte* BenchDevice::Take(int64_t bytes) {
  if (!status_.ok()) return nullptr;
  auto memory = gpu_->Allocate(std::max<int64_t>(64, bytes), vulkan::Place::kDevice);
  if (!memory) {
    status_ = memory.error();
    return nullptr;
  }
  memory_.push_back(*std::move(memory));
  return memory_.back().address();
}

std::byte* BenchDevice::MoveBytes(const std::byte* data, int64_t bytes) {
  if (data == nullptr || bytes == 0) return nullptr;
  std::byte* there = Take(bytes);
  if (there == nullptr) return nullptr;
  status_ = gpu_->Upload({data, static_cast<size_t>(bytes)}, there);
  return there;
}

ops::DeviceBatch BenchDevice::Lay(const ops::SequenceIndex& sequences) {
  const std::span<const ops::SequenceSpan> spans(sequences.spans,
                                                 static_cast<size_t>(sequences.count));
  int64_t entries = 1;
  for (const ops::SequenceSpan& span : spans) {
    entries = std::max(entries, CeilDiv(int64_t{span.start} + span.token_count, kBlockTokens));
  }
  std::vector<ops::DeviceSpan> there;
  std::vector<int32_t> span_of(static_cast<size_t>(sequences.tokens));
  std::vector<uint64_t> tables;
  for (const ops::SequenceSpan& span : spans) {
    const auto slot = static_cast<int32_t>(there.size());
    there.push_back({span.token_begin, span.token_count, span.start, slot});
    std::fill_n(span_of.begin() + span.token_begin, span.token_count, slot);
    const int64_t own = CeilDiv(int64_t{span.start} + span.token_count, kBlockTokens);
    for (int64_t b = 0; b < entries; ++b) {
      tables.push_back(b < own ? reinterpret_cast<uint64_t>(span.tables[0][b]) : 0);
    }
  }
  const auto moved = [&](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return reinterpret_cast<uint64_t>(MoveBytes(bytes.data(), std::ssize(bytes)));
  };
  const ops::DeviceBatchTable table{.spans = moved(there),
                                    .span_of = moved(span_of),
                                    .tables = moved(tables),
                                    .groups = 1,
                                    .entries = static_cast<int32_t>(entries)};
  return {.table = MoveBytes(reinterpret_cast<const std::byte*>(&table), sizeof table),
          .spans = sequences.spans};
}

Workspace BenchDevice::MakeWorkspace(int64_t bytes) {
  const int64_t most = std::max<int64_t>(64, bytes);
  return {Take(most), most};
}

}  // namespace braid
